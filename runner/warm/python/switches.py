"""Means that make forked runs faster, each of which can be turned off by its name: to measure what it buys, or where it
is in the way.
"""

from __future__ import annotations

import os

#: The variable with the names of those that are turned off, with commas between them.
VARIABLE = "ROLEWRIGHT_WARM_WITHOUT"
#: The names that there are.
KNOWN = {"content", "immortal", "inprocess", "lazycopy", "modules", "templates", "turbo", "yaml"}
#: Those that are turned off.
_off: set[str] = set()


def read() -> None:
    """Read the variable, and remove it: it is no run's. Called once, by the server. SystemExit if it has an unknown name."""
    _off.update(filter(None, (name.strip() for name in os.environ.pop(VARIABLE, "").split(","))))
    if unknown := _off - KNOWN:
        raise SystemExit(f"{VARIABLE} has unknown names: {', '.join(sorted(unknown))}; there are: {', '.join(sorted(KNOWN))}")


def turn_off(*names: str) -> None:
    """Turn means off."""
    _off.update(names)


def without(name: str) -> bool:
    """Tell whether a means is turned off."""
    if name not in KNOWN:
        raise LookupError(name)
    return name in _off
