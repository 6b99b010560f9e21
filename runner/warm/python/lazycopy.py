"""Variables for a template that is looked up, copied when it uses them.

Ansible copies all variables, with all that they contain, for each
lookup('template'). Of hundreds, a template uses a few.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import ansiblefiles
import switches


def install() -> None:
    """Let lookup('template') copy the variables that it uses. Until ansible-core 2.18: from 2.19 on, templates take
    no other dictionaries than plain ones.
    """
    if ansiblefiles.has_engine() or switches.without("lazycopy"):
        return
    import ansible.plugins.lookup.template as lookup

    lookup.deepcopy = deepcopy


def deepcopy(variables: Any) -> Any:
    """Return what copy.deepcopy would, as far as can be told by reading it."""
    return Copy(variables) if type(variables) is dict else copy.deepcopy(variables)


class Copy(dict):
    """A deep copy of a dictionary, whose values are copied when they are read.

    What two values share, their copies share as well. It has an __iter__ of its
    own, so that Python reads it by its methods where it reads all of a dictionary.
    """

    def __init__(self, original: dict) -> None:
        super().__init__(original)
        self._memo: dict[int, Any] = {id(original): self}
        self._left = set(original)

    def __getitem__(self, key: Any) -> Any:
        if key in self._left:
            self._left.remove(key)
            super().__setitem__(key, copy.deepcopy(super().__getitem__(key), self._memo))
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._left.discard(key)
        super().__setitem__(key, value)

    def __iter__(self) -> Iterator:
        return super().__iter__()

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default

    def _whole(self) -> dict:
        for key in list(self._left):
            self[key]
        return self

    def __deepcopy__(self, memo: dict) -> dict:
        return copy.deepcopy(dict(self), memo)

    def items(self) -> Any:
        return dict.items(self._whole())

    def values(self) -> Any:
        return dict.values(self._whole())

    def copy(self) -> dict:
        return dict(self._whole())

    def clear(self) -> None:
        self._left.clear()
        super().clear()

    def __delitem__(self, key: Any) -> None:
        dict.__delitem__(self._whole(), key)

    def popitem(self) -> Any:
        return dict.popitem(self._whole())

    def pop(self, *args: Any) -> Any:
        return dict.pop(self._whole(), *args)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return dict.setdefault(self._whole(), key, default)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._whole(), other)

    __hash__ = None  # type: ignore[assignment]
