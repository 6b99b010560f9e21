"""Tasks that only compute, or execute a module, executed in ansible-playbook itself.

Ansible forks a worker for each task. Most tasks of a role only compute: those
that `when` skips, set_fact, debug, assert and similar ones. A fork costs more than
their work, and what they have compiled and loaded is lost when the worker ends.
Most other tasks leave their work to another process: the module's.

Tasks of both kinds begin in ansible-playbook. If a task turns out to need a worker
(see fences), or fails before its module has begun, ansible-playbook forgets what
the task has done, and forks a worker for it.
"""

from __future__ import annotations

import copy
import functools
import os
import shutil
import sys
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

import ansiblefiles
import fences
import runtrace
import switches

#: Lines of ansible-core whose workers were compared with this file. In newer lines, a worker also keeps the list
#: of secrets to hide.
LINES = ("2.14", "2.19")
#: The strategy that executes one task after the other.
STRATEGY = frozenset(["linear"])
#: Actions that only make ansible-playbook read a file.
INCLUDES = frozenset("include include_role include_tasks".split())
#: From this verbosity on, Ansible shows how it executes a task. Then all tasks have workers.
DEBUGGED = 3
#: After this many tasks in a row whose module could not be forked (for example, because it has another interpreter), all
#: tasks that execute a module have workers.
ENOUGH = 2
#: How many bytes a task may send here, where they are kept until it ends. A worker sends while it works, and keeps nothing.
MOST = 4 << 20

#: The strategy that queues the current task.
_strategy: Any = None


def install() -> None:
    """Let ansible-playbook itself execute tasks that only compute, or that execute a module."""
    import ansible.constants as constants
    import ansible.plugins.strategy as strategy
    from ansible.release import __version__

    if switches.without("inprocess") or constants.DEFAULT_DEBUG or not __version__.startswith(tuple(f"{line}." for line in LINES)):
        return
    ordinary = strategy.StrategyBase._queue_task

    def queue_task(self: Any, *args: Any, **kwargs: Any) -> None:
        global _strategy
        if _strategy is None:
            fences.install()
        _strategy = self
        ordinary(self, *args, **kwargs)

    strategy.StrategyBase._queue_task = queue_task
    strategy.WorkerProcess = worker(strategy.WorkerProcess)
    fences.hide_frames()


def worker(ordinary: type) -> type:
    """Return a class of workers that execute their tasks in this process if possible, and fork if not."""

    class Worker(ordinary):  # type: ignore[misc, valid-type]
        def start(self) -> None:
            # Not while Unfit is handled: it would become the context of the worker's exceptions.
            if not executed(self):
                super().start()

        def run(self) -> None:
            fences.remove()
            super().run()

    return Worker


def executed(self: Any) -> bool:
    """Execute the task of a worker in this process. Return False if the task needs a worker; then it has had no effect."""
    queue = Queue()
    fences.State.begun = False
    fences.State.made.clear()
    try:
        if (way := kept(self._task)) is not None:
            runtrace.count(f"tasks {way}")
            return False
        execute(self, queue)
    except KeyboardInterrupt:
        raise
    except BaseException as why:  # noqa: B902, the worker reports the error
        if fences.State.begun:
            raise RuntimeError(f"a task cannot go on that has executed a module: {why}") from why
        for made in fences.State.made:
            shutil.rmtree(made, ignore_errors=True)
        runtrace.count("tasks " + (why.way if isinstance(why, fences.Unfit) else "other"))
        runtrace.trace("task forked:", str(why) if isinstance(why, fences.Unfit) else type(why).__name__, self._task.action)
        return False
    queue.send(self._final_q)
    runtrace.count("tasks none")
    runtrace.trace("task in process", self._task.action)
    return True


def kept(task: Any) -> str | None:
    """Return why a task needs a worker, in the words of runtrace.COUNTED, as far as can be told before it begins. Return
    None if the task may do without one.
    """
    from ansible.utils.display import Display

    if not (computes(task) or task.when or modular(task)):
        return "action"
    usual = (
        Display().verbosity < DEBUGGED
        and not (task.delegate_to or task.until or ansiblefiles.has_engine() and task.retries is not None)
        and not (task.timeout or task.debugger or task.async_val)
        and not (task.loop_control and task.loop_control.pause)
        and len(_strategy._hosts_cache) == 1
        and fences.own("strategy", sys.modules[type(_strategy).__module__].__file__, STRATEGY)
    )
    if not usual:
        return "option"
    return None if imports_filters(fences.places()) else "plugin"


def computes(task: Any) -> bool:
    """Tell whether a task only computes, by the name of its action."""
    name = task.action.rpartition(".")[2]
    return name in fences.PLUGINS["action"] or name in INCLUDES


def modular(task: Any) -> bool:
    """Tell whether a task may execute a module here: if so, it computes nothing more once the module has begun."""
    if switches.without("modules") or fences.State.unforked >= ENOUGH:
        return False
    conditions = [task.changed_when or [], task.failed_when or []]
    return not (task.loop or task.loop_with or any(not isinstance(each, bool) for many in conditions for each in many))


@functools.cache
def imports_filters(places: tuple[int, int]) -> bool:
    """Tell whether filters and tests can be imported here. It is tried again when their directories, counted by
    fences.places, have changed.
    """
    return fences.import_filters(Queue())


def execute(self: Any, queue: Queue) -> None:
    """Execute the task of a worker, and put what the worker would send into the queue."""
    from ansible.utils.display import Display

    # Ansible writes templated values into the task and its block. A worker would change only its own copies of them.
    task = copy.copy(self._task)
    for name, value in list(vars(task).items()):
        if name in ("_loop_control", "_parent") or isinstance(value, (dict, list)):
            setattr(task, name, copy.copy(value))
    files = dict(self._loader._FILE_CACHE)
    plugins = searched()
    # The warnings that were already given. Up to 2.18, those that a worker gives are forgotten when it ends.
    given = [(table, dict(table)) for name in ("_warns", "_deprecations", "_errors") if isinstance(table := getattr(Display(), name), dict)]
    fences.State.thread, fences.State.queue = threading.get_ident(), queue
    try:
        fences.State.executes = modular(task) and fences.executes(task, self._task_vars)
        if not (computes(task) or fences.State.executes or task.when):
            raise fences.Unfit("action", f"the action {task.action}")
        result(self, task, queue)
    finally:
        fences.State.thread = fences.State.queue = None
        fences.State.copied.clear()
        self._loader._FILE_CACHE.clear()
        self._loader._FILE_CACHE.update(files)
        forget(plugins)
        for table, before in given:
            table.clear()
            table.update(before)


def searched() -> list[tuple]:
    """Return the plugin loaders, each with the paths that it has searched and the plugins that it has found so far."""
    import ansible.plugins.loader as loader

    return [(each, each._paths, set(each._searched_paths), {suffix: dict(found) for suffix, found in each._plugin_path_cache.items()})
            for _, each in loader.get_all_plugin_loaders()]


def forget(before: list[tuple]) -> None:
    """Reset the plugin loaders to what searched has returned: a task may write a plugin that a later task uses."""
    for loader, paths, places, found in before:
        loader._paths, loader._searched_paths = paths, places
        loader._plugin_path_cache.clear()
        loader._plugin_path_cache.update(found)


def result(self: Any, task: Any, queue: Queue) -> None:
    """Execute the task and put its result into the queue."""
    from ansible.executor.task_executor import TaskExecutor

    arguments = (self._host, task, dict(self._task_vars), self._play_context.copy())
    if hasattr(self, "_save_stdin"):  # until 2.18
        with open(os.devnull) as nothing:
            value = TaskExecutor(*arguments, nothing, self._loader, self._shared_loader_obj, queue).run()
        sent: tuple = (self._host.name, task._uuid, value, task.dump_attrs())
    else:
        from ansible._internal import _task
        from ansible.executor.task_result import _RawTaskResult

        with _task.TaskContext(task):
            value = TaskExecutor(*arguments, self._loader, self._shared_loader_obj, queue, self._variable_manager).run()
        sent = (_RawTaskResult(host=self._host, task=task, return_data=value, task_fields=task.dump_attrs()),)
    if value.get("failed") and not fences.State.begun:
        # The error may show its frames, or how deep the stack was.
        raise fences.Unfit("failed", "it failed")
    queue.send_task_result(*sent)


class Queue:
    """Keeps what a task sends until it is known that the task needs no worker. It has the methods of Ansible's FinalQueue."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        from ansible.executor.task_queue_manager import FinalQueue

        return getattr(FinalQueue, name).__get__(self)

    def put(self, value: Any, block: bool = True) -> None:
        """Keep a value in its current state, as a pickle."""
        try:
            data = ForkingPickler.dumps(value)
        except Exception as error:
            raise fences.Unfit("other", "what cannot be sent") from error
        self._size += len(data)
        if self._size > MOST and not fences.State.begun:
            raise fences.Unfit("size", "much to send")
        self.sent.append(data)

    def send(self, queue: Any) -> None:
        """Send everything to the workers' queue, without its method put: that may start a thread, and this process will still
        fork.
        """
        for data in self.sent:
            if hasattr(queue, "_sem"):  # until 2.15
                queue._sem.acquire()
            with queue._wlock:
                queue._writer.send_bytes(data)
