DOCUMENTATION = """
name: note
type: notification
short_description: notes tasks
description: notes tasks
options:
  word:
    description: a word
    default: noted
    env: [{name: NOTE_WORD}]
"""
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "acme.tools.note"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_ok(self, result):
        self._display.display("%s: %s" % (self.get_option("word"), result._task.action))
