"""Immortal objects: Python never frees them, and does not write to them when it uses them.

Python counts the references to an object in the object itself. The first such
write to a page makes a forked process copy the page. Since Python 3.12, an object
with a very large count is immortal: its references are not counted (PEP 683). The
server makes all its objects immortal before it forks. Forked processes would
keep them anyway: they never free a module, class or function that the server has
imported.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import sysconfig
import types

import switches

#: The lower half of the reference count of an immortal object, by which Python recognises
#: it since 3.12. Python 3.14 would count down from the largest number.
COUNT = 0xFFFFFFFF if sys.version_info < (3, 14) else 0xC0000000
#: Types of objects that belong to running code, and that are freed when it ends. They do not become immortal.
PASSING = (types.FrameType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.TracebackType)
#: The attributes of a code object that are separate objects. The garbage collector does not know them.
PARTS = ("co_consts", "co_names", "co_filename", "co_name", "co_qualname", "co_linetable", "co_exceptiontable")


def is_possible() -> bool:
    """Tell whether this interpreter has immortal objects, and keeps their counts where make writes them."""
    if sys.version_info < (3, 12) or sys.implementation.name != "cpython" or sys.byteorder != "little" \
            or sysconfig.get_config_var("Py_GIL_DISABLED") or sysconfig.get_config_var("Py_DEBUG") or sys.maxsize < 1 << 32:
        return False
    one = [object()]
    if ctypes.c_uint32.from_address(id(one[0])).value != 1:
        return False
    ctypes.c_uint32.from_address(id(one[0])).value = COUNT
    before = sys.getrefcount(one[0])
    more = [one[0]] * 3
    return sys.getrefcount(more[0]) == before


def make() -> int:
    """Make all objects of this process immortal, except those of the types PASSING. Return their number."""
    if switches.without("immortal") or not is_possible():
        return 0
    gc.collect()
    # found also holds the objects, because some might be freed before they are marked.
    found: dict[int, object] = {}
    queue = [value for value in gc.get_objects() if not isinstance(value, PASSING)]
    ours = (id(found), id(queue))
    while queue:
        value = queue.pop()
        if id(value) in found or id(value) in ours or isinstance(value, PASSING):
            continue
        found[id(value)] = value
        if isinstance(value, types.CodeType):
            queue.extend(getattr(value, name) for name in PARTS)
        queue.extend(gc.get_referents(value))
    for address in found:
        ctypes.c_uint32.from_address(address).value = COUNT
    return len(found)
