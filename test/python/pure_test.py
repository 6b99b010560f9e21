"""What of the fork server needs no Ansible."""

import ast
import os
import unittest

import connection
import preload
import runtrace
import serverstate


class Notes(unittest.TestCase):
    def test_of_a_run(self) -> None:
        runtrace.begin_run("")
        self.assertEqual(runtrace.notes(), "")
        runtrace.trace("playbook executed:", "LANG")
        for way in ("forked", "pipelining", "forked"):
            runtrace.count(way)
        self.assertEqual(runtrace.notes(), "playbook executed: LANG\nmodules forked: 2\nmodules pipelining: 1")


class Early(unittest.TestCase):
    def test_names(self) -> None:
        for name, early in {"PYTHONPATH": True, "LC_ALL": True, "HOME": True, "K8S_AUTH_KUBECONFIG": False, "MY_LANG": False}.items():
            self.assertEqual(serverstate.is_early(name), early, name)


class Prune(unittest.TestCase):
    def test_keeps_what_ansible_looks_at(self) -> None:
        source = "import os\nMETADATA = 1\nother = 2\ntry:\n    import yaml\nexcept ImportError:\n    pass\ndef f():\n    from a import b\n"
        self.assertEqual(ast.unparse(ast.fix_missing_locations(preload.prune(ast.parse(source)))).split("\n"),
                         ["import os", "METADATA = 1", "if True:", "    import yaml", "    from a import b"])


class Do(unittest.TestCase):
    def test_only_the_usual_commands(self) -> None:
        for script in ("rm -rf /", "rm -f -r /tmp/other > /dev/null 2>&1 && sleep 0", "chmod u+x /nowhere /nowhere/x && sleep 0", "echo ~; id && sleep 0"):
            self.assertIsNone(connection.do(script), script)
        self.assertEqual(connection.do("echo ~root && sleep 0"), os.fsencode(os.path.expanduser("~root")) + b"\n")
