"""Imports what runs need: the controller (ansible-runner, ansible-playbook and their plugins), and libraries for modules."""

from __future__ import annotations

import ast
import builtins
import importlib
import logging
import os
import pkgutil
import sys
import types

import ansiblefiles
import serverstate


class Recorder:
    """Notes the environment variables that are read, except by Ansible's configuration."""

    def __enter__(self) -> Recorder:
        self.names: set[str] = set()
        self.original = os._Environ.__getitem__

        def record(environ: os._Environ, name: str) -> str:
            frame: types.FrameType | None = sys._getframe(1)
            while frame and frame.f_globals.get("__name__") in ("os", "collections.abc", "_collections_abc"):
                frame = frame.f_back
            if frame and frame.f_globals.get("__name__") not in ("ansible.utils.py3compat", "ansible.config.manager"):
                self.names.add(name)
            return self.original(environ, name)

        os._Environ.__getitem__ = record  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        os._Environ.__getitem__ = self.original  # type: ignore[assignment]


#: Packages of plugins. A run needs some plugins of each, and imports all plugins of most packages.
PLUGINS = ("action", "become", "cache", "callback", "connection", "filter", "inventory", "lookup",
           "shell", "strategy", "test", "vars")


def import_controller() -> None:
    """Import ansible-runner, ansible-playbook and their built-in plugins."""
    for name in ("ansible_runner.__main__", "ansible.cli.playbook", "ansible.executor.playbook_executor",
                 "ansible.executor.task_executor", "ansible.executor.process.worker",
                 "ansible.executor.module_common", "ansible.template", "ansible.plugins.loader"):
        importlib.import_module(name)
    for kind in PLUGINS:
        package = importlib.import_module(f"ansible.plugins.{kind}")
        own = dict(vars(package))
        for info in pkgutil.iter_modules(package.__path__):
            if info.name != "base":  # deprecated, and warns at its first import
                attempt(f"ansible.plugins.{kind}.{info.name}")
        unshadow(package, own)
    load_jinja_plugins()
    prepare_templates()
    close_log()


def close_log() -> None:
    """Close the file of log_path, which Ansible opens when it is imported. Its handler is kept for
    the runs, and opens the file again when there is something to write.
    """
    from ansible.utils.display import logger

    if logger:
        serverstate.LOG.extend(logging.root.handlers)
        logging.root.handlers.clear()
        logging.root.setLevel(logging.WARNING)
        for handler in serverstate.LOG:
            handler.close()


def prepare_templates() -> None:
    """Let Jinja make its lexer. Otherwise each worker would make one."""
    import translated

    translated.new_environment().lexer  # noqa: B018, Jinja keeps it


def load_jinja_plugins() -> None:
    """Load filters and tests under the names that Ansible gives to their files.
    Otherwise each worker that has a template would load them.
    """
    import ansible.plugins.loader as loader

    anonymous = loader.PluginLoader._load_module_source.__code__.co_argcount == 3  # as in ansible-core 2.14
    for plugins in (loader.filter_loader, loader.test_loader):
        for name in [name for name in sys.modules if name.startswith(plugins.package + ".")]:
            path, base = sys.modules[name].__file__, name.rpartition(".")[2]
            if anonymous:
                plugins._load_module_source(f"{abs(hash(path))}_{base}", path)
            else:
                plugins._load_module_source(python_module_name=f"{name}_{abs(hash(path))}", path=path)


def unshadow(package: types.ModuleType, own: dict[str, object]) -> None:
    """Restore the names that a package uses: an imported module becomes an attribute
    of its package, where the plugin list, for example, hides Python's list.
    Ansible's loader does not set such attributes.
    """
    for name, value in list(vars(package).items()):
        if name in own and own[name] is not value:
            setattr(package, name, own[name])
        elif name not in own and hasattr(builtins, name):
            delattr(package, name)


def attempt(name: str) -> None:
    """Import a module that may be missing, or unusable here."""
    try:
        importlib.import_module(name)
    except (Exception, SystemExit):  # noqa: B902, the run that needs it reports why
        pass


#: What import_libraries leaves out: Ansible, and libraries that only some modules need, or whose import has side effects.
SHUNNED = {"ansible", "ansible_collections", "antigravity", "idlelib", "lib2to3", "readline", "test", "this", "tkinter", "turtle",
           "__future__", "curses", "pdb", "six", "imp", "asyncore", "asynchat", "smtpd", "distutils"}


def import_libraries() -> None:
    """Import what modules import: standard modules, and everything for kubernetes.core."""
    wanted: set[str] = set()
    for path in ansiblefiles.module_files():
        collection = "/ansible_collections/" in path
        if not collection and not path.endswith(("/basic.py", "/urls.py", "/command.py", "/copy.py", "/file.py", "/stat.py")) \
                and "/module_utils/common/" not in path and "/module_utils/_internal/" not in path:
            continue
        for name in imports(path):
            top = name.partition(".")[0]
            if top not in SHUNNED and (collection or top in sys.stdlib_module_names):
                wanted.add(name)
    for name in ("kubernetes.dynamic", "kubernetes.dynamic.exceptions", "kubernetes.stream", "runpy", "zipfile", "zipimport", "tempfile"):
        wanted.add(name)
    for name in sorted(wanted):
        attempt(name)


def imports(path: str) -> set[str]:
    """Return the full names of the modules that a source file imports, without relative imports."""
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names
