"""Gives each run its own locks and key of multiprocessing. Forked processes would
share those of the server: the locks, because their semaphores are in shared memory,
and the key by which processes authenticate each other. A run that is killed while it
holds a shared lock would block all later runs.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.synchronize
import os
import sys
from typing import Any

#: The locks that imports have made, with their values.
LOCKS: list[tuple[Any, int]] = []
#: Makes locks that vanish when the last process has closed them.
CONTEXT = multiprocessing.get_context("fork")


def find() -> None:
    """Fill LOCKS. Called by the server after its imports. Raise RuntimeError if renew
    could not replace a lock for everything that uses it.
    """
    own = CONTEXT.Lock()
    objects: list[Any] = gc.get_objects()  # the list adds references, and does so for own, too
    usual = references(own)
    for value in objects:
        if isinstance(value, multiprocessing.synchronize.SemLock) and value is not own:
            if references(value) != usual:
                raise RuntimeError(f"all runs would share {value!r}: something else, such as a Condition, uses its semaphore")
            LOCKS.append((value, value._semlock._get_value()))  # type: ignore[attr-defined]


def references(lock: Any) -> list[int]:
    """Return the numbers of references to the semaphore and the methods of a lock,
    which renew replaces. All locks that nothing else uses have the same numbers.
    """
    return [sys.getrefcount(part) for part in (lock._semlock, lock.acquire, lock.release)]


def renew() -> None:
    """Give this process, and those that it forks, locks and a key of their own."""
    for lock, value in LOCKS:
        old = lock._semlock
        multiprocessing.synchronize.SemLock.__init__(lock, old.kind, value, old.maxvalue, ctx=CONTEXT)  # type: ignore[call-arg]
    multiprocessing.current_process().authkey = os.urandom(32)
