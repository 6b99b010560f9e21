"""If no process can be forked, the processes of the fork server keep running. None waits for a process that does not die."""

import errno
import os
import signal
import socket
import sys
import tempfile
import types
import unittest
import unittest.mock

import module
import playbook
import process
import runhead

with unittest.mock.patch.object(sys, "path", list(sys.path)):  # server.py is a script, and changes sys.path
    import server

#: The error of os.fork when processes are used up.
LACK = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def fork_fails(*then: int) -> unittest.mock._patch:
    """Return a patch that lets forks fail: all of them, or only the first, if the results of the next ones are given."""
    return unittest.mock.patch.object(os, "fork", side_effect=[LACK, *then] if then else LACK)


def child(*argv: str) -> int:
    """Start a program in a child of this process."""
    pid = os.fork()
    if pid == 0:
        os.execvp(argv[0], argv)
    return pid


class Server(unittest.TestCase):
    def setUp(self) -> None:
        self.ours, theirs = socket.socketpair()
        self.addCleanup(self.ours.close)
        listener = unittest.mock.Mock()
        listener.accept.return_value = theirs, None
        self.server = server.Server(listener, os.getpid())

    def test_waits_for_a_run_head(self) -> None:
        with fork_fails(1 << 30):
            self.server.accept()
            self.assertEqual(self.server.runheads, {})
            self.server.lead(self.server.pending)
        self.assertIsNone(self.server.pending)
        self.server.runheads.pop(1 << 30).close()

    def test_waits_for_no_orphan(self) -> None:
        head, orphan = child("false"), child("sleep", "60")
        os.waitid(os.P_PID, head, os.WEXITED | os.WNOWAIT)
        with unittest.mock.patch.object(os, "fork", return_value=head):
            self.server.accept()
        signal.signal(signal.SIGALRM, lambda *_: self.fail("it waits for the orphan"))
        with unittest.mock.patch.object(os, "kill"):  # as if it were in a system call that does not end
            signal.alarm(20)
            self.server.reap()
            signal.alarm(0)
        self.assertRaises(BlockingIOError, self.ours.recv, 1, socket.MSG_DONTWAIT)
        self.server.reap()
        os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
        self.server.reap()
        self.assertEqual(self.ours.recv(1), b"")


class RunHead(unittest.TestCase):
    def test_waits_for_the_command_while_the_client_does(self) -> None:
        client, connection = socket.socketpair()
        with connection:
            with fork_fails(1 << 30):
                self.assertEqual(runhead.fork(connection), 1 << 30)
            client.close()
            with fork_fails():
                self.assertIsNone(runhead.fork(connection))

    def test_looks_at_what_does_not_die_ever_more_seldom(self) -> None:
        first, second, pauses = child("sleep", "60"), 0, []

        def sleep(seconds: float) -> None:
            nonlocal second
            pauses.append(seconds)
            if len(pauses) == 9:
                second = child("sleep", "60")
            if len(pauses) == 12:
                for pid in (first, second):
                    kill(pid, signal.SIGKILL)
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

        kill = os.kill
        with unittest.mock.patch.object(os, "kill"), unittest.mock.patch.object(runhead.time, "sleep", sleep):
            self.assertEqual(runhead.kill_rest(), (2, []))
        growing = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05, 0.05]
        self.assertEqual(pauses, growing + growing[:3])

    def test_names_what_does_not_die_at_all(self) -> None:
        stuck, kill = child("sleep", "60"), os.kill
        with unittest.mock.patch.object(os, "kill"), unittest.mock.patch.object(runhead.time, "sleep"):
            signal.alarm(60)
            self.assertEqual(runhead.kill_rest(), (1, [stuck]))
            signal.alarm(0)
        kill(stuck, signal.SIGKILL)
        os.waitpid(stuck, 0)


class Modules(unittest.TestCase):
    def setUp(self) -> None:
        file = tempfile.NamedTemporaryFile(suffix=".py")
        self.addCleanup(file.close)
        file.write(b"#!/usr/bin/python3\n_ANSIBALLZ_WRAPPER = True\n")
        file.flush()
        self.path = file.name

    def test_go_the_ordinary_way(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            with fork_fails(), unittest.mock.patch.object(module, "forget_controller"), \
                    unittest.mock.patch.object(process, "TITLE", create=True):
                module.serve(theirs)
        theirs.close()
        for _ in range(2):
            self.assertIsNone(module.execute(ours, sys.executable, self.path, {}, None))
        ours.close()
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_go_the_ordinary_way_where_nothing_forks_them(self) -> None:
        results = []
        cli = types.ModuleType("ansible.cli.playbook")
        cli.main = lambda argv: results.append(module.execute(self.channel, sys.executable, self.path, {}, None))
        with unittest.mock.patch.dict(sys.modules, {"ansible": cli, "ansible.cli": cli, "ansible.cli.playbook": cli}), \
                unittest.mock.patch("playbook.connection.install", lambda channel: setattr(self, "channel", channel)), fork_fails():
            self.assertEqual(playbook.run([]), 0)
        self.assertEqual(results, [None])
