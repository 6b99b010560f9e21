DOCUMENTATION = """
name: counted
type: aggregate
short_description: counts results
description: counts results
options: {}
"""
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "counted"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self.count = 0

    def v2_runner_on_ok(self, result):
        self.count += 1

    def v2_playbook_on_stats(self, stats):
        self._display.display("counted %d" % self.count)
