"""What forked processes would share that multiprocessing has made: locks, whose
semaphores lie in shared memory, and the key by which processes know each other.
Each run gets its own: one that is killed while it holds a lock would stop all
that come after it.
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
#: What makes locks that are gone when the last process has closed them.
CONTEXT = multiprocessing.get_context("fork")


def find() -> None:
    """Find the locks. Called by the server, once everything is imported. It raises
    RuntimeError for a lock that renew cannot renew for all who use it.
    """
    own = CONTEXT.Lock()
    objects: list[Any] = gc.get_objects()  # this refers to them, too
    usual = references(own)
    for value in objects:
        if isinstance(value, multiprocessing.synchronize.SemLock) and value is not own:
            if references(value) != usual:
                raise RuntimeError(f"all runs would share {value!r}: something else, such as a Condition, uses its semaphore")
            LOCKS.append((value, value._semlock._get_value()))  # type: ignore[attr-defined]


def references(lock: Any) -> list[int]:
    """Count the references to the semaphore of a lock and its methods, which renew
    replaces: those of a lock that is used by itself are always the same.
    """
    return [sys.getrefcount(part) for part in (lock._semlock, lock.acquire, lock.release)]


def renew() -> None:
    """Give this process, and those that it forks, locks and a key of their own."""
    for lock, value in LOCKS:
        old = lock._semlock
        multiprocessing.synchronize.SemLock.__init__(lock, old.kind, value, old.maxvalue, ctx=CONTEXT)  # type: ignore[call-arg]
    multiprocessing.current_process().authkey = os.urandom(32)
