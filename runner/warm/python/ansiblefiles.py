"""Where the files of Ansible and of the collection kubernetes.core are."""

from __future__ import annotations

import importlib.util
import os
import sys


def config_file() -> tuple | None:
    """Return the configuration file that Ansible finds here, and its version."""
    from ansible.config.manager import find_ini_config_file

    path = find_ini_config_file()
    if path is None:
        return None
    status = os.stat(path)
    return (path, status.st_mtime_ns, status.st_size, status.st_ino)


def kubernetes_core() -> list[str]:
    """Return where the collection kubernetes.core is looked for."""
    from ansible import constants

    return [os.path.join(os.path.expanduser(place), "ansible_collections", "kubernetes", "core")
            for place in [*constants.COLLECTIONS_PATHS, *sys.path]]


def module_files() -> list[str]:
    """Return the files that modules consist of: Ansible's own and those of kubernetes.core."""
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
    """Tell whether templates are the work of the engine that ansible-core has from 2.19 on."""
    return importlib.util.find_spec("ansible._internal") is not None and importlib.util.find_spec("ansible._internal._templating") is not None
