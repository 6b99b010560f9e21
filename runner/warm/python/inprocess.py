"""Tasks that only compute, executed in ansible-playbook itself.

Ansible forks a worker for each task. Most tasks of a role only compute: those
that `when` skips, set_fact, debug, assert and their like. A fork costs them more
than they do, and what they have compiled and loaded is lost with it.

Such a task is begun in ansible-playbook. Where it turns out to need more, what it
has done is forgotten, and a worker is forked for it after all: when it wants a
plugin that is none of PLUGINS, a filter or test that is not Ansible's, or a
template that could reach what it shares with other tasks.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import sys
import threading
import traceback
from multiprocessing.reduction import ForkingPickler
from typing import Any

import ansiblefiles
import runtrace
import switches

#: Plugins that compute, or read files, and keep nothing; by their type. They are Ansible's own by their path.
PLUGINS = {
    "action": frozenset("assert debug fail include_vars set_fact set_stats validate_argument_spec".split()),
    "connection": frozenset(["local"]),
    "shell": frozenset(["sh"]),
    "lookup": frozenset("dict env file fileglob first_found flattened indexed_items items list nested sequence subelements template "
                        "together varnames vars".split()),
}
#: The strategy that takes one task after the other.
STRATEGY = frozenset(["linear"])
#: Tasks that only have ansible-playbook read a file.
INCLUDES = frozenset("include include_role include_tasks".split())
#: Names in templates behind which there is what tasks share, and not a copy of it.
SHARED = frozenset(["hostvars", "self", "vars"])
#: The verbosity from which on Ansible says how it executes a task: then it is Ansible's way.
DEBUGGED = 3
#: Collections whose filters and tests keep nothing.
COLLECTIONS = ("kubernetes.core",)


class Unfit(BaseException):
    """The task needs a worker. No Exception: Ansible and Jinja make results of those."""


class State:
    """What this process knows of the task that it executes."""

    strategy: Any = None
    thread: int | None = None
    queue: Any = None
    reading = False  # a variable, for a template


def inside() -> bool:
    """Tell whether this thread executes a task. There is another one, which takes results."""
    return State.thread == threading.get_ident()


def install() -> None:
    """Let ansible-playbook execute tasks itself that only compute. Until ansible-core 2.20: newer lines keep in a
    worker which secrets are to be hidden.
    """
    import ansible.constants as constants
    import ansible.plugins.strategy as strategy
    from ansible.executor.task_executor import TaskExecutor

    if switches.without("inprocess") or constants.DEFAULT_DEBUG or "job_vars" not in inspect.signature(TaskExecutor).parameters:
        return
    ordinary = strategy.StrategyBase._queue_task

    def queue_task(self: Any, *args: Any, **kwargs: Any) -> None:
        State.strategy = self
        ordinary(self, *args, **kwargs)

    strategy.StrategyBase._queue_task = queue_task
    strategy.WorkerProcess = worker(strategy.WorkerProcess)
    fence_plugins()
    fence_templates()
    if not ansiblefiles.has_engine():
        fence_values()
    share_display()
    hide_frames()


def worker(ordinary: type) -> type:
    """Return the class of workers that execute their task here if they can."""

    class Worker(ordinary):  # type: ignore[misc, valid-type]
        def start(self) -> None:
            # Outside of what handles Unfit, which would be the context of the worker's exceptions.
            if not (computes(self._task) and executed(self)):
                super().start()

    return Worker


def executed(self: Any) -> bool:
    """Execute the task of a worker here, and tell whether that could be done."""
    try:
        execute(self)
        runtrace.trace("task in process", self._task.action)
        return True
    except Unfit as why:
        runtrace.trace("task forked:", str(why), self._task.action)
        return False


def computes(task: Any) -> bool:
    """Tell whether a task may turn out to compute only, as far as can be told before it is begun."""
    from ansible.utils.display import Display

    name = task.action.rpartition(".")[2]
    return bool(
        Display().verbosity < DEBUGGED
        and (name in PLUGINS["action"] or name in INCLUDES or task.when)
        and not (task.delegate_to or task.until or task.timeout or task.debugger or task.async_val)
        and not (task.loop_control and task.loop_control.pause)
        and len(State.strategy._hosts_cache) == 1
        and own("strategy", sys.modules[type(State.strategy).__module__].__file__, STRATEGY)
    )


@functools.cache
def own(kind: str, path: str | None, names: frozenset[str]) -> bool:
    """Tell whether a file is a plugin of Ansible's own with one of the names."""
    directory, name = os.path.split(os.path.realpath(path or ""))
    return os.path.splitext(name)[0] in names and directory == os.path.join(ansible(), "plugins", kind)


@functools.cache
def ansible() -> str:
    """Return the directory of Ansible."""
    import ansible as package

    return os.path.dirname(os.path.realpath(package.__file__))


def execute(self: Any) -> None:
    """Execute the task of a worker, and send what the worker would. Unfit if nothing has been sent."""
    from ansible.utils.display import Display

    display = Display()
    fence_display()
    # Ansible puts what it has templated into the task, for which a worker has a copy of its own.
    task = copy.copy(self._task)
    if task._loop_control is not None:
        task._loop_control = copy.copy(task._loop_control)
    files = dict(self._loader._FILE_CACHE)
    # Warnings that were given: until 2.18, each worker forgets its own.
    given = [(table, dict(table)) for name in ("_warns", "_deprecations", "_errors") if isinstance(table := getattr(display, name), dict)]
    queue = State.queue = Queue()
    State.thread = threading.get_ident()
    try:
        result(self, task, queue)
    except (Unfit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise Unfit("an error") from error
    finally:
        State.thread = State.queue = None
        self._loader._FILE_CACHE.clear()
        self._loader._FILE_CACHE.update(files)
        for table, before in given:
            table.clear()
            table.update(before)
    queue.send(self._final_q)


def result(self: Any, task: Any, queue: Any) -> None:
    """Execute the task and put its result into the queue."""
    from ansible.executor.task_executor import TaskExecutor

    arguments = (self._host, task, dict(self._task_vars), self._play_context.copy())
    if hasattr(self, "_save_stdin"):  # until 2.18
        with open(os.devnull) as nothing:
            value = TaskExecutor(*arguments, nothing, self._loader, self._shared_loader_obj, queue).run()
        queue.send_task_result(self._host.name, task._uuid, value, task_fields=task.dump_attrs())
        return
    from ansible._internal import _task
    from ansible.executor.task_result import _RawTaskResult

    with _task.TaskContext(task):
        value = TaskExecutor(*arguments, self._loader, self._shared_loader_obj, queue, self._variable_manager).run()
        queue.send_task_result(_RawTaskResult(host=self._host, task=task, return_data=value, task_fields=task.dump_attrs()))


class Queue:
    """What a task sends, kept until it is known that no worker is needed. It has the methods of Ansible's FinalQueue."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        from ansible.executor.task_queue_manager import FinalQueue

        return getattr(FinalQueue, name).__get__(self)

    def put(self, value: Any, block: bool = True) -> None:
        """Keep a value as it is now."""
        self.sent.append(ForkingPickler.dumps(value))

    def send(self, queue: Any) -> None:
        """Send everything as workers do. It takes no thread, as a queue does that is put into: there are forks to come."""
        for value in self.sent:
            if hasattr(queue, "_sem"):  # until 2.15
                queue._sem.acquire()
            with queue._wlock:
                queue._writer.send_bytes(value)


def share_display() -> None:
    """Let what a task displays go the way of what workers display."""
    from ansible.utils.display import Display

    def queue(self: Any) -> Any:
        return State.queue if inside() else self.__dict__.get("_final_q")

    def set_queue(self: Any, value: Any) -> None:
        self.__dict__["_final_q"] = value

    Display._final_q = property(queue, set_queue)


def fence_display() -> None:
    """Let a task that is executed here show no message: ansible-runner makes events of them, which a worker writes
    itself. Called when its plugins are loaded, which has replaced the function.
    """
    from ansible.utils.display import Display

    ordinary: Any = Display.display
    if getattr(ordinary, "fence", False):
        return

    def display(self: Any, *args: Any, **kwargs: Any) -> None:
        if inside():
            raise Unfit("a message")
        ordinary(self, *args, **kwargs)

    setattr(display, "fence", True)
    setattr(Display, "display", display)


def hide_frames() -> None:
    """Let no traceback have the functions of this directory, which a result would show that has one."""
    ordinary = traceback.TracebackException.__init__
    ours = os.path.dirname(os.path.abspath(__file__)) + os.sep

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        ordinary(self, *args, **kwargs)
        self.stack[:] = [frame for frame in self.stack if not frame.filename.startswith(ours)]

    setattr(traceback.TracebackException, "__init__", init)


def fence_plugins() -> None:
    """Let a task that is executed here have plugins of PLUGINS only, filters and tests that keep nothing."""
    import ansible.plugins.loader as loader

    find = loader.PluginLoader.get_with_context

    def get_with_context(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if inside() and self.type not in ("filter", "test"):
            found = self.find_plugin_with_context(name, collection_list=kwargs.get("collection_list"))
            if found.resolved and not own(self.type, found.plugin_resolved_path, PLUGINS.get(self.type, frozenset())):
                raise Unfit(f"the {self.type} plugin {name}")
        return find(self, name, *args, **kwargs)

    loader.PluginLoader.get_with_context = get_with_context
    try:
        from ansible._internal._templating._jinja_plugins import JinjaPluginIntercept
    except ImportError:
        from ansible.template import JinjaPluginIntercept
    ordinary = JinjaPluginIntercept.__getitem__
    known: dict[tuple[str, str], bool] = {}

    def getitem(self: Any, key: str) -> Any:
        if inside():
            plugins = getattr(self, "_plugin_loader", None) or self._pluginloader
            if (plugins.type, key) not in known:
                known[plugins.type, key] = keeps_nothing(plugins, key)
            if not known[plugins.type, key]:
                raise Unfit(f"the {plugins.type} {key}")
        return ordinary(self, key)

    JinjaPluginIntercept.__getitem__ = getitem


def keeps_nothing(loader: Any, name: str) -> bool:
    """Tell whether a filter or test is Jinja's, Ansible's, or of one of COLLECTIONS. Those of other collections are not
    even imported, which each worker does that uses one.
    """
    from jinja2 import defaults

    name = name.removeprefix("ansible.legacy.")
    loader._ensure_non_collection_wrappers()
    plugin = loader._cached_non_collection_wrappers.get(name)
    if plugin is None and name.startswith(tuple(f"{c}." for c in COLLECTIONS)):
        plugin = loader.get(name)
    if plugin is None:
        return name in (defaults.DEFAULT_FILTERS if loader.type == "filter" else defaults.DEFAULT_TESTS)
    path = os.path.realpath(plugin._original_path)
    places = [os.path.join(ansible(), "plugins"), *(p for c in COLLECTIONS if (p := collection(c)))]
    return any(path.startswith(place + os.sep) for place in places)


def collection(name: str) -> str | None:
    """Return the directory of a collection."""
    module = sys.modules.get("ansible_collections." + name)
    return os.path.realpath(next(iter(module.__path__))) if module is not None else None


def fence_templates() -> None:
    """Let a task that is executed here have no template by which it could reach what it shares with others."""
    import jinja2

    ordinary = jinja2.Environment._parse

    def parse(self: Any, *args: Any, **kwargs: Any) -> Any:
        tree = ordinary(self, *args, **kwargs)
        if inside() and (name := reached(tree)) is not None:
            raise Unfit(f"{name} in a template")
        return tree

    setattr(jinja2.Environment, "_parse", parse)


def fence_values() -> None:
    """Let a task that is executed here have no value of which a template gets no copy: a set, for instance. From 2.19
    on, it gets none of these.
    """
    import datetime

    import jinja2
    from ansible.parsing.yaml.objects import AnsibleVaultEncryptedUnicode
    from ansible.template import Templar
    from ansible.template.vars import AnsibleJ2Vars

    read, ordinary = AnsibleJ2Vars.__getitem__, Templar.template
    copied = (str, bytes, int, float, type(None), list, tuple, dict, datetime.date, datetime.time, jinja2.Undefined, AnsibleVaultEncryptedUnicode)

    def getitem(self: Any, name: str) -> Any:
        before, State.reading = State.reading, True
        try:
            return read(self, name)
        finally:
            State.reading = before

    def template(self: Any, variable: Any, *args: Any, **kwargs: Any) -> Any:
        if State.reading and inside() and not isinstance(variable, copied):
            raise Unfit(f"a value of the type {type(variable).__name__}")
        return ordinary(self, variable, *args, **kwargs)

    AnsibleJ2Vars.__getitem__ = getitem
    Templar.template = template


def reached(tree: Any) -> str | None:
    """Return the name by which a template could reach what tasks share; None if there is none."""
    from jinja2 import nodes

    for node in tree.find_all((nodes.Name, nodes.Getattr, nodes.Getitem)):
        if isinstance(node, nodes.Name):
            if node.name in SHARED:
                return node.name
            continue
        attribute = node.attr if isinstance(node, nodes.Getattr) else node.arg.value if isinstance(node.arg, nodes.Const) else ""
        if isinstance(attribute, str) and attribute.startswith("_"):
            return attribute
    return None
