#!/usr/bin/python
DOCUMENTATION = """
module: measure
short_description: scales a value
description: scales a value
extends_documentation_fragment: [acme.tools.common]
"""
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.acme.tools.plugins.module_utils.scale import scale


def main():
    module = AnsibleModule(argument_spec={"value": {"type": "int", "required": True}}, supports_check_mode=True)
    module.exit_json(changed=False, scaled=scale(module.params["value"]), file=scale.__module__)


if __name__ == "__main__":
    main()
