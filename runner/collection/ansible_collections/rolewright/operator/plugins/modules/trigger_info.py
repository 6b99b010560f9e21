"""What the run is, and why it was started."""

from __future__ import annotations

DOCUMENTATION = r"""
module: trigger_info
short_description: Tell why the operator has started this run
description:
  - Tells what the run is, for which object, and what started it.
  - It changes nothing.
  - Tells which fields of the spec are not what they were in the last successful run, and that run's spec, where the operator has kept it.
    The run's artifacts hold it then; with C(no_log) they do not.
attributes:
  check_mode:
    description: Works in check mode.
    support: full
author: The Rolewright authors
"""

EXAMPLES = r"""
- name: Ask why this run was started
  rolewright.operator.trigger_info:
  register: trigger

- name: Back up before a change
  ansible.builtin.include_tasks: backup.yml
  when: trigger.cause == "changed"

- name: Migrate the data of the version before
  ansible.builtin.include_tasks: migrate.yml
  when: "'spec.version' in trigger.changed_fields | default([])"
  vars:
    from: "{{ trigger.previous_spec.version }}"
"""

RETURN = r"""
run_id:
  description: The ID of the run, as in the log and in C(status.ansible).
  returned: always
  type: str
cause:
  description: Why it was started, in the words of C(status.ansible.lastRun.cause).
  returned: always
  type: str
trigger:
  description:
    - "What has caused it, where that can be named, such as C(environment: DEFAULT_TEA_VERSION) or C(configmaps tea/one was changed)."
    - The text is for people, as in C(status.ansible.lastRun.trigger). It is empty where there is no more to say.
  returned: always
  type: str
generation:
  description: The generation of the object that the run is for.
  returned: always
  type: int
attempt:
  description: 1 for the first run of these inputs, and one more after each that failed.
  returned: always
  type: int
changed_fields:
  description:
    - "The paths at which the spec is not what it was in the last successful run, such as C(spec.replicas), C(spec.ports[0].name)
      or C(spec.labels[\"a.b/c\"]), in order, 20 at most. Keys are as in the object. A field that is new or gone is named, and not what is in it."
  returned: when the previous spec is known
  type: list
  elements: str
more_changed_fields:
  description: How many there are besides.
  returned: when the previous spec is known
  type: int
previous_spec:
  description: The spec of the last successful run, with keys as in the object.
  returned: when it is known, which it is not before the first success, nor when its run was made elsewhere, such as by a Pod that is gone
  type: dict
object:
  description: The object, as C(api_version), C(kind), C(namespace), C(name) and C(uid).
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402, its documentation stands first

from ansible_collections.rolewright.operator.plugins.module_utils.run import answer_or_fail  # noqa: E402


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    about = answer_or_fail(module, lambda run: run.about())
    of = about.get("object") or {}
    known = {}
    if about.get("previousSpec") is not None:
        known = {"previous_spec": about["previousSpec"], "changed_fields": about.get("changedFields") or [],
                 "more_changed_fields": about.get("moreChangedFields") or 0}
    module.exit_json(
        changed=False, run_id=about.get("runID"), cause=about.get("cause"), trigger=about.get("trigger") or "",
        generation=about.get("generation"), attempt=about.get("attempt"),
        object={"api_version": of.get("apiVersion"), "kind": of.get("kind"), "namespace": of.get("namespace"), "name": of.get("name"),
                "uid": of.get("uid")}, **known)


if __name__ == "__main__":
    main()
