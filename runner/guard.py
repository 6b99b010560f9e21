"""Keeps what a playbook prints out of ansible-runner's channel for events.

ansible-runner finds the events of a run in its output, by an escape sequence. A text that a playbook prints, such as
the name of a task with somebody else's data in it, could hold that sequence too: then it is read as an event, its UUID
as the path of a file to be read and removed, and what is no object ends ansible-runner. So the sequence is made
harmless in all that Ansible displays. Ansible loads this file as a callback plugin, after that of ansible-runner.
"""
import functools

from ansible.plugins.callback import CallbackBase
from ansible.utils.display import Display

_START = "\x1b[K"  # erase to the end of the line; what begins and ends an event
_HARMLESS = "\ufffd[K"


def _guarded(display):
    @functools.wraps(display)
    def wrapper(self, msg, *args, **kwargs):
        if isinstance(msg, str):
            msg = msg.replace(_START, _HARMLESS)
        return display(self, msg, *args, **kwargs)

    return wrapper


Display.display = _guarded(Display.display)


class CallbackModule(CallbackBase):
    """Hears of nothing: to be loaded is all that it is for."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "rolewright_guard"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.disabled = True
