"""Templates that are compiled once in a run, where Ansible compiles them in each task, and conditions twice."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import ansiblefiles
import inprocess
import switches

#: How many compiled templates are kept, and the longest source of one, in characters.
MOST = 2000
LONGEST = 1 << 18
#: What of an environment has a part in what a source is compiled to.
SETTINGS = ("block_start_string", "block_end_string", "variable_start_string", "variable_end_string", "comment_start_string",
            "comment_end_string", "line_statement_prefix", "line_comment_prefix", "trim_blocks", "lstrip_blocks", "newline_sequence",
            "keep_trailing_newline", "optimized", "autoescape", "is_async")


def install() -> None:
    """Keep what the templates of this run are compiled to. Until ansible-core 2.18: from 2.19 on, the code of a template
    has the place of its constants, and is compiled once for a condition.
    """
    import jinja2

    if ansiblefiles.has_engine() or switches.without("templates"):
        return
    keep_compiled(jinja2.Environment)
    keep_conditions(jinja2.Environment)


def keep_compiled(environment: Any) -> None:
    """Keep the code of templates without what is computed when they are compiled."""
    import ansible.plugins.loader as loader

    ordinary = environment.compile
    kept: dict[tuple, types.CodeType] = {}

    def compile(self: Any, source: Any, name: Any = None, filename: Any = None, raw: bool = False, defer_init: bool = False) -> Any:
        if not isinstance(source, str) or raw or defer_init or len(source) > LONGEST:
            return ordinary(self, source, name, filename, raw, defer_init)
        # How a filter is called depends on what it is, and roles add some.
        places = len(loader.filter_loader._extra_dirs), len(loader.test_loader._extra_dirs)
        key = (type(self), source, name, filename, places, *settings(self))
        if (code := kept.get(key)) is not None:
            return code
        # An error comes of the ordinary way, and has no other as its context.
        tree = None
        with contextlib.suppress(Exception):
            tree = self._parse(source, name, filename)
        keep = tree is not None and len(kept) < MOST and not folds(tree) and inprocess.reached(tree) is None
        if keep:
            with contextlib.suppress(Exception):
                kept[key] = code = ordinary(self, tree, name, filename)
                return code
        return ordinary(self, source, name, filename)

    environment.compile = compile


def settings(environment: Any) -> tuple:
    """Return what of an environment has a part in what is compiled."""
    return (*(getattr(environment, name) for name in SETTINGS), tuple(environment.extensions))


def folds(tree: Any) -> bool:
    """Tell whether a filter, test or call may be computed when the template is compiled: one that has no variable."""
    from jinja2 import nodes

    return any(next(node.find_all(nodes.Name), None) is None for node in tree.find_all((nodes.Filter, nodes.Test)) if node.node is not None)


def keep_conditions(environment: Any) -> None:
    """Keep what Ansible makes of a condition only to look for what it forbids."""
    import ast

    import ansible.playbook.conditional as conditional

    parse, generate = environment.parse, conditional.generate
    parsed: dict[tuple, Any] = {}
    generated: dict[int, str] = {}
    trees: dict[str, ast.AST] = {}

    def parse_once(self: Any, source: str, name: Any = None, filename: Any = None) -> Any:
        key = (type(self), source, name, filename, *settings(self))
        if key not in parsed:
            if len(parsed) == MOST:
                parsed.clear()
                generated.clear()
                trees.clear()
            parsed[key] = parse(self, source, name, filename)
        return parsed[key]

    def generate_once(tree: Any, *args: Any) -> str:
        if id(tree) not in generated:  # parsed has the tree
            generated[id(tree)] = generate(tree, *args)
        return generated[id(tree)]

    class Ast:
        """The module ast, as conditional uses it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ast, name)

        @staticmethod
        def parse(source: str, mode: str = "exec") -> Any:
            if source not in trees:
                trees[source] = ast.parse(source, mode=mode)
            return trees[source]

    environment.parse, conditional.generate, conditional.ast = parse_once, generate_once, Ast()
