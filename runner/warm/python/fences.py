"""Fences around a task that ansible-playbook executes itself.

What a task leaves behind in a worker is gone when the worker ends; in ansible-playbook, later tasks would see it. So such a
task must not do what could leave something behind. If it tries, it is Unfit and gets a worker. Once the task has begun to
execute a module, the fences are open, because a module must not be executed twice. The rest of the task computes nothing.
"""

from __future__ import annotations

import datetime
import functools
import locale
import os
import re
import signal
import socket
import sys
import threading
import traceback
import warnings
from typing import Any

import ansiblefiles
import prepared

#: Ansible's plugins, by type, that only compute or read files, and keep nothing. See own, which also checks the path.
PLUGINS = {
    "action": frozenset("assert debug fail include_vars set_fact set_stats validate_argument_spec".split()),
    "connection": frozenset(["local"]),
    "shell": frozenset(["sh"]),
    "lookup": frozenset("dict env file fileglob first_found flattened indexed_items items list nested sequence subelements template "
                        "together varnames vars".split()),
}
#: Ansible's action plugins that only execute a module. A module without an action plugin has "normal".
EXECUTING = frozenset("command gather_facts normal shell".split())
#: The action plugins of COLLECTIONS that only execute a module. All these names stand for the same file.
EXECUTING_OF_COLLECTIONS = frozenset("k8s k8s_cluster_info k8s_info k8s_log k8s_scale k8s_service".split())
#: Names by which a template reaches what tasks share, and not a copy of it.
SHARED = frozenset(["hostvars", "self", "vars"])
#: Functions whose attributes lead there, too. A template may only call them.
FUNCTIONS = frozenset("cycler dict joiner lipsum lookup namespace now q query range undef".split())
#: Collections whose filters and tests keep nothing.
COLLECTIONS = ("kubernetes.core",)


class Unfit(BaseException):
    """Raised if the task needs a worker. It is no Exception, because Ansible and Jinja turn exceptions into results."""

    def __init__(self, way: str, what: str) -> None:
        super().__init__(what)
        #: The reason, in the words of runtrace.COUNTED.
        self.way = way


class State:
    """What this process knows about the task that it executes."""

    thread: int | None = None
    queue: Any = None
    #: Whether the task may execute a module, and whether it has begun to.
    executes = False
    begun = False
    #: The directories that were made for the module, and the number of tasks in a row whose module could not be forked.
    made: list[str] = []
    unforked = 0
    #: The values that were checked, by their ids. They are kept so that no other value can get the same id.
    copied: dict[int, Any] = {}


#: What was replaced: owner, name and old value. The value is None if the owner itself did not have the name.
_replaced: list[tuple[Any, str, Any]] = []


def inside() -> bool:
    """Tell whether this thread executes a task. Another thread receives results."""
    return State.thread == threading.get_ident()


def guarded() -> bool:
    """Tell whether this thread executes a task that can still get a worker."""
    return inside() and not State.begun


def replace(owner: Any, name: str, value: Any) -> None:
    """Replace a name of a class or module until remove is called."""
    _replaced.append((owner, name, vars(owner).get(name)))
    setattr(owner, name, value)


def remove() -> None:
    """Restore everything that was replaced. Called in a worker, because its errors may show their frames."""
    for owner, name, value in reversed(_replaced):
        if value is None:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
    _replaced.clear()


def install() -> None:
    """Put up all fences. Called after the callback plugins are loaded, because ansible-runner's replaces Display.display."""
    fence_plugins()
    fence_filters()
    fence_templates()
    if not ansiblefiles.has_engine():
        fence_values()
    fence_messages()
    fence_warnings()


@functools.cache
def own(kind: str, path: str | None, names: frozenset[str]) -> bool:
    """Tell whether a file is one of Ansible's own plugins of this kind, and has one of the names."""
    directory, name = os.path.split(os.path.realpath(path or ""))
    return os.path.splitext(name)[0] in names and directory == os.path.join(ansible(), "plugins", kind)


@functools.cache
def ansible() -> str:
    """Return the directory of Ansible."""
    import ansible as package

    return os.path.dirname(os.path.realpath(package.__file__))


def fence_plugins() -> None:
    """Allow only the plugins in PLUGINS, filters, tests, and the action plugin of a task that may execute a module."""
    import ansible.plugins.loader as loader

    ordinary = loader.PluginLoader.get_with_context

    def get_with_context(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if guarded() and self.type not in ("filter", "test"):
            found = self.find_plugin_with_context(name, collection_list=kwargs.get("collection_list"))
            path, names = found.plugin_resolved_path, PLUGINS.get(self.type, frozenset())
            if found.resolved and not (own(self.type, path, names) or self.type == "action" and State.executes and executing(path)):
                raise Unfit("action" if self.type == "action" else "plugin", f"the {self.type} plugin {name}")
        return ordinary(self, name, *args, **kwargs)

    replace(loader.PluginLoader, "get_with_context", get_with_context)


@functools.cache
def executing(path: str | None) -> bool:
    """Tell whether a file is an action plugin that only executes a module."""
    if own("action", path, EXECUTING):
        return True
    directory, name = os.path.split(os.path.realpath(path or ""))
    places = [os.path.join(place, "plugins", "action") for c in COLLECTIONS if (place := collection(c))]
    return os.path.splitext(name)[0] in EXECUTING_OF_COLLECTIONS and directory in places


def executes(task: Any, variables: dict) -> bool:
    """Tell whether the action of a task only executes one module."""
    import ansible.constants as constants
    import ansible.plugins.loader as loader

    found = loader.action_loader.find_plugin_with_context(task.action, collection_list=task.collections)
    if found.resolved and own("action", found.plugin_resolved_path, frozenset(["gather_facts"])):
        return len(constants.config.get_config_value("FACTS_MODULES", variables=variables)) == 1
    return not found.resolved or executing(found.plugin_resolved_path)


def places() -> tuple[int, int]:
    """Return how many directories with filters, and how many with tests, roles have added so far."""
    import ansible.plugins.loader as loader

    return len(loader.filter_loader._extra_dirs), len(loader.test_loader._extra_dirs)


def fence_filters() -> None:
    """Refuse filters and tests that could keep something: those of the project and of collections not in COLLECTIONS."""
    try:
        from ansible._internal._templating._jinja_plugins import JinjaPluginIntercept
    except ImportError:
        from ansible.template import JinjaPluginIntercept
    ordinary = JinjaPluginIntercept.__getitem__
    known: dict[tuple, bool] = {}

    def getitem(self: Any, key: str) -> Any:
        if guarded():
            plugins = getattr(self, "_plugin_loader", None) or self._pluginloader
            asked = (plugins.type, key, places())
            if asked not in known:
                known[asked] = keeps_nothing(plugins, key)
            if not known[asked]:
                raise Unfit("plugin", f"the {plugins.type} {key}")
        return ordinary(self, key)

    replace(JinjaPluginIntercept, "__getitem__", getitem)


def keeps_nothing(loader: Any, name: str) -> bool:
    """Tell whether a filter or test is Jinja's, Ansible's, or from one of COLLECTIONS. Filters and tests of other
    collections are not even imported here: each worker that uses one imports it.
    """
    from jinja2 import defaults

    name = name.removeprefix("ansible.legacy.")
    plugin = loader._cached_non_collection_wrappers.get(name)
    try:
        if plugin is None and name.startswith(tuple(f"{c}." for c in COLLECTIONS)):
            plugin = loader.get(name)
    except Exception:
        return False  # the worker reports the error
    if plugin is None:
        return name in (defaults.DEFAULT_FILTERS if loader.type == "filter" else defaults.DEFAULT_TESTS)
    path = os.path.realpath(getattr(plugin, "_original_path", ""))
    directories = [os.path.join(ansible(), "plugins"), *(p for c in COLLECTIONS if (p := collection(c)))]
    return any(path.startswith(directory + os.sep) for directory in directories)


def collection(name: str) -> str | None:
    """Return the directory of a collection; None if nothing of it is imported."""
    module = sys.modules.get("ansible_collections." + name)
    return os.path.realpath(next(iter(module.__path__))) if module is not None else None


def left() -> tuple:
    """Return the state of this process that the import of a file may change for everything after it."""
    umask = os.umask(0o077)
    os.umask(umask)
    signals = [signal.getsignal(number) for number in signal.valid_signals()]
    return dict(os.environ), umask, os.getcwd(), locale.setlocale(locale.LC_ALL), socket.getdefaulttimeout(), threading.active_count(), signals


def import_filters(queue: Any) -> bool:
    """Import the files of filters and tests, as their first use does. Return whether the import succeeds, shows nothing and
    leaves nothing behind; if not, each worker has to import the files itself. If there are files besides Ansible's, a forked
    process tries the import first.
    """
    import ansible.plugins.loader as loader

    loaders = (loader.filter_loader, loader.test_loader)
    if has_others():
        try:
            pid = os.fork()
        except OSError:
            return False
        if pid == 0:
            code = 1
            try:
                null = os.open(os.devnull, os.O_RDWR)
                for descriptor in range(3):
                    os.dup2(null, descriptor)
                before = left()
                code = 0 if imported(loaders, queue) and left() == before else 1
            finally:
                os._exit(code)
        if os.waitpid(pid, 0)[1] != 0:
            return False
    return imported(loaders, queue)


def has_others() -> bool:
    """Tell whether any directory from which all filters or tests are imported is not Ansible's own."""
    import ansible.plugins.loader as loader

    return any(not path.startswith(ansible() + os.sep) for each in (loader.filter_loader, loader.test_loader) for path in prepared.existing(each))


def imported(loaders: tuple, queue: Any) -> bool:
    """Import the files of filters and tests, and return whether the import succeeds and shows nothing."""
    State.thread, State.queue = threading.get_ident(), queue
    try:
        for each in loaders:
            each._ensure_non_collection_wrappers()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: B902, also a file's SystemExit
        return False
    finally:
        State.thread = State.queue = None
    return not queue.sent


def fence_templates() -> None:
    """Refuse templates by which a task could reach what it shares with other tasks."""
    import jinja2

    ordinary = jinja2.Environment._generate

    def generate(self: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        if guarded() and (name := reached(source)) is not None:
            raise Unfit("template", f"{name} in a template")
        return ordinary(self, source, *args, **kwargs)

    replace(jinja2.Environment, "_generate", generate)


def reached(tree: Any) -> str | None:
    """Return the name or text by which a template could reach what tasks share, or None."""
    from jinja2 import nodes

    called = {id(node.node) for node in tree.find_all(nodes.Call)}
    for node in tree.find_all((nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Const, nodes.Filter)):
        word, hidden = "", "__"
        if isinstance(node, nodes.Name):
            if node.name in SHARED or node.name in FUNCTIONS and id(node) not in called:
                return node.name
        elif isinstance(node, nodes.Filter):
            if node.name.rpartition(".")[2] == "attr":
                return "attr"
        elif isinstance(node, nodes.Const):
            word = node.value
        elif isinstance(node, nodes.Getattr):
            word, hidden = node.attr, "_"
        elif isinstance(node.arg, nodes.Const):
            word, hidden = node.arg.value, "_"
        if isinstance(word, str) and (word.startswith(hidden) or ".__" in word):
            return word[:50]
    return None


def fence_values() -> None:
    """Refuse variables that a template gets without a copy, such as a set. From 2.19 on, there are no such variables."""
    import jinja2
    from ansible.parsing.yaml.objects import AnsibleVaultEncryptedUnicode
    from ansible.template.vars import AnsibleJ2Vars

    ordinary = AnsibleJ2Vars.__getitem__
    unchanging = (str, bytes, int, float, type(None), datetime.date, datetime.time, jinja2.Undefined, AnsibleVaultEncryptedUnicode)

    def getitem(self: Any, name: str) -> Any:
        if guarded() and name not in self._locals:
            value = self._templar.available_variables.get(name)
            if id(value) not in State.copied:
                look(value)
                State.copied[id(value)] = value
        return ordinary(self, name)

    def look(value: Any) -> None:
        left = [value]
        while left:
            value = left.pop()
            if isinstance(value, (list, tuple)):
                left.extend(value)
            elif isinstance(value, dict):
                left.extend(value.values())
            elif not isinstance(value, unchanging):
                raise Unfit("value", f"a value of the type {type(value).__name__}")

    replace(AnsibleJ2Vars, "__getitem__", getitem)


def fence_messages() -> None:
    """Refuse messages: ansible-runner turns them into events, which a worker writes itself. What a worker would send to
    ansible-playbook to be shown is put into the task's queue.
    """
    from ansible.utils.display import Display

    ordinary: Any = Display.display

    def display(self: Any, *args: Any, **kwargs: Any) -> None:
        if guarded():
            raise Unfit("message", "a message")
        ordinary(self, *args, **kwargs)

    def queue(self: Any) -> Any:
        return State.queue if inside() else self.__dict__.get("_final_q")

    def set_queue(self: Any, value: Any) -> None:
        self.__dict__["_final_q"] = value

    replace(Display, "display", display)
    replace(Display, "_final_q", property(queue, set_queue))


def fence_warnings() -> None:
    """Refuse warnings of Python, which go to stderr, and which a process gives only once."""
    ordinary = warnings.showwarning

    def showwarning(*args: Any, **kwargs: Any) -> None:
        if guarded():
            with warnings.catch_warnings():  # makes Python forget which warnings were given
                pass
            re.purge()
            raise Unfit("message", "a warning of Python")
        ordinary(*args, **kwargs)

    replace(warnings, "showwarning", showwarning)


def hide_frames() -> None:
    """Keep the functions of this directory out of tracebacks, because results may contain tracebacks."""
    ordinary = traceback.TracebackException.__init__
    ours = os.path.dirname(os.path.abspath(__file__)) + os.sep

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        ordinary(self, *args, **kwargs)
        self.stack[:] = [frame for frame in self.stack if not frame.filename.startswith(ours)]

    setattr(traceback.TracebackException, "__init__", init)
