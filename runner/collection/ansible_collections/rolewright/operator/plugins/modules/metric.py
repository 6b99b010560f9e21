"""Change a metric that the operator publishes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: metric
short_description: Change a metric of the role
description:
  - Changes a metric that the operator publishes together with its own.
  - A metric exists from its first change until the operator restarts. Its type, its description and the names of its labels
    stay as in this first change.
  - There are at most 500 metrics, each with at most 1000 combinations of label values.
options:
  name:
    description: The name of the metric.
    type: str
    required: true
  description:
    description: What the metric counts or measures.
    type: str
    required: true
  type:
    description:
      - I(value) is added to a counter, sets a gauge, and is observed by a histogram or summary.
    type: str
    choices: [counter, gauge, histogram, summary]
    required: true
  value:
    description: The number. Required, except for a counter, to which 1 is added by default.
    type: float
  labels:
    description: Labels and their values. Choose labels with few different values.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Changes nothing.
    support: full
author: The Rolewright authors
"""

EXAMPLES = r"""
- name: Count backups
  rolewright.operator.metric:
    name: backups_total
    description: Backups that were taken.
    type: counter
    labels:
      tier: "{{ tier }}"

- name: Say how many rows are left
  rolewright.operator.metric:
    name: rows_left
    description: Rows that are not migrated yet.
    type: gauge
    value: 0
"""

RETURN = r""" # """

from ansible.module_utils.basic import AnsibleModule  # noqa: E402, its documentation stands first

from ansible_collections.rolewright.operator.plugins.module_utils.run import answer_or_fail  # noqa: E402

#: What each type of metric does with the value.
VERBS = {"counter": "add", "gauge": "set", "histogram": "observe", "summary": "observe"}


def request(params: dict) -> dict:
    """Return the request to the operator."""
    value = params["value"]
    if value is None:
        value = 1
    return {"name": params["name"], "description": params["description"],
            "labels": {str(name): str(of) for name, of in params["labels"].items()},
            params["type"]: {VERBS[params["type"]]: value}}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "description": {"type": "str", "required": True},
            "type": {"type": "str", "required": True, "choices": sorted(VERBS)},
            "value": {"type": "float"},
            "labels": {"type": "dict", "default": {}},
        },
        required_if=[("type", kind, ("value",)) for kind in ("gauge", "histogram", "summary")],
        supports_check_mode=True)
    if not module.check_mode:
        answer_or_fail(module, lambda run: run.call("metric", request(module.params)))
    module.exit_json(changed=False)  # a report changes nothing that the role manages


if __name__ == "__main__":
    main()
