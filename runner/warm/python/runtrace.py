"""Records how the parts of a run are executed: in notes, which are sent at the end of the run, and in a trace for tests."""

from __future__ import annotations

import mmap
import multiprocessing
import resource
import struct
from typing import Any

#: The file of the trace; empty for no trace.
TRACE = ""
#: What is noted of each run: beginnings of lines of the trace.
NOTED = ("playbook forked", "playbook executed")
#: What is counted: how modules are executed (forked, or in Ansible's way and why), and why tasks have a worker (or none).
COUNTED = tuple(f"modules {way}" for way in (
    "forked", "async", "become", "connection", "pipelining", "interpreter", "environment", "libraries", "other",
)) + tuple(f"tasks {way}" for way in (
    "none", "action", "option", "plugin", "template", "value", "message", "failed", "size", "other",
))
COUNTS = struct.Struct(f"{len(COUNTED)}I")
#: The offset in the notes of the reason why the playbook is executed instead of forked.
REASON = len(NOTED) + COUNTS.size
#: The notes: a byte for each of NOTED, the counts of COUNTED, and the reason. The
#: processes of a run share the notes and their lock.
_notes: mmap.mmap | None = None
_lock: Any = None
#: How long a process waits for the lock, in seconds: it may be held by a process that was killed.
PATIENCE = 0.1


def begin_run(trace_file: str) -> None:
    """Make memory for the notes of a run. Called by its run head."""
    global TRACE, _notes, _lock
    TRACE = trace_file
    _notes = mmap.mmap(-1, mmap.PAGESIZE)
    try:
        _lock = multiprocessing.get_context("fork").Lock()
    except OSError:  # there is no /dev/shm; with several hosts, counts of modules may then be too low
        _lock = None


def trace(*words: str) -> None:
    """Add a line to the trace, and to the notes if it begins with one of NOTED."""
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
    """Add 1 to the count of one of COUNTED."""
    if _notes is None:
        return
    locked = _lock is not None and _lock.acquire(timeout=PATIENCE)
    counts = list(COUNTS.unpack_from(_notes, len(NOTED)))
    counts[COUNTED.index(what)] += 1
    COUNTS.pack_into(_notes, len(NOTED), *counts)
    if locked:
        _lock.release()


def trace_usage(kind: str) -> None:
    """Trace what this process has used, and the children that it has waited for:
    user and system CPU time in seconds, and page faults. Called last in a process.
    """
    if TRACE:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        trace("used", kind, *(f"{value}" for used in (own, children) for value in (used.ru_utime, used.ru_stime, used.ru_minflt)))


def notes() -> str:
    """Return the notes as lines: what of NOTED has happened, with the reason why the
    playbook was executed, and the counts that are not 0.
    """
    if _notes is None:
        return ""
    page = bytes(_notes)
    why = page[REASON:].rstrip(b"\0").decode(errors="replace")
    lines = [f"{what}: {why}" if what == "playbook executed" else what for what, happened in zip(NOTED, page) if happened]
    lines.extend(f"{what}: {number}" for what, number in zip(COUNTED, COUNTS.unpack_from(page, len(NOTED))) if number)
    return "\n".join(lines)
