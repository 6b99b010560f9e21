#!/usr/bin/python
"""Brings a library along that the interpreter has too."""
import sys

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec={"where": {"type": "path"}})
    sys.path.insert(0, module.params["where"])
    import requests
    module.exit_json(found=requests.WHOSE)


main()
