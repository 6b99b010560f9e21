"""A callback of a role: whether Ansible loads it is seen."""
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "rolecall"

    def v2_playbook_on_stats(self, stats):
        self._display.display("the role's callback was loaded")
