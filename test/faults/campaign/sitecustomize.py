"""Lets ansible-runner be the scripted one in every process of Python that imports it,
and gives the fork server failpoints.

So a fork server forks the scripted one: it imports the real one, passes its own
check with it, and executes the scripted one in the forked process of each run.

FAULTS_POINTS and FAULTS_POINTS_DIR are what ROLEWRIGHT_FAILPOINT and
ROLEWRIGHT_FAILPOINT_DIR are to the operator: see internal/failpoint.
"""

from __future__ import annotations

import fcntl
import importlib.abc
import importlib.machinery
import os
import signal
import sys
import threading
import typing

POINTS = [entry for entry in os.environ.get("FAULTS_POINTS", "").split(",") if entry]
DIRECTORY = os.environ.get("FAULTS_POINTS_DIR", "")
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}


def hit(name: str, other: int = 0) -> None:
    """Do what the environment asks for at a failpoint: to this process, or to another one."""
    for entry in POINTS:
        place, _, action = entry.partition(":")
        point, _, number = place.partition("#")
        if point != name:
            continue
        with open(os.path.join(DIRECTORY, place), "a+") as passed:
            fcntl.flock(passed, fcntl.LOCK_EX)
            passed.write(f"{other or os.getpid()}\n")
            passed.flush()
            passed.seek(0)
            count = len(passed.readlines())
        if count != int(number or 1):
            continue
        if action in SIGNALS:
            os.kill(other or os.getpid(), SIGNALS[action])
        elif other:
            os.kill(other, signal.SIGABRT)
        else:
            raise RuntimeError(f"failpoint {entry}")


#: How long a run goes on when its run head passes python.head.going, in seconds.
GOING = 0.4


def around(module: typing.Any, name: str, before: str = "", after: str = "", of: int = 0, delay: float = 0) -> None:
    """Give a function failpoints before and after it, of this process or of another one. With a delay, the one before is passed
    while the function is executed.
    """
    original = getattr(module, name)

    def function(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if delay:
            threading.Timer(delay, hit, (before, of or os.getpid())).start()
        elif before:
            hit(before, of)
        result = original(*args, **kwargs)
        if after:
            hit(after, of)
        return result

    setattr(module, name, function)


def script(module: typing.Any) -> None:
    """Let ansible-runner be the scripted one, but for the self-check of the fork server."""
    real = module.main

    def main(sys_args: list[str] | None = None) -> object:
        args = sys.argv[1:] if sys_args is None else sys_args
        if is_check(args):
            return real(sys_args)
        os.execv(os.environ["FAKERUNNER"], ["ansible-runner", *args])

    module.main = main


def is_check(args: list[str]) -> bool:
    """Tell whether a command line is that of the self-check."""
    return "-i" in args and args[args.index("-i") + 1].startswith("check-")


def interrupt(module: typing.Any) -> None:
    """Give the fork server its failpoint, which is what imports the module, and the run
    head its own, once it knows that it has a run to lead.
    """
    server, keeper = os.getpid(), os.getppid()
    os.register_at_fork(before=lambda: os.getpid() == server and hit("python.server.before-fork"))
    receive = module.receive

    def received(connection: typing.Any) -> typing.Any:
        request, output = receive(connection)
        if "args" in request and not is_check(request["args"]):
            hit("python.head.received")
            around(module.runtrace, "begin_run", after="python.head.ready")
            around(module, "join", after="python.command.joined")
            around(module.Watch, "wait", before="python.head.going", delay=GOING)
            around(module, "Watch", before="python.head.started")
            around(module, "Watch", before="python.keeper.run-started", of=keeper)
            around(module, "kill_rest", before="python.head.ended", after="python.head.killed")
            around(module.runtrace, "notes", after="python.head.before-answer")
        return request, output

    module.receive = received


class Finder(importlib.abc.MetaPathFinder):
    """Changes modules after they were imported."""

    CHANGES: typing.ClassVar = {"ansible_runner.__main__": script, "runhead": interrupt}

    def find_spec(self, fullname: str, path: typing.Any, target: typing.Any = None) -> typing.Any:
        change = self.CHANGES.get(fullname)
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return spec
        ordinary = spec.loader.exec_module

        def exec_module(module: typing.Any) -> None:
            ordinary(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
