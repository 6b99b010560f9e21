"""Keeps data from being taken for events or for templates. Ansible loads this file as a callback plugin, after
ansible-runner's and before it starts any worker. If the plugin cannot do its work, it ends the run.

Events: ansible-runner finds the events of a run in the run's output, by an escape sequence. Text that a playbook prints,
such as the name of a task with another user's data in it, could contain this sequence, too. ansible-runner would read
the text as an event: it would take the UUID for the path of a file, which it reads and removes, and would end if the
event were not an object. So this plugin makes the sequence harmless in everything that Ansible displays.

Templates: up to ansible-core 2.18, this plugin keeps marked strings from being evaluated. Ansible marks the result of a
template that reads a variable with a marked string. But it looks for marks only in the values of maps and the items of
lists, and not in what the template reads from hostvars or through an imported template. From 2.19 on, Ansible evaluates
only what is marked as trusted.
"""
import functools
import importlib.util
import sys
import threading

from ansible.plugins.callback import CallbackBase
from ansible.release import __version__
from ansible.utils.display import Display

_START = "\x1b[K"  # erases to the end of the line; begins and ends an event
_HARMLESS = "\ufffd[K"


def _guarded(display):
    @functools.wraps(display)
    def wrapper(self, msg, *args, **kwargs):
        if isinstance(msg, str):
            msg = msg.replace(_START, _HARMLESS)
        return display(self, msg, *args, **kwargs)

    return wrapper


def _marked(value):
    """Return whether a value contains a marked string, also as the key of a map, or in a tuple or set."""
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
    """For each template that is being rendered, the innermost last: whether it has read a marked string."""

    def __init__(self):
        self.marks = []


_templates = _Templates()


def _rendering(render, wrap):
    """Wrap the method render, so that its result is marked if the template has read a marked string."""

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
    """Wrap the method read, so that it notes for the current template that it has read a marked string: if
    source(object, result) contains one."""

    @functools.wraps(read)
    def wrapper(self, *args, **kwargs):
        _templates.marks.append(False)  # ignores what the method itself reads
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
    # An imported template has its own context, and the importing template does not see the marks in that context.
    AnsibleContext.resolve_or_missing = _reading(AnsibleContext.resolve_or_missing, lambda self, value: value)
    HostVarsVars.__getitem__ = _reading(HostVarsVars.__getitem__, lambda self, value: value)
    HostVarsVars.__repr__ = _reading(HostVarsVars.__repr__, lambda self, value: self._vars)
    HostVars.__getitem__ = _reading(HostVars.__getitem__, lambda self, value: None)  # a HostVarsVars notes marks itself
    HostVars.raw_get = _reading(HostVars.raw_get, lambda self, value: value)


def _trusts_nothing_else():
    """Return whether this Ansible evaluates only what is marked as trusted: since 2.19."""
    try:
        return importlib.util.find_spec("ansible._internal._datatag._tags") is not None
    except ImportError:
        return False


# First, because an old version may lack what the rest needs. For a run in a Pod, only this checks the version in the
# image; the operator has checked its own version before.
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
    """Receives no events: its only purpose is that Ansible loads this file."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "rolewright_guard"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.disabled = True
