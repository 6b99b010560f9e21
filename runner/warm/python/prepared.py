"""Results that Ansible computes from its own files in every run, computed once:
the archives of common modules, and the options of common plugins.

The server forks a process for this at its start, so that only the results stay
in the server. A run uses a result if it would come to the same one: if the file
is the same, and so are the directories in which Ansible looks for related files.
"""

from __future__ import annotations

import ast
import base64
import io
import os
import pickle
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import ansiblefiles
import serverstate

#: Names of the modules whose archives are made. A run that needs another archive makes it.
MODULES = frozenset("""
    command copy file find get_url lineinfile ping setup slurp stat tempfile uri wait_for
    k8s k8s_exec k8s_info k8s_json_patch k8s_log k8s_scale
    event k8s_status metric requeue_after status trigger_info
""".split())


class Archive(NamedTuple):
    """A module with its utilities, in the form in which module_common caches it during a run."""

    source: bytes
    compression: str
    name: str
    content: bytes
    #: The files from which it was made, with their versions (see identity).
    files: dict[str, tuple | None]


#: Archives by the paths of their modules.
ARCHIVES: dict[str, Archive] = {}
#: Plugins by type, name and path: the documentation and the options that it
#: defines, or None if it defines none.
OPTIONS: dict[tuple[str | None, str, str], tuple[str, object]] = {}
#: The result of places() when the archives and options were made.
PLACES: list = []
#: Keys of the archives, as encoded returns them.
USUAL: set[tuple[int, int]] = set()


def load() -> bytes:
    """Make all archives and options. Called by the server after its imports. Return
    a zip file with the content of all archives.
    """
    read, write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(read)
        code = 1
        try:
            made = make()
            with open(write, "wb") as file:
                pickle.dump(made, file)
            code = 0
        except BaseException:  # noqa: B902, runs do without it
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with open(read, "rb") as file:
        data = file.read()
    if os.waitpid(pid, 0)[1] == 0:
        archives, options, places = pickle.loads(data)
        ARCHIVES.update(archives)
        OPTIONS.update(options)
        PLACES[:] = places
        USUAL.update(serverstate.key(encoded(archive.content)) for archive in archives.values())
    return merge([unpack(archive.content) for archive in ARCHIVES.values()])


def make() -> tuple[dict, dict, list]:
    """Return the values of ARCHIVES, OPTIONS and PLACES."""
    import ansible.constants as constants
    import ansible.executor.module_common as module_common
    import ansible.plugins.loader as loader

    getattr(loader, "init_plugin_loader", lambda: None)()
    module_common.compile = compile_imports
    constants.DEFAULT_LOCAL_TMP = tempfile.mkdtemp(dir=os.path.dirname(os.path.abspath(__file__)))
    try:
        archives = {path: archive for path in ansiblefiles.module_files() if (archive := make_archive(path)) is not None}
    finally:
        shutil.rmtree(constants.DEFAULT_LOCAL_TMP)
    return archives, make_options(), places()


def places() -> list:
    """Return the directories of module utilities, and those of documentation fragments."""
    import ansible.plugins.loader as loader

    return [existing(loader.module_utils_loader), existing(loader.fragment_loader)]


def existing(loader: Any) -> list[str]:
    """Return the existing directories in which a loader looks for files, without
    __pycache__: whether the loader lists that depends on earlier calls.
    """
    return [path for path in loader._get_paths(subdirs=False) if not path.endswith("__pycache__") and os.path.isdir(path)]


def fragments() -> list[str]:
    """Return the directories of documentation fragments, from which options are made, and the files in them."""
    return [path for place in PLACES[1:] for directory in place
            for path in (directory, *(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith((".py", ".yml", ".yaml"))))]


def make_archive(path: str) -> Archive | None:
    """Let module_common make the archive of a module, and return it. Return None if the module is not one of MODULES, if
    there is no archive, or if changes of one of its files could not be noticed.
    """
    import ansible.constants as constants
    import ansible.executor.module_common as module_common

    name = os.path.basename(path)[:-3]
    if os.path.basename(os.path.dirname(path)) != "modules" or name not in MODULES:
        return None
    directory = os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache")
    shutil.rmtree(directory, ignore_errors=True)
    with open(path, "rb") as file:
        source = file.read()
    arguments = {"module_name": name, "b_module_data": source, "module_path": path, "module_args": {}, "task_vars": {}, "templar": None,
                 "module_compression": constants.DEFAULT_MODULE_COMPRESSION, "async_timeout": 0, "environment": {}}
    names = module_common._find_module_utils.__code__.co_varnames
    arguments.update({name: None for name in ("become", "become_method", "become_user", "become_password", "become_flags", "become_plugin")
                      if name in names})
    try:
        module_common._find_module_utils(**arguments)
    except Exception:  # noqa: B902, what comes after the archive needs a task
        pass
    files = [name for name in os.listdir(directory) if not name.endswith((".lock", "-part"))] if os.path.isdir(directory) else []
    if len(files) != 1:
        return None
    with open(os.path.join(directory, files[0]), "rb") as file:
        content = file.read()
    made_of = {name: identity(name) for name in sources(path, content)}
    with unpack(content) as archive:
        # A utility that is not among these files is in a collection elsewhere: its changes would not be noticed.
        # An __init__.py may be missing: Ansible makes it then.
        utilities = [name for name in archive.namelist() if "/plugins/" in name and not name.endswith("/__init__.py")]
    if not all(any(made.endswith("/" + name) for made in made_of) for name in utilities):
        return None
    return Archive(source, constants.DEFAULT_MODULE_COMPRESSION, files[0], content, made_of)


def compile_imports(source: str | bytes, name: str, mode: str, flags: int = 0) -> object:
    """Take the place of compile() in module_common, which parses modules and module
    utilities to find their imports. Return the server's tree if it has parsed this source.
    """
    if flags == ast.PyCF_ONLY_AST:
        text = source.encode() if isinstance(source, str) else source
        if (tree := serverstate.IMPORTS.get(serverstate.key(bytes(text)))) is not None:
            return tree
    return compile(source, name, mode, flags)


def encoded(content: bytes) -> bytes:
    """Return an archive in base64, as the file of a module contains it."""
    import ansible.executor.module_common as module_common

    return pickle.loads(content).zip_data if hasattr(module_common, "_CachedModule") else content


def unpack(content: bytes) -> zipfile.ZipFile:
    """Return the zip file of an archive."""
    return zipfile.ZipFile(io.BytesIO(base64.b64decode(encoded(content))))


def merge(archives: list[zipfile.ZipFile]) -> bytes:
    """Return a zip file with the files of all archives. Files with the same name have the same content."""
    merged = io.BytesIO()
    with zipfile.ZipFile(merged, "w") as file:
        names: set[str] = set()
        for archive in archives:
            for name in archive.namelist():
                if name not in names:
                    file.writestr(name, archive.read(name))
                    names.add(name)
    return merged.getvalue()


def sources(path: str, content: bytes) -> list[str]:
    """Return the files from which an archive was made, and the paths in directories before Ansible's own where a file
    would replace one of them.
    """
    import ansible
    import ansible.plugins.loader as loader

    with unpack(content) as archive:
        names = archive.namelist()
    package = os.path.dirname(ansible.__file__)
    roots = [os.path.dirname(package)]
    found = [path, os.path.join(package, "config", "ansible_builtin_runtime.yml")]
    collection, separator, _ = path.rpartition("/plugins/modules/")
    if separator and "/ansible_collections/" in collection:
        roots.append(collection.rpartition("/ansible_collections/")[0])
        found += [os.path.join(collection, name) for name in ("MANIFEST.json", "meta/runtime.yml")]
    utilities = [name.removeprefix("ansible/module_utils/") for name in names if name.startswith("ansible/module_utils/")]
    for directory in existing(loader.module_utils_loader):
        if os.path.realpath(directory) != os.path.realpath(os.path.join(package, "module_utils")):
            found += [directory, *(os.path.join(directory, name) for name in utilities)]
    return found + [name for root in roots for name in (os.path.join(root, name) for name in names) if os.path.isfile(name)]


def identity(path: str) -> tuple | None:
    """Return what tells the versions of a file apart; None if there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def make_options() -> dict:
    """Return the documentation and options of the plugins that are imported, in the form of OPTIONS."""
    import ansible.constants as constants
    import ansible.plugins.loader as loader
    import ansible_runner

    made: dict[tuple[str | None, str, str], tuple[str, object]] = {}

    def note(self: Any, name: str, module: object, path: str) -> None:
        ordinary(self, name, module, path)
        kind = type_of(self)
        if kind in constants.CONFIGURABLE_PLUGINS:
            made[kind, name, path] = getattr(module, "DOCUMENTATION", ""), constants.config._plugins.get(kind, {}).get(name)

    ordinary = loader.PluginLoader._load_config_defs
    loader.PluginLoader._load_config_defs = note
    # ansible-runner's own callback is in this directory.
    loader.callback_loader.add_directory(os.path.join(os.path.dirname(ansible_runner.__file__), "display_callback", "callback"))
    for kind in ("become", "cache", "callback", "connection", "inventory", "lookup", "shell", "strategy", "vars"):
        plugins = getattr(loader, kind + "_loader")
        names = [name.rpartition(".")[2] for name in sys.modules if name.startswith(f"ansible.plugins.{kind}.")]
        attempt(list, plugins.all(class_only=True))
        for name in names:
            for form in (name, "ansible.builtin." + name, "ansible.legacy." + name):
                attempt(plugins.get, form, class_only=True)
    return made


def attempt(do: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """Call a function, and ignore its errors."""
    try:
        do(*args, **kwargs)
    except Exception:  # noqa: B902, the run that needs it reports why
        pass


def type_of(loader: Any) -> str | None:
    """Return the type of the plugins that a loader loads, as the configuration names it."""
    from ansible.plugins import get_plugin_class

    return get_plugin_class(loader.class_name) if loader.class_name else None


def install() -> None:
    """Let this run use the archives and options that the server has."""
    import ansible.constants as constants
    import ansible.executor.module_common as module_common
    import ansible.plugins.loader as loader

    find = module_common._find_module_utils
    names = find.__code__.co_varnames[:find.__code__.co_argcount + find.__code__.co_kwonlyargcount]

    def find_module_utils(*args: Any, **kwargs: Any) -> object:
        given = dict(zip(names, args)) | kwargs
        archive = ARCHIVES.get(str(given.get("module_path")))
        if archive is not None and archive[:2] == (given["b_module_data"], given["module_compression"]) \
                and existing(loader.module_utils_loader) == PLACES[0]:
            put(archive, os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"))
        return find(*args, **kwargs)

    module_common._find_module_utils = find_module_utils
    define = loader.PluginLoader._load_config_defs

    def load_config_defs(self: Any, name: str, module: object, path: str) -> None:
        kind = type_of(self)
        if constants.config.has_configuration_definition(kind, name):
            return
        source, options = OPTIONS.get((kind, name, path), (None, None))
        if source is None or source != getattr(module, "DOCUMENTATION", "") or existing(loader.fragment_loader) != PLACES[1]:
            define(self, name, module, path)
        elif options is not None:
            constants.config.initialize_plugin_configuration_definitions(kind, name, options)

    loader.PluginLoader._load_config_defs = load_config_defs


def put(archive: Archive, directory: str) -> None:
    """Write an archive to where module_common looks for it, unless there is one, or a file of it has changed."""
    path = os.path.join(directory, archive.name)
    if os.path.exists(path) or any(identity(name) != was for name, was in archive.files.items()):
        return
    os.makedirs(directory, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, delete=False) as file:
        file.write(archive.content)
    os.rename(file.name, path)
