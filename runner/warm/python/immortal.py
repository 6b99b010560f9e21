"""Objects that are never freed, and so never written to for being used.

Each use of an object is counted in the object itself, and the first such write
to a page has a forked process copy the page. Since Python 3.12 there are objects
that are not counted: those whose count is very large (PEP 683). The
server makes all of its own such objects before it forks. They live as long as
every process that is forked: a module, class or function that the server has
imported is never freed there anyway.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import sysconfig
import types

import switches

#: The lower half of the count of an object that is not counted, by which versions
#: since 3.12 recognise one. Python 3.14 counts down what is as large as can be.
COUNT = 0xFFFFFFFF if sys.version_info < (3, 14) else 0xC0000000
#: Objects of these types are used up, not imported.
PASSING = (types.FrameType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.TracebackType)
#: What of a code object is an object of its own. The collector does not know it.
PARTS = ("co_consts", "co_names", "co_filename", "co_name", "co_qualname", "co_linetable", "co_exceptiontable")


def is_possible() -> bool:
    """Tell whether this interpreter has such objects, and where they are expected."""
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
    """Make all objects of this process such, but those that are passing. Return
    how many.
    """
    if switches.without("immortal") or not is_possible():
        return 0
    gc.collect()
    # What is found is held, or it might be freed before it is marked.
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
