"""The utilities that modules bring along, imported once.

A module has its utilities in its archive, and would import them again: about sixty
for k8s. The server imports those of all archives in prepared, while it hides the
modules of the controller, which have the same names. A process that executes a
module uses the server's utilities if the module's archive has the same files. It
has its own copy of them, so no other process sees what the module does with them.
"""

from __future__ import annotations

import _imp
import contextlib
import importlib
import importlib.machinery
import os
import pathlib
import sys
import types
import zipimport
from collections.abc import Iterator
from typing import Any, NamedTuple

import preimports
import serverstate


class Utility(NamedTuple):
    """A Python module that the server has imported."""

    module: types.ModuleType
    #: The path of its source in an archive, and the path that another archive must not
    #: have instead (a package in place of a file, or a file in place of a package). Both
    #: are None if the module has no source: its parent has made it.
    source: str | None
    other: str | None
    key: serverstate.Key | None
    #: Its attributes whose values contain the path ORIGIN.
    places: dict[str, str | pathlib.PurePath]


#: The utilities by their module names.
UTILITIES: dict[str, Utility] = {}
#: The finders that utilities have added to sys.meta_path, such as that of six.
FINDERS: list[object] = []
#: The archive from which the utilities were imported.
ORIGIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "utilities.zip")
#: The packages that a module must not find as the controller has imported them.
CONTROLLER = ("ansible", "ansible_collections", "ansible_runner")


class Importer(zipimport.zipimporter):
    """Imports from the zip file of a module, and uses what the server has already compiled or imported."""

    @property
    def files(self) -> dict[str, tuple[object, ...]]:
        """The files in the zip file by path, in zipimport's own form."""
        # Python 3.13 reads the directory of the zip file when it is needed, older versions at once.
        return self._get_files() if hasattr(zipimport.zipimporter, "_get_files") else self._files

    def find_source(self, fullname: str) -> str | None:
        """Return the path of a module's source in the zip file; None if the zip file has no such module."""
        base = zipimport._get_module_path(self, fullname)
        return next((base + suffix for suffix in (os.sep + "__init__.py", ".py") if base + suffix in self.files), None)

    def key(self, source: str) -> serverstate.Key | None:
        """Return the key of a file in the zip file; None if there is no such file."""
        entry: Any = self.files.get(source)
        return entry and (entry[3], entry[7])

    def get_filename(self, fullname: str) -> str:
        source = self.find_source(fullname)
        return super().get_filename(fullname) if source is None else self.archive + os.sep + source

    def get_code(self, fullname: str) -> types.CodeType:
        source = self.find_source(fullname)
        code = serverstate.CODES.get(self.key(source)) if source is not None else None
        if code is None:
            return super().get_code(fullname)
        _imp._fix_co_filename(code, self.archive + os.sep + source)
        return code

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        if spec.name != "ansible" or self.prefix or not adopt(self):
            return None
        return UTILITIES["ansible"].module

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ != "ansible" or UTILITIES.get("ansible", (None,))[0] is not module:
            super().exec_module(module)

    def below(self, prefix: str) -> Importer:
        """Return the importer of a package's directory in the same zip file."""
        path = self.archive + os.sep + prefix.rstrip(os.sep) if prefix else self.archive
        found = sys.path_importer_cache.get(path)
        if not isinstance(found, Importer):
            found = Importer.__new__(Importer)
            found.archive, found.prefix = self.archive, prefix
            if not hasattr(zipimport.zipimporter, "_get_files"):
                found._files = self._files
            sys.path_importer_cache[path] = found
        return found


def adopt(importer: Importer) -> bool:
    """Add the server's utilities that the importer's zip file has, too, to this
    process, and tell whether that was done. None are added if the zip file has another
    version of one: the server's utilities have imported the server's version.
    """
    found = {}
    for name, utility in UTILITIES.items():
        if utility.source is None:
            if name.rpartition(".")[0] in found:
                found[name] = utility
            continue
        has = importer.key(utility.source)
        if has == utility.key:
            found[name] = utility
        elif has is not None or utility.other in importer.files:
            return False
    if "ansible" not in found:
        return False
    for name, utility in UTILITIES.items():
        package, _, tail = name.rpartition(".")
        if name in found:
            if getattr(utility.module, "__name__", None) == name and utility.source:
                settle(utility, name, importer)
            sys.modules[name] = utility.module
        elif package in found:
            vars(UTILITIES[package].module).pop(tail, None)
    sys.meta_path.extend(FINDERS)
    return True


def settle(utility: Utility, name: str, importer: Importer) -> None:
    """Give a module the paths, loader and spec that it would have if it had been imported from the importer's zip file."""
    own = vars(utility.module)
    path = importer.archive + os.sep + utility.source
    loader = importer.below(os.path.dirname(utility.source.removesuffix("/__init__.py")).strip(os.sep) + os.sep)
    if loader.prefix == os.sep:
        loader = importer.below("")
    spec = importlib.machinery.ModuleSpec(name, loader, origin=path)
    spec.has_location = True
    if "__path__" in own:
        own["__path__"] = [importer.archive + place[len(ORIGIN):] if place.startswith(ORIGIN) else place for place in own["__path__"]]
        spec.submodule_search_locations = own["__path__"]
    own.update({place: type(value)(str(value).replace(ORIGIN, importer.archive)) for place, value in utility.places.items()})
    own.update(__file__=path, __loader__=loader, __spec__=spec)
    code = serverstate.CODES.get(utility.key)
    if code is not None:
        _imp._fix_co_filename(code, path)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hide the controller's modules, and restore them at the end."""
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in CONTROLLER}
    kept = (sys.path, sys.meta_path, sys.path_hooks, sys.path_importer_cache)
    values = [value.copy() for value in kept]
    hide()
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in CONTROLLER]:
            del sys.modules[name]
        sys.modules.update(modules)
        for place, value in zip(kept, values):
            place.clear()
            (place.update if isinstance(place, dict) else place.extend)(value)


def hide() -> list[types.ModuleType]:
    """Remove the controller's modules, finders and hooks from this process: a module
    brings its own ansible.module_utils. Return the removed modules, for the caller to
    keep: destroying them takes longer than a module.
    """
    names = [name for name in sys.modules if name.partition(".")[0] in CONTROLLER]
    hidden = [sys.modules.pop(name) for name in names]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("ansible")]
    sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook is not zipimport.zipimporter
                         and "ansible" not in repr(hook)]
    sys.path_hooks.insert(0, Importer)
    sys.path_importer_cache.clear()
    sys.path_importer_cache.update(serverstate.FINDERS)
    return hidden


def load(archive: bytes) -> None:
    """Import the utilities in a zip file, and fill UTILITIES and FINDERS. Called by the server."""
    with open(ORIGIN, "wb") as file:
        file.write(archive)
    with alone():
        sys.path.insert(0, ORIGIN)
        importer = Importer(ORIGIN)
        for source in sorted(importer.files):
            if source.endswith(".py") and source != "sitecustomize.py" and ("/modules/" not in source or source.endswith("/__init__.py")):
                preimports.attempt(source.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        FINDERS.extend(finder for finder in sys.meta_path if type(finder).__module__.startswith("ansible"))
        for name, module in sys.modules.items():
            if name.partition(".")[0] in CONTROLLER:
                base = name.replace(".", "/")
                forms = [base + "/__init__.py", base + ".py"]
                source = next((form for form in forms if form in importer.files), None)
                other = next((form for form in forms if form != source), None) if source else None
                places = {place: value for place, value in vars(module).items()
                          if isinstance(value, (str, pathlib.PurePath)) and ORIGIN in str(value)}
                UTILITIES[name] = Utility(module, source, other, importer.key(source) if source else None, places)
    os.remove(ORIGIN)
    zipimport._zip_directory_cache.pop(ORIGIN, None)
