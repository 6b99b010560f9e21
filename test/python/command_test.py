"""Test that Spawn of command.py reads all output of a child that has already ended."""

import io
import os
import sys
import types
import unittest

import pexpect

import command


class Spawn(unittest.TestCase):
    def setUp(self) -> None:
        # patch_spawn only replaces the name pexpect in ansible_runner.runner.
        package, runner = types.ModuleType("ansible_runner"), types.ModuleType("ansible_runner.runner")
        package.runner = runner
        before = {name: sys.modules.get(name) for name in ("ansible_runner", "ansible_runner.runner")}
        sys.modules.update({"ansible_runner": package, "ansible_runner.runner": runner})
        command.patch_spawn()
        self.spawn = runner.pexpect.spawn
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module

    def output(self, spawn) -> str:
        """Return the output that spawn reads from a child that ends before anything is read."""
        log = io.StringIO()
        child = spawn("/bin/sh", ["-c", "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done; echo last"], encoding="utf-8")
        child.logfile_read = log
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        self.assertFalse(child.isalive())
        child.close()
        return log.getvalue()

    def test_reads_to_the_end(self) -> None:
        text = self.output(self.spawn)
        self.assertTrue(text.startswith("line 0\r\n"), text)
        self.assertTrue(text.endswith("line 199\r\nlast\r\n"), text)

    def test_pexpect_does_not(self) -> None:
        self.assertEqual(self.output(pexpect.spawn), "", "Spawn is not needed any more")

    def test_exit_code(self) -> None:
        child = self.spawn("/bin/sh", ["-c", "exit 3"], encoding="utf-8")
        child.expect(pexpect.EOF)
        child.close()
        self.assertEqual(child.exitstatus, 3)
