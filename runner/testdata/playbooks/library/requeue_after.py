#!/usr/bin/python
"""Ask for another run, as operator_sdk.util.requeue_after does."""

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec={"time": {"type": "str", "required": True}})
    module.exit_json(period=module.params["time"])


if __name__ == "__main__":
    main()
