"""Functions that all processes of a fork server need: calls of Linux, file
descriptors, and a fresh start after a fork.

This file knows nothing about Ansible.
"""

from __future__ import annotations

import ctypes
import io
import os
import resource
import signal
import sys
import types

#: The names of the server's own modules, until become_script removes these from sys.modules.
OWN = {name[:-3] for name in os.listdir(os.path.dirname(os.path.abspath(__file__))) if name.endswith(".py")}

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

#: The environment variable that marks the processes of a run (the cookie), and the
#: length of the server's own entry: the entry of each run fits in its place.
COOKIE_NAME = "ROLEWRIGHT_RUN"
COOKIE_SPACE = 128

#: The title of this process. The server sets it at its start.
TITLE: Title

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Call prctl(2) with one argument."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


#: How this interpreter opened its streams: name → encoding, errors, and whether
#: each line is written at once. Ansible changes some of these.
STREAMS = {name: (stream.encoding, stream.errors, stream.line_buffering)
           for name, stream in (("stdin", sys.stdin), ("stdout", sys.stdout), ("stderr", sys.stderr))}


class Cookie:
    """The memory of the cookie in this process's initial environment.

    /proc/PID/environ shows this memory and no other. A forked process has a copy
    of it, and writes its own cookie there. Changes of os.environ do not show in
    /proc until the process executes a program.
    """

    def __init__(self) -> None:
        entries = ctypes.POINTER(ctypes.c_void_p).in_dll(_libc, "environ")
        prefix = (COOKIE_NAME + "=").encode()
        index = 0
        while entries and entries[index]:
            text = ctypes.string_at(entries[index])
            if text.startswith(prefix) and len(text) >= COOKIE_SPACE:
                self._address, self._length = entries[index], len(text)
                return
            index += 1
        raise RuntimeError(f"{COOKIE_NAME} with {COOKIE_SPACE} bytes is not in the environment")

    def write(self, entry: bytes) -> None:
        """Replace the cookie by entry (NAME=VALUE), for other processes to read."""
        if len(entry) > self._length:
            raise ValueError("the cookie is too long")
        ctypes.memset(self._address, 0, self._length)
        ctypes.memmove(self._address, entry, len(entry))


class Title:
    """The memory of this process's arguments, as ps and /proc/PID/cmdline show them.

    The last argument of the server only makes this memory long enough.
    """

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        self._address, self._length = start, end - start

    def write(self, argv: list[str]) -> None:
        """Show argv as the arguments, as much of it as there is room for."""
        text = b"\0".join(os.fsencode(arg) for arg in argv)[: self._length - 1]
        ctypes.memset(self._address, 0, self._length)
        ctypes.memmove(self._address, text, len(text))


def close_from(first: int) -> None:
    """Close all file descriptors from first on."""
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def reset_signals() -> None:
    """Handle signals as a newly started interpreter does."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def reopen_stdio() -> None:
    """Replace sys.stdin, stdout and stderr by new objects for the descriptors 0, 1 and 2.

    The old objects come from the process before the fork: what their buffers
    contain is for that process to write.
    """
    for number, (name, (encoding, errors, lines)) in enumerate(STREAMS.items()):
        mode = "w" if number else "r"
        buffer = open(number, mode + "b", closefd=False)
        new = io.TextIOWrapper(buffer, encoding, errors, line_buffering=bool(lines or buffer.isatty()))
        new.mode = mode  # type: ignore[misc]
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def become_script(argv: list[str], path: list[str]) -> types.ModuleType:
    """Give this process the arguments and the search path of an interpreter that has
    been started with a script, and a new module __main__, which is returned. Forget
    the server's own modules: a library of the script may have the name of one of them.
    """
    while OWN:
        sys.modules.pop(OWN.pop(), None)
    TITLE.write([sys.executable, *argv])
    sys.argv = list(argv)
    sys.path[:] = [os.path.dirname(os.path.realpath(argv[0])), *path]
    main = types.ModuleType("__main__")
    main.__file__ = argv[0]
    main.__builtins__ = sys.modules["builtins"]
    sys.modules["__main__"] = main
    return main


def replace_environment(environment: dict[str, str]) -> None:
    """Replace the environment of this process and of the programs that it executes."""
    os.environ.clear()
    os.environ.update(environment)


def exit_code(error: SystemExit) -> int:
    """Return the exit code with which the interpreter would end after this
    exception, and print what it would print.
    """
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def finish(code: int) -> None:
    """End the process as the interpreter does: wait for threads, call exit
    handlers, flush output. It does not return.
    """
    import atexit
    import threading

    try:
        threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException:  # noqa: B902, as the interpreter: report, and end
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    os._exit(code)


def umask() -> str:
    """Return the umask of this process, in octal. os.umask would change it for a moment, in which threads may make files."""
    with open("/proc/self/status") as file:
        return next(line.split()[1] for line in file if line.startswith("Umask:"))


def bounds() -> tuple:
    """Return the resource limits, the priority and the CPUs of this process, which its children inherit."""
    limits = [resource.getrlimit(value) for name, value in sorted(vars(resource).items()) if name.startswith("RLIMIT_")]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)


def children(pid: int) -> list[int]:
    """Return the direct children of a process, as far as this user sees them in /proc."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and parent(int(name)) == pid:
            found.append(int(name))
    return found


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
