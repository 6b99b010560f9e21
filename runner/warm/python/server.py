"""The fork server: an interpreter that has imported what runs need, and forks
for each of them.

It is started as a script, with the path of its socket, the process ID of the operator, which alone it
answers, with its children, and an argument that makes room for the titles of the processes that are forked:

    keeper  reaper of everything below; ends when nothing is left
      server  has the imports; listens, forks, reaps
        run head  one per run; reaper of the run's tree; says how the run ended
          ansible-runner
            ansible-playbook, its workers, the modules

The server itself runs nothing of a project: what a run does happens in the
forked processes, and ends with them.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import socket
import struct
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
#: The search path of a script that has no directory of its own.
PATH = sys.path[1:]
sys.path[0] = HERE

import process  # noqa: E402, before anything else is imported: few modules


def keep(path: str, operator: int) -> int:
    """Fork the server and return when nothing is left of it and its runs."""
    process.prctl(process.PR_SET_CHILD_SUBREAPER, 1)
    keeper = os.getpid()
    server = os.fork()
    if server == 0:
        process.prctl(process.PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != keeper:
            os._exit(1)
        return serve(path, operator)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(server, signal.SIGTERM))
    code = 1
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return code
        if pid == server:
            code = os.waitstatus_to_exitcode(status) & 0xFF
            # Its runs go on under this process, and there is no server left to end.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


#: How long a fork that failed waits before it is tried again, in seconds.
RETRY = 0.1


class Server:
    """The server's state: who leads a run, and who waits for its end."""

    def __init__(self, listener: socket.socket, operator: int) -> None:
        self.listener = listener
        self.operator = operator
        self.runheads: dict[int, socket.socket] = {}
        #: The connection that waits for its run head, while none can be forked.
        self.pending: socket.socket | None = None
        #: The connections of run heads that were killed, while something is left of them.
        self.bereft: list[socket.socket] = []
        self.stopping = False

    def accept(self) -> None:
        """Take a connection and fork a run head for it."""
        connection, _ = self.listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        # The operator, and the supervising processes that are its children. A run would ask for what outlives it.
        if uid != os.getuid() or self.operator not in (pid, process.parent(pid)):
            connection.close()
            return
        self.lead(connection)

    def lead(self, connection: socket.socket) -> None:
        """Fork a run head for a connection. While there is a lack of processes it waits:
        to its client that is a fork that comes late.
        """
        self.pending = connection
        try:
            pid = os.fork()
        except OSError:
            return
        self.pending = None
        if pid == 0:
            process.TITLE.write(["rolewright-run"])  # no server any more
            # The end of a connection says that its run has ended, not this one's;
            # and a client of a server that is gone must see the connection end.
            for other in (self.listener, *self.runheads.values(), *self.bereft):
                other.close()
            import runhead

            runhead.lead(connection)
        # Kept open until nothing is left of the run: the end of the connection
        # says so, however the run head ended.
        self.runheads[pid] = connection

    def reap(self) -> None:
        """Wait for those that have ended, without blocking."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            connection = self.runheads.pop(pid, None)
            if connection is not None and status != 0:
                self.bereft.append(connection)
            elif connection is not None:
                connection.close()
        if self.bereft and not self.kill_orphans():
            for connection in self.bereft:
                connection.close()
            self.bereft.clear()

    def kill_orphans(self) -> bool:
        """Kill what run heads have left that did not live to end it themselves, and tell
        whether there is something whose end is still to come: a signal says when.
        """
        orphans = [pid for pid in process.children(os.getpid()) if pid not in self.runheads]
        return any([kill(pid) for pid in orphans])

    def stop(self, *_: object) -> None:
        """Take no more runs."""
        self.stopping = True


def kill(pid: int) -> bool:
    """Kill a process, and tell whether that can be done."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (PermissionError, ProcessLookupError):
        return False
    return True


def serve(path: str, operator: int) -> int:
    """Import, then fork for each connection, until a signal stops it."""
    process.prctl(process.PR_SET_CHILD_SUBREAPER, 1)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    umask = os.umask(0o177)
    listener.bind(path)
    os.umask(umask)
    listener.listen(1024)  # more than there are runs at a time: beyond that a connection is refused

    import immortal
    import preload
    import serverabout
    import switches

    process.TITLE = process.Title()
    process.TITLE.write([sys.executable, "rolewright-fork-server", path])
    switches.read()
    serverabout.judge()
    preload.load(PATH)
    immortal.make()
    gc.collect()
    gc.freeze()

    server = Server(listener, operator)
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, server.stop)
    while server.runheads or server.bereft or not server.stopping:
        wanted: list[int | socket.socket] = [wake_read] if server.stopping or server.pending else [wake_read, listener]
        try:
            ready, _, _ = select.select(wanted, [], [], RETRY if server.pending else None)
        except OSError as error:
            if error.errno == errno.EINTR:
                continue
            raise
        if wake_read in ready:
            try:
                os.read(wake_read, 512)
            except BlockingIOError:
                pass
            server.reap()
        if server.pending:
            server.lead(server.pending)
        elif listener in ready and not server.stopping:
            server.accept()
    return 0


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1], int(sys.argv[2])))
