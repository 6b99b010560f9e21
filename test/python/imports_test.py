"""The files of the fork server import one another without a cycle."""

import ast
import graphlib
import pathlib
import unittest

import process

FILES = {path.stem: path for path in pathlib.Path(process.__file__).parent.glob("*.py")}


def imported(path: pathlib.Path) -> set[str]:
    """Return the files of the fork server that a file imports, at its top or in a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names & FILES.keys()


class Imports(unittest.TestCase):
    def test_no_circle(self) -> None:
        graph = {name: imported(path) for name, path in FILES.items()}
        order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError
        self.assertEqual(set(order), FILES.keys())

    def test_leaves(self) -> None:
        leaves: dict[str, set[str]] = {name: set() for name in ("process", "runtrace", "ansiblefiles", "shared", "switches")}
        for name, allowed in {**leaves, "serverstate": {"process"}}.items():
            self.assertEqual(imported(FILES[name]), allowed, name)

    def test_only_the_server_imports_preload(self) -> None:
        self.assertEqual({name for name, path in FILES.items() if "preload" in imported(path)}, {"server"})
