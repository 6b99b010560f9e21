#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rolehelper import HELP

AnsibleModule(argument_spec={}).exit_json(helped=HELP)
