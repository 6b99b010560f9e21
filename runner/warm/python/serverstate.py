"""The state of the fork server: tables that preload fills before the first fork, and that runs only read.

This file imports no other part of the fork server but process.
"""

from __future__ import annotations

import ast
import importlib.machinery
import logging
import types
import zlib

import process

#: What tells a source from others: its length and its CRC-32, as in the
#: directory of a zip file.
Key = tuple[int, int]

COOKIE: process.Cookie
#: The search path of an interpreter whose script has no directory.
PATH: list[str] = []
#: What decides about the module utilities that a source needs, by the key of the source.
IMPORTS: dict[Key, ast.Module] = {}
#: Compiled modules and module utilities.
CODES: dict[Key, types.CodeType] = {}
#: Who finds modules in the directories of PATH, and has listed them.
FINDERS: dict[str, importlib.machinery.FileFinder] = {}
#: Variables that imports have read, other than those that ansible.constants
#: has: their values are part of the server.
READ: set[str] = set()
#: Values of ansible.constants in the server.
SETTINGS: dict[str, object] = {}
#: Ansible's handlers of log_path.
LOG: list[logging.Handler] = []
#: The configuration file, with what tells its versions apart; or None.
CONFIG_FILE: tuple | None = None
#: The environment of the server, without the cookie.
ENVIRONMENT: dict[str, str] = {}
#: What of it the interpreter has set when it was started, as it would in each run.
COERCED: dict[str, str] = {}

#: Beginnings of the names of variables that the interpreter, the loader or the
#: C library reads when a program starts.
EARLY = ("PYTHON", "LD_", "LC_", "LANG", "GCONV_PATH", "TZ", "MALLOC_", "OPENSSL_", "HOME", "VIRTUAL_ENV", "COLOR_", "_ANSIBLE_")


def key(source: bytes) -> Key:
    """Return the key of a source."""
    return len(source), zlib.crc32(source)


def is_early(name: str) -> bool:
    """Tell whether a variable has to be there when the interpreter starts."""
    return name.startswith(EARLY) or name in READ
