"""Executes modules on the connection "local" by forking instead of starting Python.

A command that does not match word for word is executed the ordinary way.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import socket
import stat
import sys
from typing import Any

import fences
import module
import process
import runtrace
import serverstate

#: A word as shlex.quote writes it.
WORD = r"""(?:[\w@%+=:,./-]+|(?:'[^']*'|"'")+)"""
#: A variable of the shell.
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: The end of a command up to ansible-core 2.20.
SLEEP = "(?: && sleep 0)?"
#: The command that executes a module: assignments, interpreter, file.
MODULE = re.compile(rf"((?:[A-Za-z_]\w*={WORD} )*)({WORD}) ({WORD}/AnsiballZ_[\w.]+\.py){SLEEP}")


#: The other commands that Ansible needs for a module: they find the home directory, make
#: a temporary directory, make it and the module executable, and remove the directory.
#: Only paths that need no quotes match.
PATH = r"(/[\w./-]+)"
HOME = re.compile(rf"echo ~(\w+){SLEEP}")
MAKE = re.compile(rf'\( umask 77 && mkdir -p "` echo {PATH} `"&& mkdir "` echo {PATH} `" && echo ([\w.-]+)="` echo {PATH} `" \){SLEEP}')
EXECUTABLE = re.compile(rf"chmod u\+(x|rwx) {PATH} {PATH}{SLEEP}")
REMOVE = re.compile(rf"rm -f -r {PATH} > /dev/null 2>&1{SLEEP}")


#: Why the last module that came here was not forked; the empty string if it was forked.
_why = "other"


def count_modules() -> None:
    """Count the modules of this run by how they are executed."""
    from ansible.plugins.action import ActionBase

    ordinary = ActionBase._execute_module

    def execute_module(self: ActionBase, *args: Any, **kwargs: Any) -> dict:
        global _why
        _why = "other"
        try:
            return ordinary(self, *args, **kwargs)
        finally:
            if _why and not fences.guarded():  # a guarded task gets a worker, which counts the module
                try:
                    way = unforked(self, bool(kwargs.get("wrap_async")))
                except Exception:  # noqa: B902, an error here must not replace the module's result
                    way = "other"
                runtrace.count("modules " + way)

    ActionBase._execute_module = execute_module


def unforked(action: Any, wrap_async: bool) -> str:
    """Return why a module was not forked, in the words of runtrace.COUNTED."""
    connection = action._connection
    if wrap_async or action._task.async_val:
        return "async"
    if connection.become is not None:
        return "become"
    if connection.transport != "local":
        return "connection"
    return "pipelining" if action._is_pipelining_enabled("new", wrap_async) else _why


def install(channel: socket.socket) -> None:
    """Let the connection plugin local have modules forked by module.serve, and
    do the work of the other commands for a module itself.
    """
    from ansible.plugins.connection import local

    count_modules()
    ordinary = local.Connection.exec_command
    # This process's session. Workers leave it from ansible-core 2.19 on; from 2.20 on, an option can keep them in it.
    session = os.getsid(0) if workers_detach() else None
    # The process that forks modules has the same bounds now. Later, a plugin may change those of this process.
    bounds = process.bounds()
    given = early()

    def exec_command(self: local.Connection, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        shell, script = (None, None) if in_data else shell_script(self, cmd)
        if shell is not None and script is not None:
            # Connect, as the ordinary method does first.
            super(local.Connection, self).exec_command(cmd, in_data=in_data, sudoable=sudoable)
            output = do(script)
            result = (0, output, b"") if output is not None else None
            request = recognise(self, shell, script, given) if result is None and usual(session, bounds) else None
            if request is not None:
                begun, fences.State.begun = fences.State.begun, True
                result = module.execute(channel, *request)
                if result is None:
                    fences.State.begun = begun
                elif fences.inside():
                    fences.State.unforked = 0
                runtrace.trace("module", "executed" if result is None else "forked", script)
                decline("other" if result is None else "")
            if result is not None:
                say(self, cmd)
                return result
        if fences.guarded():
            fences.State.unforked += 1
            raise fences.Unfit("action", "a command of the shell")
        runtrace.trace("command", cmd)
        return ordinary(self, cmd, in_data=in_data, sudoable=sudoable)

    local.Connection.exec_command = exec_command


def usual(session: int | None, bounds: tuple) -> bool:
    """Tell whether a forked module would be in the same kind of session, and have the same bounds, as a module that this
    process starts.
    """
    return (fences.inside() or os.getsid(0) != session) and process.bounds() == bounds


def early() -> dict[str, str]:
    """Return the current environment variables that have to be set before the interpreter of a module starts."""
    return {name: value for name, value in os.environ.items() if serverstate.is_early(name)}


def workers_detach() -> bool:
    """Tell whether this Ansible can give each worker its own session, as ansible-core does from 2.19 on."""
    from ansible.executor.process.worker import WorkerProcess

    return hasattr(WorkerProcess, "_detach")


def decline(why: str) -> None:
    """Remember why the current module is not forked; the empty string if it is."""
    global _why
    _why = why


def shell_script(self: Any, cmd: str) -> tuple[str, str] | tuple[None, None]:
    """Return the shell of a command and the script that it executes. Return (None, None) unless the command only starts a
    shell with -c as this user.
    """
    if not isinstance(cmd, str) or self.become is not None or self.cwd is not None and not os.path.isdir(self.cwd):
        return None, None
    try:
        words = shlex.split(cmd)
    except ValueError:
        return None, None
    # If BASH_ENV names a file, bash executes that file first.
    shells = ("/bin/sh",) if "BASH_ENV" in os.environ else ("/bin/sh", "/bin/bash")
    return (words[0], words[2]) if len(words) == 3 and words[0] in shells and words[1] == "-c" else (None, None)


def do(script: str) -> bytes | None:
    """Do what a script would do, and return its output. Return None if the script is
    not known, or if something is unusual or fails: then the shell can still execute
    the whole script.
    """
    if match := HOME.fullmatch(script):
        try:
            return os.fsencode(pwd.getpwnam(match[1]).pw_dir) + b"\n"
        except KeyError:
            return None
    if match := MAKE.fullmatch(script):
        base, made, name, shown = match.groups()
        if made != shown or os.path.dirname(made) != base or os.path.lexists(made):
            return None
        try:
            for directory in [*reversed(missing(base)), made]:
                os.mkdir(directory, 0o700)
        except OSError:
            return None
        if fences.guarded():
            fences.State.made.append(made)
        return os.fsencode(f"{name}={made}\n")
    if match := EXECUTABLE.fullmatch(script):
        bits = stat.S_IXUSR if match[1] == "x" else stat.S_IRWXU
        try:
            modes = [(path, stat.S_IMODE(os.stat(path).st_mode) | bits) for path in match.groups()[1:]]
            for path, mode in modes:
                os.chmod(path, mode)
        except OSError:
            return None
        return b""
    if (match := REMOVE.fullmatch(script)) and os.path.basename(match[1].rstrip("/")).startswith("ansible-tmp-"):
        try:
            shutil.rmtree(match[1])
        except OSError:
            return None
        return b""
    return None


def missing(path: str) -> list[str]:
    """Return the directories that do not exist, from the path upwards."""
    found = []
    while not os.path.isdir(path):
        found.append(path)
        path = os.path.dirname(path)
    return found


def say(self: Any, cmd: str) -> None:
    """Display what the ordinary way displays."""
    from ansible.utils.display import Display

    Display().vvv(f"EXEC {cmd}", host=self._play_context.remote_addr)


def is_own(interpreter: str, *others: str) -> bool:
    """Tell whether words name this interpreter, and nothing else. Any of its names in its own directory is accepted, because
    the directory determines where its libraries are.
    """
    own = sys.executable
    return not others and (interpreter == own or os.path.dirname(interpreter) == os.path.dirname(own)
                           and os.path.realpath(interpreter) == os.path.realpath(own))


def named(directory: str, name: str) -> str:
    """Return the PWD that a shell sets in a directory if it inherits name as PWD: name if this is an absolute path of the
    directory, else the real path.
    """
    try:
        kept = name.startswith("/") and os.path.samefile(name, directory)
    except OSError:
        kept = False
    return name if kept else os.path.realpath(directory)


def recognise(self: Any, shell: str, script: str, given: dict[str, str]) -> tuple[str, str, dict[str, str], str | None] | None:
    """Return the interpreter, the module file, the environment and the working directory with which
    a script executes a module. Return None if the script does something else, or if the module cannot
    be forked. given has the early variables of the process that forks modules.
    """
    match = MODULE.fullmatch(script)
    if match is None:
        return None
    interpreter, *others = shlex.split(match[2])
    if not is_own(interpreter, *others):
        decline("interpreter")
        return None
    environment = dict(os.environ)
    # Only some shells pass on variables whose names they do not accept. A plugin may have changed early variables.
    if not all(NAME.fullmatch(name) for name in environment) or early() != given:
        decline("environment")
        return None
    # The shell sets these.
    environment["PWD"] = named(os.fsdecode(self.cwd or os.getcwd()), environment.get("PWD", ""))
    if os.path.basename(os.path.realpath(shell)) == "bash":
        level = environment.get("SHLVL", "")
        environment.update(SHLVL=str(int(level) + 1 if level.isdecimal() and len(level) < 4 else 1), _=interpreter)
    for assignment in shlex.split(match[1]):
        name, _, value = assignment.partition("=")
        if serverstate.is_early(name):
            decline("environment")
            return None
        environment[name] = value
    (path,) = shlex.split(match[3])
    return interpreter, path, environment, self.cwd
