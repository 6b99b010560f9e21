"""Templates that are compiled once in a run, where Ansible compiles them in each task."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import ansiblefiles
import fences
import switches

#: How much source of compiled templates is kept, and the longest one, in characters.
MOST = 4 << 20
LONGEST = 1 << 18
#: What of an environment has a part in what a source is compiled to.
SETTINGS = ("block_start_string", "block_end_string", "variable_start_string", "variable_end_string", "comment_start_string",
            "comment_end_string", "line_statement_prefix", "line_comment_prefix", "trim_blocks", "lstrip_blocks", "newline_sequence",
            "keep_trailing_newline", "optimized", "autoescape", "is_async")


def install() -> None:
    """Keep what the templates of this run are compiled to. Until ansible-core 2.18: from 2.19 on, the code of a template
    has the place of its constants.
    """
    import jinja2

    if ansiblefiles.has_engine() or switches.without("templates"):
        return
    ordinary: Any = jinja2.Environment.compile
    kept: dict[tuple, types.CodeType] = {}
    size = 0

    def compile(self: Any, source: Any, name: Any = None, filename: Any = None, raw: bool = False, defer_init: bool = False) -> Any:
        nonlocal size
        if not isinstance(source, str) or raw or defer_init or len(source) > LONGEST or type(self).__module__ != "ansible.template":
            return ordinary(self, source, name, filename, raw, defer_init)
        # How a filter is called depends on what it is, and roles add some.
        key = (type(self), source, name, filename, fences.places(), *settings(self))
        if (code := kept.get(key)) is not None:
            return code
        # An error comes of the ordinary way, and has no other as its context.
        tree = None
        with contextlib.suppress(Exception):
            tree = self._parse(source, name, filename)
        if tree is not None and size < MOST and not folds(tree) and fences.reached(tree) is None:
            with contextlib.suppress(Exception):
                code = ordinary(self, tree, name, filename)
                kept[key] = code
                size += len(source)
                return code
        return ordinary(self, source, name, filename)

    setattr(jinja2.Environment, "compile", compile)


def settings(environment: Any) -> tuple:
    """Return what of an environment has a part in what is compiled."""
    finalize = getattr(environment.finalize, "__func__", environment.finalize)
    return (*(getattr(environment, name) for name in SETTINGS), tuple(environment.extensions), finalize)


def folds(tree: Any) -> bool:
    """Tell whether a filter or test may be computed when the template is compiled: one that has no variable, or one behind
    which a variable may not be looked at.
    """
    from jinja2 import nodes

    for node in tree.find_all((nodes.Filter, nodes.Test)):
        if node.node is None:
            continue
        if not any(node.find_all(nodes.Name)) or any(node.find_all((nodes.Or, nodes.And, nodes.CondExpr, nodes.Compare))):
            return True
    return False
