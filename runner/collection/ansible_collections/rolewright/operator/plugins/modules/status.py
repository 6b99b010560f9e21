"""Write into the status of the object that the run is for."""

from __future__ import annotations

DOCUMENTATION = r"""
module: status
short_description: Write fields and conditions into the status of the object
description:
  - Merges fields and conditions into the status of the object that the run is for, at once.
  - What the task does not name stays as it is.
  - Where the operator writes the status, C(status.ansible), C(status.observedGeneration) and the conditions Running, Successful, Failure, Ready,
    Reconciling and Stalled are the operator's, and are refused. With C(manageStatus=false) in the watch they are the role's.
options:
  fields:
    description:
      - Fields of the status. Mappings are merged into those that are there, lists and all else replace them, and null removes a field.
      - The CustomResourceDefinition has to declare them, or the API server drops them, of which the task warns.
    type: dict
    default: {}
  conditions:
    description: Conditions, each in the place of the one of its type. At most 20.
    type: list
    elements: dict
    default: []
    suboptions:
      type:
        description: The type, as C(DatabaseReady) is.
        type: str
        required: true
      status:
        description: Whether it holds.
        type: str
        choices: ["True", "False", "Unknown"]
        required: true
      reason:
        description: One word in CamelCase.
        type: str
        required: true
      message:
        description: A sentence for people, of at most 4096 bytes. Values of Secrets are masked.
        type: str
        default: ""
attributes:
  check_mode:
    description: Says what would change, and writes nothing.
    support: full
author: The Rolewright authors
"""

EXAMPLES = r"""
- name: Say where the database is
  rolewright.operator.status:
    fields:
      endpoint: "{{ database.host }}:5432"
    conditions:
      - type: DatabaseReady
        status: "True"
        reason: Reachable
        message: The database answers
"""

RETURN = r"""
dropped:
  description: Fields that the CustomResourceDefinition does not declare, and that were dropped.
  returned: when there are some
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402, its documentation stands first

from ansible_collections.rolewright.operator.plugins.module_utils.run import answer_or_fail  # noqa: E402

CONDITION = {
    "type": {"type": "str", "required": True},
    "status": {"type": "str", "required": True, "choices": ["True", "False", "Unknown"]},
    "reason": {"type": "str", "required": True},
    "message": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "fields": {"type": "dict", "default": {}},
            "conditions": {"type": "list", "elements": "dict", "default": [], "options": CONDITION},
        },
        required_one_of=[["fields", "conditions"]],
        supports_check_mode=True)
    wish = {"fields": module.params["fields"], "conditions": module.params["conditions"], "check": module.check_mode}
    answer = answer_or_fail(module, lambda run: run.call("status", wish))
    result: dict = {"changed": bool(answer.get("changed"))}
    dropped = answer.get("dropped") or []
    if dropped:
        module.warn("the CustomResourceDefinition does not declare these fields of the status, which were dropped: " + ", ".join(sorted(dropped)))
        result["dropped"] = sorted(dropped)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
