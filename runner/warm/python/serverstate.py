"""The state of the fork server: tables that preload fills before the first run, and that runs only read.

This file imports no other part of the fork server but process.
"""

from __future__ import annotations

import ast
import importlib.machinery
import logging
import types
import zlib

import process

#: Identifies a source by its length and its CRC-32, which the directory of a zip
#: file also has.
Key = tuple[int, int]

COOKIE: process.Cookie
#: The search path of the interpreter, without the directory of a script.
PATH: list[str] = []
#: Syntax trees by the keys of sources, pruned to what decides which module utilities a source needs.
IMPORTS: dict[Key, ast.Module] = {}
#: Compiled modules and module utilities, by the keys of their sources.
CODES: dict[Key, types.CodeType] = {}
#: The finders for the directories of PATH, which have already listed these.
FINDERS: dict[str, importlib.machinery.FileFinder] = {}
#: Environment variables that imports have read, except those that Ansible's
#: configuration reads. What was imported may depend on their values.
READ: set[str] = set()
#: The values of ansible.constants in the server.
SETTINGS: dict[str, object] = {}
#: Ansible's logging handlers for log_path.
LOG: list[logging.Handler] = []
#: Ansible's configuration file and its version; None if there is no such file.
CONFIG_FILE: tuple | None = None
#: The environment of the server, without the cookie.
ENVIRONMENT: dict[str, str] = {}
#: The part of ENVIRONMENT that the interpreter set when it started, as it would in each run.
COERCED: dict[str, str] = {}

#: Beginnings of the names of variables that the interpreter, the loader, the C
#: library or another library reads when a program starts.
EARLY = ("PYTHON", "LD_", "LC_", "LANG", "GCONV_PATH", "TZ", "MALLOC_", "OPENSSL_", "HOME", "VIRTUAL_ENV", "COLOR_", "_ANSIBLE_")


def key(source: bytes) -> Key:
    """Return the key of a source."""
    return len(source), zlib.crc32(source)


def is_early(name: str) -> bool:
    """Tell whether a variable has an effect only if it is set when the interpreter starts."""
    return name.startswith(EARLY) or name in READ
