"""Tell what the run is, and why it was started."""

from __future__ import annotations

DOCUMENTATION = r"""
module: trigger_info
short_description: Tell why the operator has started this run
description:
  - Tells what the run is, for which object, and what started it.
  - It changes nothing.
  - If the operator has kept the spec of the last successful run, returns this spec, and the fields that differ from it now.
    The run's artifacts then contain this spec; with C(no_log), they do not.
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
  description: The ID of the run, which the log and C(status.ansible) also have.
  returned: always
  type: str
cause:
  description: Why the run was started, with the values of C(status.ansible.lastRun.cause).
  returned: always
  type: str
trigger:
  description:
    - "What exactly started the run, such as C(environment: DEFAULT_TEA_VERSION) or C(configmaps tea/one was changed)."
    - The text is for people, as in C(status.ansible.lastRun.trigger). It is empty if there is no more to say.
  returned: always
  type: str
generation:
  description: The generation of the object that the run is for.
  returned: always
  type: int
attempt:
  description: 1, plus one for each failed run of the same inputs.
  returned: always
  type: int
changed_fields:
  description:
    - "The paths at which the spec differs from that of the last successful run, such as C(spec.replicas),
      C(spec.ports[0].name) or C(spec.labels[\"a.b/c\"]), in order, at most 20. Keys are as in the object. A field that is
      new or was removed is named, but not what is in it."
  returned: when the previous spec is known
  type: list
  elements: str
more_changed_fields:
  description: How many more such paths there are.
  returned: when the previous spec is known
  type: int
previous_spec:
  description: The spec of the last successful run, with keys as in the object.
  returned: when it is known, so not before the first success, nor if that run was made by another Pod
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
