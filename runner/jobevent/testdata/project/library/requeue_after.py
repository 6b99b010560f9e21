#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec=dict(time=dict(type="str", default="")))
    module.exit_json(period=module.params["time"])


main()
