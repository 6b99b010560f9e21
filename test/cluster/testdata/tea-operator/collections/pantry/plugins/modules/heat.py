#!/usr/bin/python

DOCUMENTATION = r"""
module: heat
short_description: says how hot the water has to be
description: Says how hot the water has to be.
author: a cook
options:
  sort: {description: The sort of tea., required: true, type: str}
"""

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec={"sort": {"required": True}}, supports_check_mode=True)
    module.exit_json(changed=False, celsius={"green": 80, "white": 75}.get(module.params["sort"], 100))


if __name__ == "__main__":
    main()
