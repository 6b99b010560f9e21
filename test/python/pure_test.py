"""Test the parts of the fork server that need no Ansible."""

import ast
import base64
import copy
import io
import os
import re
import subprocess
import tempfile
import unittest
import unittest.mock
import zipfile

import connection
import lazycopy
import module
import preload
import prepared
import proof
import runtrace
import serverstate
import switches


class Notes(unittest.TestCase):
    def test_of_a_run(self) -> None:
        runtrace.begin_run("")
        self.assertEqual(runtrace.notes(), "")
        runtrace.trace("playbook executed:", "LANG")
        for way in ("forked", "pipelining", "forked"):
            runtrace.count(f"modules {way}")
        self.assertEqual(runtrace.notes(), "playbook executed: LANG\nmodules forked: 2\nmodules pipelining: 1")


class Early(unittest.TestCase):
    def test_names(self) -> None:
        for name, early in {"PYTHONPATH": True, "LC_ALL": True, "HOME": True, "K8S_AUTH_KUBECONFIG": False, "MY_LANG": False}.items():
            self.assertEqual(serverstate.is_early(name), early, name)


class Prune(unittest.TestCase):
    def test_keeps_what_ansible_looks_at(self) -> None:
        source = "import os\nMETADATA = 1\nother = 2\nscript = E.embed('a', 'b')\n" \
            "try:\n    import yaml\nexcept ImportError:\n    pass\ndef f():\n    from a import b\n"
        self.assertEqual(ast.unparse(ast.fix_missing_locations(preload.prune(ast.parse(source)))).split("\n"),
                         ["import os", "METADATA = 1", "script = E.embed('a', 'b')", "if True:", "    import yaml", "    from a import b"])


class Do(unittest.TestCase):
    def test_only_the_usual_commands(self) -> None:
        for script in ("rm -rf /", "rm -f -r /tmp/other > /dev/null 2>&1 && sleep 0", "chmod u+x /nowhere /nowhere/x && sleep 0", "echo ~; id && sleep 0"):
            self.assertIsNone(connection.do(script), script)
        for script in ("echo ~root && sleep 0", "echo ~root"):  # as up to ansible-core 2.20, and from 2.21 on
            self.assertEqual(connection.do(script), os.fsencode(os.path.expanduser("~root")) + b"\n", script)


class Named(unittest.TestCase):
    def test_as_a_shell_names_its_directory(self) -> None:
        with tempfile.TemporaryDirectory() as base:
            directory, link = os.path.join(base, "directory"), os.path.join(base, "link")
            os.mkdir(directory)
            os.symlink(directory, link)
            for name in (directory, link, link + "/.", base, os.path.join(base, "none"), ".", ""):
                for shell in ("/bin/sh", "/bin/bash"):
                    said = subprocess.check_output([shell, "-c", "printenv PWD && sleep 0"], cwd=link, env={"PATH": os.environ["PATH"], "PWD": name})
                    self.assertEqual(connection.named(link, name), os.fsdecode(said).rstrip("\n"), f"{shell}, {name}")


class Switches(unittest.TestCase):
    def tearDown(self) -> None:
        switches._off.clear()

    def test_turns_off(self) -> None:
        self.assertFalse(switches.without("turbo"))
        with unittest.mock.patch.dict(os.environ, {switches.VARIABLE: " turbo,"}):
            switches.read()
            self.assertNotIn(switches.VARIABLE, os.environ)
        self.assertTrue(switches.without("turbo"))

    def test_unknown_names(self) -> None:
        with unittest.mock.patch.dict(os.environ, {switches.VARIABLE: "turbo,other"}):
            with self.assertRaisesRegex(SystemExit, "unknown names: other; there are: .*turbo"):
                switches.read()
        with self.assertRaises(LookupError):
            switches.without("other")


class Places(unittest.TestCase):
    def test_of_libraries(self) -> None:
        for name, line, elsewhere in (
                ("turbo/common.py", "            ansiblez_path = sys.path[0]", False),
                ("turbo/server.py", "            sys.path.insert(0, self.ansiblez_path)", False),
                ("turbo/server.py", "            sys.path.insert(0, '/opt')", True),
                ("turbo/server.py", "            sys.path.insert(0, self.ansiblez_path); sys.path.insert(0, '/opt')", True),
                ("other/server.py", "            sys.path.insert(0, self.ansiblez_path)", True),
                ("other/server.py", "import os", False)):
            name = "ansible_collections/cloud/common/plugins/module_utils/" + name
            self.assertEqual(module.names_places(name, f"import sys\n{line}\n".encode(), True), elsewhere, (name, line))
        self.assertTrue(module.names_places(module.TURBO + "common.py", b"ansiblez_path = sys.path[0]", False), "turbo mode is used")
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(module.KUBERNETES + "k8s.py", "")
            file.writestr(module.TURBO + "common.py", "            ansiblez_path = sys.path[0]")
        content = base64.b64encode(archive.getvalue())
        for usual in (set(), {serverstate.key(content)}):
            with unittest.mock.patch.object(prepared, "USUAL", usual):
                self.assertFalse(module.looks_elsewhere(content))
                with unittest.mock.patch.dict(os.environ, {"ENABLE_TURBO_MODE": "true"}):
                    self.assertTrue(module.looks_elsewhere(content), "turbo mode is used")
        switches._off.add("turbo")
        self.addCleanup(switches._off.clear)
        self.assertTrue(module.names_places(module.TURBO + "common.py", b"ansiblez_path = sys.path[0]", True))


class Copies(unittest.TestCase):
    """lazycopy.Copy behaves like the result of copy.deepcopy."""

    def test_is_a_copy(self) -> None:
        shared = [1]
        original = {"a": shared, "b": {"c": shared}, "d": "text"}
        original["self"] = original
        made = lazycopy.deepcopy(original)
        made["a"].append(2)
        self.assertEqual(made["b"], {"c": [1, 2]}, "what two values share, their copies share")
        self.assertIs(made["self"], made)
        self.assertEqual(shared, [1])

    def test_copies_what_is_read(self) -> None:
        class Value:
            copied = 0

            def __deepcopy__(self, memo: dict) -> str:
                Value.copied += 1
                return "copy"

        reads = (lambda d: d["a"], lambda d: d.get("a"), lambda d: d.copy()["a"], lambda d: dict(d)["a"], lambda d: {**d}["a"],
                 lambda d: dict(d.items())["a"], lambda d: next(iter(d.values())), lambda d: d.pop("a"), lambda d: d.setdefault("a", 1),
                 lambda d: (d | {})["a"], lambda d: copy.deepcopy(d)["a"])
        for number, read in enumerate(reads):
            made = lazycopy.deepcopy({"a": Value()})
            self.assertEqual(Value.copied, 0)
            self.assertEqual(read(made), "copy", number)
            Value.copied = 0

    def test_what_is_set_is_kept(self) -> None:
        value: list = []
        made = lazycopy.deepcopy({"a": 1})
        made.update({"a": value}, b=value)
        self.assertIs(made["a"], value)
        self.assertIs(made.get("b"), value)
        self.assertIsNone(made.get("c"))


class Proof(unittest.TestCase):
    def test_digests_see_code_only(self) -> None:
        def of(source: str) -> str:
            return repr([proof.normal(part) for part in proof.definitions(ast.parse(source), ["C", "f"])])

        same = of("class C:\n    def f(self, a=1):\n        return a\n")
        self.assertEqual(same, of(
            "try:\n  class C:\n    'x'\n    def f(self, a: int = 1) -> int:\n        \"\"\"Doc.\"\"\"\n        return (a)  # yes\nexcept E: pass\n"))
        self.assertNotEqual(same, of("class C:\n    def f(self, a=2):\n        return a\n"))
        self.assertEqual(of("class D:\n    def f(self): pass\n"), "[]")

    def test_settings_that_imports_read(self) -> None:
        source = "import ansible.constants as K\nfrom ansible import constants as C\nfrom ansible.constants import A\n" \
            "x = C.B\nclass D:\n    e = lambda: C.INNER\n    f = K.E\n    def g(self, h=C.H):\n        return C.INNER, x.OTHER\n"
        self.assertEqual(proof.read_at_import(ast.parse(source)), {"A", "B", "E", "H"})

    def test_proof_finds_sources(self) -> None:
        for name in proof.NAMES:
            top = re.split("[.:]", name)[0]
            if top not in ("ansible", "ansible_runner", "kubernetes"):
                self.assertIsNotNone(proof.source_of(top), top)
        self.assertIsNone(proof.source_of("no_such_package"))
