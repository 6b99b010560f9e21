"""What becomes of the parts of a run: notes for the end of the run, and a trace for tests."""

from __future__ import annotations

import mmap
import resource

#: A file to which is written what becomes of the parts of a run; empty for none.
TRACE = ""
#: What is noted of each run: the beginnings of the lines of the trace.
NOTED = ("playbook forked", "playbook executed", "module forked", "module executed")
#: The notes: a byte for each of NOTED, then why the playbook is executed. The
#: processes of a run share them.
_notes: mmap.mmap | None = None


def begin_run(trace_file: str) -> None:
    """Make room for the notes of a run. Called by its run head."""
    global TRACE, _notes
    TRACE = trace_file
    _notes = mmap.mmap(-1, mmap.PAGESIZE)


def trace(*words: str) -> None:
    """Note what becomes of a part of a run."""
    line = " ".join(words)
    if _notes is not None:
        for index, what in enumerate(NOTED):
            if line.startswith(what):
                _notes[index] = 1
        if line.startswith("playbook executed"):
            why = line.partition(": ")[2].encode()[: len(_notes) - len(NOTED)]
            _notes[len(NOTED) : len(NOTED) + len(why)] = why
    if TRACE:
        with open(TRACE, "a") as file:
            file.write(line + "\n")


def trace_usage(kind: str) -> None:
    """Note what this process has taken, and its children which it has waited for:
    CPU time of user and system in seconds, and page faults. Called as the last thing.
    """
    if TRACE:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        trace("used", kind, *(f"{value}" for used in (own, children) for value in (used.ru_utime, used.ru_stime, used.ru_minflt)))


def notes() -> str:
    """Return lines with what of NOTED has happened in the run, and why the playbook was executed."""
    page = bytes(_notes or b"")
    why = page[len(NOTED) :].rstrip(b"\0").decode(errors="replace")
    return "\n".join(f"{what}: {why}" if what == "playbook executed" else what for what, happened in zip(NOTED, page) if happened)
