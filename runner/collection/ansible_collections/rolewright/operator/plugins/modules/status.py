"""Write into the status of the object that the run is for."""

from __future__ import annotations

DOCUMENTATION = r"""
module: status
short_description: Write fields and conditions into the status of the object
description:
  - Merges fields and conditions into the status of the object that the run is for. The task writes at once.
  - Everything that the task does not name stays as it is.
  - C(status.ansible), C(status.observedGeneration) and the conditions Running, Successful, Failure, Ready, Reconciling and
    Stalled belong to the operator, and are refused. With C(manageStatus=false) in the watch, they belong to the role.
options:
  fields:
    description:
      - Fields of the status. Mappings are merged into existing mappings, null removes a field, and other values replace it.
      - The CustomResourceDefinition has to declare the fields. The API server drops others, and the task warns about it.
    type: dict
    default: {}
  conditions:
    description: Conditions, at most 20. Each replaces the condition of the same type.
    type: list
    elements: dict
    default: []
    suboptions:
      type:
        description: The type, such as C(DatabaseReady).
        type: str
        required: true
      status:
        description: Whether the condition is true.
        type: str
        choices: ["True", "False", "Unknown"]
        required: true
      reason:
        description: One word in CamelCase.
        type: str
        required: true
      message:
        description: A sentence for people, at most 4096 bytes. Values of Secrets are masked.
        type: str
        default: ""
attributes:
  check_mode:
    description: Reports whether something would change, and writes nothing.
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
  description: Fields that were dropped, because the CustomResourceDefinition does not declare them.
  returned: when fields were dropped
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
