"""Variables for lookup('template'), copied only when the template uses them.

For each lookup('template'), Ansible makes a deep copy of all variables: often
hundreds, of which the template uses a few.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import ansiblefiles
import switches


def install() -> None:
    """Let lookup('template') copy only the variables that it uses. This is done up to ansible-core 2.18: from 2.19 on,
    templates accept only plain dictionaries.
    """
    if ansiblefiles.has_engine() or switches.without("lazycopy"):
        return
    import ansible.plugins.lookup.template as lookup

    lookup.deepcopy = deepcopy


def deepcopy(variables: Any) -> Any:
    """Return a deep copy. A dictionary reads like the result of copy.deepcopy, but copies its values only when they are read."""
    return Copy(variables) if type(variables) is dict else copy.deepcopy(variables)


class Copy(dict):
    """A deep copy of a dictionary, whose values are copied when they are read.

    What two values share, their copies share as well. The class overrides __iter__
    so that Python uses the methods of the class, too, when it reads a whole dictionary.
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
