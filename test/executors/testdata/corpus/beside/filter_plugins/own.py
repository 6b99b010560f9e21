"""Filters whose file has a library of its own, and leaves something in the process that imports it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from utilities import shout  # noqa: E402

os.environ["LEFT"] = "by a filter"
os.umask(0)


class FilterModule:
    def filters(self):
        return {"shout": shout}
