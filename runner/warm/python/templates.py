"""Lets templates be compiled once, where Ansible compiles them in each task: those of the content when the server starts,
and others, until ansible-core 2.18, once in a run.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

import ansiblefiles
import fences
import switches
import translated

#: Limits for the templates whose code a run keeps: their total length, and the length of one, in characters.
MOST = 4 << 20
LONGEST = translated.LONGEST


class Known(str):
    """The source of a template that is already compiled."""

    code: types.CodeType


def install() -> None:
    """Let this run use the templates that the server has compiled, and keep those that it compiles itself."""
    import jinja2

    if switches.without("templates"):
        return
    ordinary: Any = jinja2.Environment.compile
    # From ansible-core 2.19 on, the code of a template has the place of its constants.
    keep = not ansiblefiles.has_engine()
    kept: dict[tuple, types.CodeType] = {}
    size = 0

    def compile(self: Any, source: Any, name: Any = None, filename: Any = None, raw: bool = False, defer_init: bool = False) -> Any:
        nonlocal size
        if isinstance(source, Known):
            return source.code
        if not isinstance(source, str) or raw or defer_init or name or filename or len(source) > LONGEST or not is_ansible(self):
            return ordinary(self, source, name, filename, raw, defer_init)
        if (code := translated.find(self, source)) is not None:
            return code
        if not keep:
            return ordinary(self, source)
        # The code depends on which filter a name stands for, and roles add filters.
        known = (fences.places(), translated.key(self, source))
        if (code := kept.get(known)) is not None:
            return code
        # Errors are suppressed here: the ordinary call below raises them again, without another error as their context.
        tree = None
        with contextlib.suppress(Exception):
            tree = self._parse(source, name, filename)
        if tree is not None and size < MOST and not translated.folds(tree) and fences.reached(tree) is None:
            with contextlib.suppress(Exception):
                code = ordinary(self, tree)
                kept[known] = code
                size += len(source)
                return code
        return ordinary(self, source)

    setattr(jinja2.Environment, "compile", compile)
    if not keep:
        install_expressions()


def install_expressions() -> None:
    """Let this run use the conditions that the server has compiled. From ansible-core 2.19 on, conditions are compiled
    separately.
    """
    import jinja2
    from jinja2.environment import TemplateExpression

    ordinary: Any = jinja2.Environment.compile_expression

    def compile_expression(self: Any, source: str, undefined_to_none: bool = True) -> Any:
        code = translated.find(self, source, True) if isinstance(source, str) and not undefined_to_none and is_ansible(self) else None
        if code is None:
            return ordinary(self, source, undefined_to_none)
        known = Known(source)
        known.code = code
        return TemplateExpression(self.from_string(known), undefined_to_none)

    setattr(jinja2.Environment, "compile_expression", compile_expression)


def is_ansible(environment: Any) -> bool:
    """Tell whether an environment of templates is Ansible's own, and not that of a project's plugin."""
    return type(environment).__module__ in ("ansible.template", "ansible._internal._templating._jinja_bits")
