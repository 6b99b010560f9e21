"""Ask for the next run of the object."""

from __future__ import annotations

DOCUMENTATION = r"""
module: requeue_after
short_description: Run the object again after some time
description:
  - Asks the operator to run the role again for this object, some time after the end of this run. The run continues.
  - The time applies if this run succeeds. After a failure, the operator retries as usual, but not before this time.
options:
  time:
    description:
      - The time in hours, minutes and seconds, such as C(24h), C(30m) or C(1h30m).
      - The operator waits for at least one second. A time of 0 asks for nothing.
    type: str
    required: true
attributes:
  check_mode:
    description: Works in check mode.
    support: full
author: The Rolewright authors
"""

EXAMPLES = r"""
- name: Look at the certificate again tomorrow
  rolewright.operator.requeue_after:
    time: 24h

- name: Look again soon
  rolewright.operator.requeue_after:
    time: 1h30m
  when: backup_is_running
"""

RETURN = r"""
period:
  description: The time.
  returned: always
  type: str
"""

import re  # noqa: E402, its documentation stands first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402


def is_time(text: str) -> bool:
    """Tell whether a text is hours, minutes and seconds, at least one of them."""
    return bool(text and re.fullmatch(r"([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,9}s)?", text))


def main() -> None:
    module = AnsibleModule(argument_spec={"time": {"type": "str", "required": True}}, supports_check_mode=True)
    time = module.params["time"]
    if not is_time(time):
        module.fail_json(msg=f"time: {time!r} is not hours, minutes and seconds, as 24h, 30m and 1h30m are")
    module.exit_json(changed=False, period=time)


if __name__ == "__main__":
    main()
