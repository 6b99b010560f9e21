"""Report a Kubernetes Event about the object that the run is for."""

from __future__ import annotations

DOCUMENTATION = r"""
module: event
short_description: Report a Kubernetes Event about the object
description:
  - Reports an Event that C(kubectl describe) shows with the object that the run is for.
  - A run may report 20 Events.
  - The operator needs the permission to create Events of the group C(events.k8s.io). C(rolewright generate rbac) grants it.
options:
  type:
    description: Normal, or Warning if someone has to look at it.
    type: str
    choices: [Normal, Warning]
    default: Normal
  reason:
    description: One word in CamelCase, by which Events are grouped.
    type: str
    required: true
  message:
    description: A sentence for people. It is cut after 1024 bytes. Values of Secrets are masked.
    type: str
    required: true
  related:
    description: Another object that the Event concerns.
    type: dict
    suboptions:
      api_version:
        description: Its API version.
        type: str
        default: v1
      kind:
        description: Its kind.
        type: str
        required: true
      namespace:
        description: Its namespace; by default the namespace of the run's object.
        type: str
      name:
        description: Its name.
        type: str
        required: true
attributes:
  check_mode:
    description: Reports nothing.
    support: full
author: The Rolewright authors
"""

EXAMPLES = r"""
- name: Say that the backup is there
  rolewright.operator.event:
    reason: BackupTaken
    message: "The backup {{ backup.name }} is complete"
    related:
      api_version: batch/v1
      kind: Job
      name: "{{ backup.name }}"
"""

RETURN = r""" # """

from ansible.module_utils.basic import AnsibleModule  # noqa: E402, its documentation stands first

from ansible_collections.rolewright.operator.plugins.module_utils.run import Run, answer_or_fail  # noqa: E402

RELATED = {
    "api_version": {"type": "str", "default": "v1"},
    "kind": {"type": "str", "required": True},
    "namespace": {"type": "str"},
    "name": {"type": "str", "required": True},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "type": {"type": "str", "default": "Normal", "choices": ["Normal", "Warning"]},
            "reason": {"type": "str", "required": True},
            "message": {"type": "str", "required": True},
            "related": {"type": "dict", "options": RELATED},
        },
        supports_check_mode=True)
    params = module.params

    def report(run: Run) -> dict:
        event = {"type": params["type"], "reason": params["reason"], "message": params["message"], "check": module.check_mode}
        if params["related"]:
            of = params["related"]
            namespace = of["namespace"]
            if namespace is None:
                namespace = run.about()["object"].get("namespace") or ""
            event["related"] = {"apiVersion": of["api_version"], "kind": of["kind"], "namespace": namespace, "name": of["name"]}
        return run.call("event", event)

    answer_or_fail(module, report)
    module.exit_json(changed=False)  # a report changes nothing that the role manages


if __name__ == "__main__":
    main()
