"""Keeps data out of two places where it would be more than data. Ansible loads this file as a callback plugin, after that
of ansible-runner and before it starts any worker. Where it cannot do its work it ends the run.

What a playbook prints is kept out of ansible-runner's channel for events. ansible-runner finds the events of a run in its
output, by an escape sequence. A text that a playbook prints, such as the name of a task with data of another in it,
could hold that sequence too: then it is read as an event, its UUID as the path of a file to be read and removed, and what
is no object ends ansible-runner. So the sequence is made harmless in all that Ansible displays.

Marked strings are kept from being evaluated up to ansible-core 2.18. There, all that a template makes of a variable is
marked if the variable holds a marked string; but Ansible looks for marks at the values of maps and the items of lists
only, and not at what a template reads of hostvars or by an imported template. From 2.19 on nothing is evaluated but what is marked as trusted.
"""
import functools
import importlib.util
import sys
import threading

from ansible.plugins.callback import CallbackBase
from ansible.release import __version__
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


def _marked(value):
    """Return whether a value holds a marked string: among the keys of maps, too, and in every collection of Python's."""
    waiting, seen = [value], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            if id(value) in seen:
                continue
            seen.add(id(value))
            waiting.extend(value)
            if isinstance(value, dict):
                waiting.extend(value.values())
        elif getattr(value, "__UNSAFE__", False) is True:
            return True
    return False


class _Templates(threading.local):
    """The templates that are being rendered, the innermost last: for each, whether it has read a mark of hostvars."""

    def __init__(self):
        self.marks = []


_templates = _Templates()


def _rendering(render, wrap):
    """Have render, a method, return marked text where the template has read a mark."""

    @functools.wraps(render)
    def wrapper(self, *args, **kwargs):
        _templates.marks.append(False)
        try:
            result = render(self, *args, **kwargs)
        finally:
            marked = _templates.marks.pop()
        return wrap(result) if marked else result

    return wrapper


def _reading(read, source):
    """Have read, a method, tell the template if what it reads is marked: that is what source makes of the object and the
    result."""

    @functools.wraps(read)
    def wrapper(self, *args, **kwargs):
        _templates.marks.append(False)  # what the method itself reads does not count
        try:
            value = read(self, *args, **kwargs)
        finally:
            _templates.marks.pop()
        if _templates.marks and _marked(source(self, value)):
            _templates.marks[-1] = True
        return value

    return wrapper


def _keep_marks():
    from ansible.template import AnsibleContext, Templar
    from ansible.utils.unsafe_proxy import wrap_var
    from ansible.vars.hostvars import HostVars, HostVarsVars

    for owner, name in ((AnsibleContext, "_is_unsafe"), (AnsibleContext, "resolve_or_missing"), (HostVarsVars, "__getitem__"), (HostVars, "raw_get")):
        if name not in vars(owner):
            raise LookupError("%s has no %s" % (owner.__name__, name))
    AnsibleContext._is_unsafe = staticmethod(_marked)
    Templar.do_template = Templar._do_template = _rendering(Templar.do_template, wrap_var)
    # Imported templates have contexts of their own, whose marks the importing one does not see.
    AnsibleContext.resolve_or_missing = _reading(AnsibleContext.resolve_or_missing, lambda self, value: value)
    HostVarsVars.__getitem__ = _reading(HostVarsVars.__getitem__, lambda self, value: value)
    HostVarsVars.__repr__ = _reading(HostVarsVars.__repr__, lambda self, value: self._vars)
    HostVars.__getitem__ = _reading(HostVars.__getitem__, lambda self, value: None)  # a HostVarsVars tells by itself
    HostVars.raw_get = _reading(HostVars.raw_get, lambda self, value: value)


def _trusts_nothing_else():
    """Return whether this Ansible evaluates only what is marked as trusted: since 2.19."""
    try:
        return importlib.util.find_spec("ansible._internal._datatag._tags") is not None
    except ImportError:
        return False


# Before the rest, which an old one may lack. The image of a Pod is looked at here only; the operator knows its own before.
if tuple(int(n) for n in __version__.split(".")[:2]) < (2, 14):
    Display().error("ansible-core %s is too old, 2.14 or newer is needed: install it in the image in which the role is run" % __version__, wrap_text=False)
    sys.exit(1)
Display.display = _guarded(Display.display)
try:
    if not _trusts_nothing_else():
        _keep_marks()
except Exception as error:  # Ansible would go on without a plugin that it cannot load.
    Display().error("This version of Ansible cannot be kept from evaluating data: %s. Use one that Rolewright is tested with." % error)
    sys.exit(1)


class CallbackModule(CallbackBase):
    """Hears of nothing: to be loaded is all that it is for."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "rolewright_guard"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.disabled = True
