"""What becomes of the parts of a run: notes for the end of the run, and a trace for tests."""

from __future__ import annotations

import mmap
import multiprocessing
import resource
import struct
from typing import Any

#: A file to which is written what becomes of the parts of a run; empty for none.
TRACE = ""
#: What is noted of each run: the beginnings of the lines of the trace.
NOTED = ("playbook forked", "playbook executed")
#: What is counted: how modules are executed (forked, or Ansible's way and why), and why tasks have a worker of their own,
#: if they have.
COUNTED = tuple(f"modules {way}" for way in (
    "forked", "async", "become", "connection", "pipelining", "interpreter", "environment", "libraries", "other",
)) + tuple(f"tasks {way}" for way in (
    "none", "action", "option", "plugin", "template", "value", "message", "failed", "size", "other",
))
COUNTS = struct.Struct(f"{len(COUNTED)}I")
#: Where the reason begins why the playbook is executed.
REASON = len(NOTED) + COUNTS.size
#: The notes: a byte for each of NOTED, the counts of COUNTED, and the reason. The
#: processes of a run share them, and the lock.
_notes: mmap.mmap | None = None
_lock: Any = None
#: How long a process waits for the lock: one that was killed may have held it.
PATIENCE = 0.1


def begin_run(trace_file: str) -> None:
    """Make room for the notes of a run. Called by its run head."""
    global TRACE, _notes, _lock
    TRACE = trace_file
    _notes = mmap.mmap(-1, mmap.PAGESIZE)
    try:
        _lock = multiprocessing.get_context("fork").Lock()
    except OSError:  # without /dev/shm, where modules of several hosts may be counted too low
        _lock = None


def trace(*words: str) -> None:
    """Note what becomes of a part of a run."""
    line = " ".join(words)
    if _notes is not None:
        for index, what in enumerate(NOTED):
            if line.startswith(what):
                _notes[index] = 1
        if line.startswith("playbook executed"):
            why = line.partition(": ")[2].encode()[: len(_notes) - REASON]
            _notes[REASON : REASON + len(why)] = why
    if TRACE:
        with open(TRACE, "a") as file:
            file.write(line + "\n")


def count(what: str) -> None:
    """Count one of COUNTED."""
    if _notes is None:
        return
    locked = _lock is not None and _lock.acquire(timeout=PATIENCE)
    counts = list(COUNTS.unpack_from(_notes, len(NOTED)))
    counts[COUNTED.index(what)] += 1
    COUNTS.pack_into(_notes, len(NOTED), *counts)
    if locked:
        _lock.release()


def trace_usage(kind: str) -> None:
    """Note what this process has taken, and its children which it has waited for:
    CPU time of user and system in seconds, and page faults. Called as the last thing.
    """
    if TRACE:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        trace("used", kind, *(f"{value}" for used in (own, children) for value in (used.ru_utime, used.ru_stime, used.ru_minflt)))


def notes() -> str:
    """Return lines with what of NOTED has happened in the run, why the playbook was
    executed, and how often there was each of COUNTED.
    """
    if _notes is None:
        return ""
    page = bytes(_notes)
    why = page[REASON:].rstrip(b"\0").decode(errors="replace")
    lines = [f"{what}: {why}" if what == "playbook executed" else what for what, happened in zip(NOTED, page) if happened]
    lines.extend(f"{what}: {number}" for what, number in zip(COUNTED, COUNTS.unpack_from(page, len(NOTED))) if number)
    return "\n".join(lines)
