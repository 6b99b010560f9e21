"""Templates that are compiled once, where Ansible compiles them in each task: those of the content before there are runs, and
others once in a run.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

import ansiblefiles
import fences
import switches
import translated

#: How much source of compiled templates is kept, and the longest one, in characters.
MOST = 4 << 20
LONGEST = translated.LONGEST


class Known(str):
    """A source that is compiled."""

    code: types.CodeType


def install() -> None:
    """Keep what the templates of this run are compiled to."""
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
        # How a filter is called depends on what it is, and roles add some.
        known = (fences.places(), translated.key(self, source))
        if (code := kept.get(known)) is not None:
            return code
        # An error comes of the ordinary way, and has no other as its context.
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
    """Let conditions be compiled once, which have a way of their own from ansible-core 2.19 on."""
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
    """Tell whether an environment is Ansible's own, and no project's."""
    return type(environment).__module__ in ("ansible.template", "ansible._internal._templating._jinja_bits")
