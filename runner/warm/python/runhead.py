"""The run head: the reaper of the run's process tree.

It forks ansible-runner, and stops it when the client says so or has gone. It then
kills all processes that ansible-runner leaves behind, and reports how ansible-runner
ended. It adopts all orphans below it, so when it has no children, it has no
descendants: that is how it knows that nothing is left.

Protocol, on a unix stream socket: the client sends a length (4 bytes, big
endian), together with the descriptor of the output file, and then as many bytes of
JSON: {"args", "env", "cookie", "grace", "trace", "group"}. The run head answers with
lines of JSON: {"pid"} when it has forked the process that becomes the command, and
{"code", "signal", "killed", "survivors", "notes", "cpu"} when nothing is left; or
{"refused"}. The client sends G to start the command, so that nothing runs for a client
that has given up waiting, T for SIGTERM and K for SIGKILL. To the request {"ping"}, the
run head answers with serverabout.about.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

import command
import process
import runtrace
import serverabout
import serverstate


def lead(connection: socket.socket) -> None:
    """Serve one connection, in a process of its own. It does not return."""
    code = 1
    try:
        process.reset_signals()
        run(connection)
        code = 0
    except BaseException:  # noqa: B902, this process must not go on as another
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def receive(connection: socket.socket) -> tuple[dict, int]:
    """Return the request and the descriptor of the output file. Raise EOFError if the client closes the connection."""
    connection.settimeout(10)
    header, descriptors, _, _ = socket.recv_fds(connection, 4, 1)
    while 0 < len(header) < 4:
        header += connection.recv(4 - len(header))
    if not header:
        raise EOFError
    (left,) = struct.unpack(">I", header)
    parts = []
    while left > 0:
        part = connection.recv(min(left, 1 << 16))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    connection.settimeout(None)
    return json.loads(b"".join(parts)), descriptors[0] if descriptors else -1


def run(connection: socket.socket) -> None:
    """Serve one request."""
    try:
        request, output = receive(connection)
    except EOFError:
        return
    if "ping" in request:
        send(connection, serverabout.about())
        return
    process.prctl(process.PR_SET_CHILD_SUBREAPER, 1)
    process.TITLE.write(["rolewright-run", *request["args"]])
    os.setsid()
    serverstate.COOKIE.write(request["cookie"].encode())
    request["env"].update({name: value for name, value in serverstate.COERCED.items() if name not in request["env"]})
    if beside_ansible(request["env"]) != beside_ansible(serverstate.ENVIRONMENT):
        send(connection, {"refused": "the environment is not that of the server"})
        return

    runtrace.begin_run(request["trace"])
    head = os.getpid()
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    word_read, word_write = os.pipe2(os.O_CLOEXEC)
    command = fork(connection)
    if command == 0:
        os.close(word_write)
        become_command(request, output, head, word_read)
    if command is None:
        return
    os.close(output)
    send(connection, {"pid": head})
    if connection.recv(1) != b"G":
        return  # the other process then reads the end of the pipe, and exits
    os.write(word_write, b"G")
    status = Watch(connection, wake_read, command, request["grace"]).wait()
    killed, survivors = kill_rest()
    code = os.waitstatus_to_exitcode(status)
    runtrace.trace_usage("runhead")
    end = {"code": max(code, -1), "signal": -code if code < 0 else 0, "killed": killed, "survivors": survivors,
           "notes": runtrace.notes(), "cpu": cpu()}
    send(connection, end)


#: How long to wait after a failed fork before the next attempt, in seconds.
RETRY = 0.1


def fork(connection: socket.socket) -> int | None:
    """Fork, and try again while processes are used up. Return None if the client gives up first."""
    while True:
        try:
            return os.fork()
        except OSError:
            if select.select([connection], [], [], RETRY)[0]:
                return None


def cpu() -> int:
    """Return the CPU time of this process and of the children that it has waited for, in milliseconds."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(1000 * sum(usage.ru_utime + usage.ru_stime for usage in usages))


def beside_ansible(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that are not for Ansible. playbook.unsuited decides about Ansible's later."""
    return {name: value for name, value in environment.items() if not name.startswith("ANSIBLE_")}


def become_command(request: dict, output: int, head: int, word: int) -> None:
    """Become ansible-runner when the pipe says so. It does not return."""
    process.reset_signals()
    process.prctl(process.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != head:
        os._exit(1)
    if os.read(word, 1) != b"G":
        os._exit(1)
    os.setsid()
    join(request["group"])
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    process.close_from(3)

    command.main(request["args"], dict(request["env"]), request["cookie"])


def join(group: str) -> None:
    """Move this process to a control group. If that is forbidden, its descendants
    are found without the group.
    """
    if group:
        try:
            with open(os.path.join(group, "cgroup.procs"), "w") as file:
                file.write("0")
        except OSError:
            pass


def send(connection: socket.socket, message: dict) -> None:
    """Send a message as a line of JSON. It is no error if the client has gone: the run ends all the same."""
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        pass


class Watch:
    """Waits for the command, and sends it the signals that the client asks for."""

    def __init__(self, connection: socket.socket, wake: int, command: int, grace: float) -> None:
        self.connection, self.wake, self.command, self.grace = connection, wake, command, grace
        self.deadline: float | None = None

    def wait(self) -> int:
        """Return the wait status of the command."""
        wanted: list = [self.wake, self.connection]
        while True:
            timeout = None if self.deadline is None else max(0, self.deadline - time.monotonic())
            ready, _, _ = select.select(wanted, [], [], timeout)
            if not ready:
                self.deadline = None
                os.kill(self.command, signal.SIGKILL)
            if self.connection in ready and not self.obey():
                wanted.remove(self.connection)
            if self.wake in ready:
                try:
                    os.read(self.wake, 512)
                except BlockingIOError:
                    pass
                status = self.reap()
                if status is not None:
                    return status

    def obey(self) -> bool:
        """Do what the client says, and tell whether it may say more. If it has gone, stop the command."""
        try:
            words = self.connection.recv(16)
        except OSError:
            words = b""
        if not words or b"T" in words:
            os.kill(self.command, signal.SIGTERM)
        if not words:
            self.deadline = time.monotonic() + self.grace
        if b"K" in words:
            os.kill(self.command, signal.SIGKILL)
        return bool(words)

    def reap(self) -> int | None:
        """Reap orphans; return the wait status of the command if it has ended."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == self.command:
                return status
            if pid == 0:
                return None


#: How long to wait for processes that this user may not kill, in seconds.
PATIENCE = 1.0
#: How often the same processes are found again after SIGKILL before they are given up: for half a minute. The kernel lets
#: each of them wait for a disk or a server.
STUCK = 600
#: The first and the longest pause between two searches for what is left, in seconds. A search reads /proc of all processes.
PAUSES = 0.001, 0.05


def kill_rest() -> tuple[int, list[int]]:
    """Kill all descendants until there are none. Return how many were killed, and
    the PIDs of those that may not be killed, or do not end.
    """
    me = os.getpid()
    killed: set[int] = set()
    deadline: float | None = None
    pause = PAUSES[0]
    before: list[int] = []
    stuck = 0
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return len(killed), []
        denied = []
        living = process.children(me)
        for pid in living:
            try:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            except PermissionError:
                denied.append(pid)
            except ProcessLookupError:
                pass
        if denied and len(denied) == len(living):
            deadline = deadline or time.monotonic() + PATIENCE
            if time.monotonic() > deadline:
                return len(killed), denied
        stuck = stuck + 1 if living and living == before else 0
        if stuck > STUCK:
            return len(killed), living
        pause = min(2 * pause, PAUSES[1]) if living == before else PAUSES[0]
        before = living
        time.sleep(pause)
