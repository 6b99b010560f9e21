"""Means that make forked runs faster. Each can be turned off by its name: to measure what it saves, or if it causes a
problem.
"""

from __future__ import annotations

import os

#: The environment variable with the names of the means to turn off, separated by commas.
VARIABLE = "ROLEWRIGHT_WARM_WITHOUT"
#: The names of all means.
KNOWN = {"content", "immortal", "inprocess", "lazycopy", "modules", "templates", "turbo", "vfork", "yaml"}
#: The names of the means that are turned off.
_off: set[str] = set()


def read() -> None:
    """Read the variable, and remove it, so that no run gets it. Called once, by the server. Raise SystemExit if a name is
    unknown.
    """
    _off.update(filter(None, (name.strip() for name in os.environ.pop(VARIABLE, "").split(","))))
    if unknown := _off - KNOWN:
        raise SystemExit(f"{VARIABLE} has unknown names: {', '.join(sorted(unknown))}; there are: {', '.join(sorted(KNOWN))}")


def turn_off(*names: str) -> None:
    """Turn means off."""
    _off.update(names)


def without(name: str) -> bool:
    """Tell whether a means is turned off. Raise LookupError if the name is unknown."""
    if name not in KNOWN:
        raise LookupError(name)
    return name in _off
