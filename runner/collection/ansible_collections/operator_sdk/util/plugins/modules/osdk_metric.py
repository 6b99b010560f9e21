"""osdk_metric of operator_sdk.util, for projects that have not installed that collection."""

from __future__ import annotations

DOCUMENTATION = r"""
module: osdk_metric
short_description: Change a metric of the role
description:
  - Rolewright's version of this module of operator_sdk.util 0.5.0. It is used if that collection is not installed.
  - Posts to an address where the operator listens. In new roles, use M(rolewright.operator.metric), which needs no address.
options:
  name:
    description: The name of the metric.
    type: str
    required: true
  description:
    description: What the metric counts or measures.
    type: str
    required: true
  address:
    description: Where the operator listens.
    type: str
    default: http://localhost:5050/metrics
  counter:
    description: How a counter changes, by C(increment) or C(add).
    type: dict
  gauge:
    description: How a gauge changes, by C(increment), C(decrement), C(add), C(subtract), C(set) or C(set_to_current_time).
    type: dict
  histogram:
    description: What a histogram observes, by C(observe).
    type: dict
  summary:
    description: What a summary observes, by C(observe).
    type: dict
author: The Rolewright authors
"""

EXAMPLES = r"""
- operator_sdk.util.osdk_metric:
    name: backups_total
    description: Backups that were taken.
    counter:
      increment: true
"""

RETURN = r""" # """

import json  # noqa: E402, its documentation stands first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.urls import fetch_url  # noqa: E402

NUMBER = {"type": "float"}
SWITCH = {"type": "bool"}
KINDS = {
    "counter": {"increment": SWITCH, "add": NUMBER},
    "gauge": {"increment": SWITCH, "decrement": SWITCH, "add": NUMBER, "subtract": NUMBER, "set": NUMBER, "set_to_current_time": SWITCH},
    "histogram": {"observe": NUMBER},
    "summary": {"observe": NUMBER},
}


def request(params: dict) -> dict:
    """Return the request to the operator."""
    body = {"name": params["name"], "description": params["description"]}
    for kind in KINDS:
        if params[kind] is not None:
            body[kind] = {name: value for name, value in params[kind].items() if value is not None}
    return body


def main() -> None:
    spec: dict = {kind: {"type": "dict", "options": options} for kind, options in KINDS.items()}
    spec.update(name={"type": "str", "required": True}, description={"type": "str", "required": True},
                address={"type": "str", "default": "http://localhost:5050/metrics"})
    module = AnsibleModule(argument_spec=spec, mutually_exclusive=[list(KINDS)], required_one_of=[list(KINDS)], supports_check_mode=True)
    if not module.check_mode:
        response, info = fetch_url(module, module.params["address"], data=json.dumps(request(module.params)), method="POST",
                                   headers={"Content-Type": "application/json"}, use_proxy=False)
        if info["status"] != 200:
            text = info.get("body") or (response.read() if response else b"") or info["msg"]
            module.fail_json(msg=text.decode(errors="replace") if isinstance(text, bytes) else text)
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
