DOCUMENTATION = """
name: project
type: notification
short_description: a project's own
description: a project's own
"""
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "project"

    def v2_playbook_on_stats(self, stats):
        self._display.display("the project's callback has seen %s" % sorted(stats.processed))
