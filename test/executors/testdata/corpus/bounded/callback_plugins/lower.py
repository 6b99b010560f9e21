DOCUMENTATION = """
name: lower
type: notification
short_description: lowers limits
description: lowers limits
"""
import os
import resource

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "lower"

    def v2_playbook_on_start(self, playbook):
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(3)
