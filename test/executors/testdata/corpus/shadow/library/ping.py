#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import SHADOW

AnsibleModule(argument_spec={}).exit_json(ping="the project's ping", utils=SHADOW)
