"""requeue_after of operator_sdk.util, for projects that have not installed that collection."""

from __future__ import annotations

DOCUMENTATION = r"""
module: requeue_after
short_description: Run the object again after some time
description:
  - Rolewright's version of this module of operator_sdk.util 0.5.0. It is used if that collection is not installed.
  - In new roles, use M(rolewright.operator.requeue_after).
options:
  time:
    description: The time, such as C(24h) or C(30m).
    type: str
    required: true
author: The Rolewright authors
"""

EXAMPLES = r"""
- operator_sdk.util.requeue_after:
    time: 24h
"""

RETURN = r"""
period:
  description: The time.
  returned: always
  type: str
"""

import re  # noqa: E402, its documentation stands first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402


def main() -> None:
    module = AnsibleModule(argument_spec={"time": {"type": "str", "required": True}}, supports_check_mode=True)
    time = module.params["time"]
    if not re.fullmatch("[hms0-9]*", time):
        module.fail_json(msg="invalid time input")
    module.exit_json(changed=False, period=time)


if __name__ == "__main__":
    main()
