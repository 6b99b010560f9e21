"""vfork changes which function run_command gives to Python, and nothing else."""

import subprocess
import unittest
import unittest.mock
from typing import Any

import switches
import vfork

BEGIN = b"import os, signal, subprocess, sys\nPY2 = False\n\n\nclass Module:"
METHOD = b"\n    def run_command(self, args, umask=None, close_fds=True):"
END = b"""
        kwargs = dict(
            close_fds=close_fds,
            stdout=subprocess.PIPE,
            preexec_fn=preexec,
        )
        return subprocess.Popen(args, **kwargs).communicate()[0]
"""


def source(form: tuple[bytes, ...]) -> bytes:
    """Return a source with run_command in a form of vfork.FORMS."""
    return BEGIN + b"".join(form[:-1]) + METHOD + form[-1] + END.lstrip(b"\n")


def module(form: tuple[bytes, ...]) -> Any:
    """Return an object with the changed run_command."""
    code = vfork.compiled(source(form), "basic.py")
    assert code is not None
    names: dict = {}
    exec(code, names)
    return names["Module"]()


class Compiled(unittest.TestCase):
    def test_the_function_is_left_out_unless_it_is_needed(self) -> None:
        for form in vfork.FORMS:
            with unittest.mock.patch.object(subprocess, "Popen") as popen:
                for needed, arguments in ((False, {}), (False, {"umask": 0}), (True, {"umask": 0o27}), (True, {"close_fds": False})):
                    module(form).run_command(["true"], **arguments)
                    self.assertEqual(popen.call_args.kwargs["preexec_fn"] is not None, needed, arguments)

    def test_a_program_has_the_umask(self) -> None:
        for form in vfork.FORMS:
            self.assertEqual(module(form).run_command(["sh", "-c", "umask"], umask=0o137), b"0137\n")

    def test_another_form_is_left_alone(self) -> None:
        text = source(vfork.FORMS[0])
        for other in (text.replace(b"os.umask(umask)", b"os.umask(umask + 0)"), text.replace(b"if PY2", b"if not PY2"), text + END):
            self.assertIsNone(vfork.compiled(other, "basic.py"))
        with unittest.mock.patch.object(switches, "_off", {"vfork"}):
            self.assertIsNone(vfork.compiled(text, "basic.py"))
