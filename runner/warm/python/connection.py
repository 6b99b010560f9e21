"""Executes modules on the connection "local" by forking instead of starting Python.

What is not recognised word for word goes the ordinary way.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys

import module

#: A word as shlex.quote writes it.
WORD = r"""(?:[\w@%+=:,./-]+|(?:'[^']*'|"'")+)"""
#: What Ansible makes of a module: assignments, interpreter, file.
MODULE = re.compile(rf"((?:[A-Za-z_]\w*={WORD} )*)({WORD}) ({WORD}/AnsiballZ_[\w.]+\.py) && sleep 0")


def install(channel: socket.socket) -> None:
    """Let the connection plugin local execute modules through module.serve."""
    from ansible.plugins.connection import local

    ordinary = local.Connection.exec_command

    def exec_command(self: local.Connection, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        request = None if in_data else recognise(self, cmd)
        if request is not None:
            say(self, cmd)
            result = module.execute(channel, *request)
            if result is not None:
                return result
        return ordinary(self, cmd, in_data=in_data, sudoable=sudoable)

    local.Connection.exec_command = exec_command


def say(self: object, cmd: str) -> None:
    """Display what the ordinary way displays."""
    from ansible.utils.display import Display

    Display().vvv(f"EXEC {cmd}", host=self._play_context.remote_addr)


def recognise(self: object, cmd: str) -> tuple[str, dict[str, str], str | None] | None:
    """Return the file of a module, the environment and the directory to execute
    it in; None if cmd is anything else.
    """
    if not isinstance(cmd, str) or self.become is not None:
        return None
    try:
        words = shlex.split(cmd)
    except ValueError:
        return None
    if len(words) != 3 or words[:2] != ["/bin/sh", "-c"]:
        return None
    match = MODULE.fullmatch(words[2])
    if match is None or shlex.split(match[2]) != [sys.executable]:
        return None
    environment = dict(os.environ)
    for assignment in shlex.split(match[1]):
        name, _, value = assignment.partition("=")
        if module.is_early(name):
            return None
        environment[name] = value
    (path,) = shlex.split(match[3])
    return path, environment, self.cwd
