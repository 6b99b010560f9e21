"""Where the files of Ansible, of the collection kubernetes.core, and of the collections that come with Rolewright are."""

from __future__ import annotations

import importlib.util
import os
import sys


def config_file() -> tuple | None:
    """Return the path of the configuration file that Ansible finds here, with values that change when the file does.
    Return None if Ansible finds no file.
    """
    from ansible.config.manager import find_ini_config_file

    path = find_ini_config_file()
    if path is None:
        return None
    status = os.stat(path)
    return (path, status.st_mtime_ns, status.st_size, status.st_ino)


#: The collections whose modules the server prepares.
COLLECTIONS = (("kubernetes", "core"), ("operator_sdk", "util"), ("rolewright", "operator"))


def places(*collection: str) -> list[str]:
    """Return the directories in which Ansible looks for a collection, in order."""
    from ansible import constants

    searched = [*constants.COLLECTIONS_PATHS, *(sys.path if constants.COLLECTIONS_SCAN_SYS_PATH else ())]
    return [os.path.join(os.path.expanduser(place), "ansible_collections", *collection) for place in searched]


def module_files() -> list[str]:
    """Return the Python files of the modules and module utilities of Ansible and of COLLECTIONS."""
    import ansible

    roots = [os.path.join(os.path.dirname(ansible.__file__), name) for name in ("module_utils", "modules")]
    for collection in COLLECTIONS:
        plugins = next(filter(os.path.isdir, (os.path.join(place, "plugins") for place in places(*collection))), None)
        if plugins is not None:
            roots += [os.path.join(plugins, name) for name in ("module_utils", "modules")]
    return [os.path.join(directory, file) for root in roots
            for directory, _, files in os.walk(root) for file in sorted(files) if file.endswith(".py")]


def has_engine() -> bool:
    """Tell whether Ansible has the template engine of ansible-core 2.19 and later."""
    return importlib.util.find_spec("ansible._internal") is not None and importlib.util.find_spec("ansible._internal._templating") is not None
