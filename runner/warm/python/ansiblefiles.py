"""Where the files of Ansible and of the collection kubernetes.core are."""

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


def kubernetes_core() -> list[str]:
    """Return the directories in which Ansible looks for the collection kubernetes.core, in order."""
    from ansible import constants

    return [os.path.join(os.path.expanduser(place), "ansible_collections", "kubernetes", "core")
            for place in [*constants.COLLECTIONS_PATHS, *(sys.path if constants.COLLECTIONS_SCAN_SYS_PATH else ())]]


def module_files() -> list[str]:
    """Return the Python files of the modules and module utilities of Ansible and of kubernetes.core."""
    import ansible

    roots = [os.path.join(os.path.dirname(ansible.__file__), name) for name in ("module_utils", "modules")]
    for core in kubernetes_core():
        plugins = os.path.join(core, "plugins")
        if os.path.isdir(plugins):
            roots += [os.path.join(plugins, name) for name in ("module_utils", "modules")]
            break
    return [os.path.join(directory, file) for root in roots
            for directory, _, files in os.walk(root) for file in sorted(files) if file.endswith(".py")]


def has_engine() -> bool:
    """Tell whether Ansible has the template engine of ansible-core 2.19 and later."""
    return importlib.util.find_spec("ansible._internal") is not None and importlib.util.find_spec("ansible._internal._templating") is not None
