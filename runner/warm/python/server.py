"""The fork server: an interpreter that has imported what runs need, and forks a
process for each run.

It is started as a script with three arguments: the path of its socket, the process ID
of the operator (it answers only the operator and its children), and spaces that make
room for the titles of forked processes. Its processes are:

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
#: The search path of this interpreter, without the directory of the script.
PATH = sys.path[1:]
sys.path[0] = HERE

import process  # noqa: E402, before anything else is imported: few modules


def keep(path: str, operator: int) -> int:
    """Fork the server. Return its exit code when nothing is left of it and its runs."""
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
            # Its runs continue below this process. SIGTERM has no server to end any more.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


#: How long to wait after a failed fork before the next attempt, in seconds.
RETRY = 0.1


class Server:
    """The server's state: the run heads, and the connections of the clients that wait for the ends of runs."""

    def __init__(self, listener: socket.socket, operator: int) -> None:
        self.listener = listener
        self.operator = operator
        self.runheads: dict[int, socket.socket] = {}
        #: The connection for which no run head could be forked yet.
        self.pending: socket.socket | None = None
        #: The connections of run heads that were killed or failed, while processes of their runs are left.
        self.bereft: list[socket.socket] = []
        self.stopping = False

    def accept(self) -> None:
        """Take a connection and fork a run head for it."""
        connection, _ = self.listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        # Only the operator and its children, the supervisors, may ask. A run could ask for processes that outlive it.
        if uid != os.getuid() or self.operator not in (pid, process.parent(pid)):
            connection.close()
            return
        self.lead(connection)

    def lead(self, connection: socket.socket) -> None:
        """Fork a run head for a connection. If processes are used up, the connection stays
        pending, and its fork comes late.
        """
        self.pending = connection
        try:
            pid = os.fork()
        except OSError:
            return
        self.pending = None
        if pid == 0:
            process.TITLE.write(["rolewright-run"])  # it is not the server any more
            # A connection that ends tells its client that its run has ended, so no other
            # run may keep it open. And if the server dies, connections that it has not
            # accepted must end: so no run may keep the listener open.
            for other in (self.listener, *self.runheads.values(), *self.bereft):
                other.close()
            import runhead

            runhead.lead(connection)
        # The connection stays open until nothing is left of the run: its end tells
        # the client so, however the run head ended.
        self.runheads[pid] = connection

    def reap(self) -> None:
        """Reap the children that have ended, and close the connections of runs of which nothing is left."""
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
        """Kill what run heads have left that could not kill it themselves. Tell whether
        something is left that will end: SIGCHLD then says when.
        """
        orphans = [pid for pid in process.children(os.getpid()) if pid not in self.runheads]
        return any([kill(pid) for pid in orphans])

    def stop(self, *_: object) -> None:
        """Accept no more runs."""
        self.stopping = True


def kill(pid: int) -> bool:
    """Kill a process, and tell whether that was possible."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (PermissionError, ProcessLookupError):
        return False
    return True


def serve(path: str, operator: int) -> int:
    """Import what runs need, then fork for each connection. Return when SIGTERM has come and all runs have ended."""
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
