"""What the server has imported and read before it forks, and what that depends on.

Whatever is read once, at import, and may differ between runs, is named here:
a run in which it does differ is not forked but executed, see playbook.unsuited.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.machinery
import io
import mmap
import os
import pkgutil
import resource
import shutil
import sys
import types

import process
import utilities

COOKIE: process.Cookie
#: The search path of an interpreter whose script has no directory.
PATH: list[str] = []
#: What decides about the module utilities that a source needs, by the key of the source.
IMPORTS: dict[tuple[int, int], ast.Module] = {}
#: Who finds modules in the directories of PATH, and has listed them.
FINDERS: dict[str, importlib.machinery.FileFinder] = {}
#: Variables that imports have read, other than those that ansible.constants
#: has: their values are part of the server.
READ: set[str] = set()
#: Values of ansible.constants in the server.
SETTINGS: dict[str, object] = {}
#: The configuration file, with what tells its versions apart; or None.
CONFIG_FILE: tuple | None = None

_ENVIRONMENT: dict[str, str] = {}

#: A file to which is written what becomes of the parts of a run; empty for none.
TRACE = ""
#: What is noted of each run: the beginnings of the lines of the trace.
NOTED = ("playbook forked", "playbook executed", "module forked", "module executed")
#: The notes: a byte for each of NOTED, then why the playbook is executed. The
#: processes of a run share them.
_notes: mmap.mmap | None = None


def begin_run(trace_file: str) -> None:
    """Make room for the notes of a run. Called by its leader."""
    global TRACE, _notes
    TRACE = trace_file
    _notes = mmap.mmap(-1, mmap.PAGESIZE)


def trace(*words: str) -> None:
    """Note what becomes of a part of a run."""
    line = " ".join(words)
    if _notes is not None:
        for index, what in enumerate(NOTED):
            if line.startswith(what):
                _notes[index] = 1
        if line.startswith("playbook executed"):
            why = line.partition(": ")[2].encode()[: len(_notes) - len(NOTED)]
            _notes[len(NOTED) : len(NOTED) + len(why)] = why
    if TRACE:
        with open(TRACE, "a") as file:
            file.write(line + "\n")


def trace_usage(kind: str) -> None:
    """Note what this process has taken, and its children which it has waited for:
    CPU time of user and system in seconds, and page faults. Called as the last thing.
    """
    if TRACE:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        trace("used", kind, *(f"{value}" for used in (own, children) for value in (used.ru_utime, used.ru_stime, used.ru_minflt)))


def notes() -> str:
    """Return lines with what of NOTED has happened in the run, and why the playbook was executed."""
    page = bytes(_notes)
    why = page[len(NOTED) :].rstrip(b"\0").decode(errors="replace")
    return "\n".join(f"{what}: {why}" if what == "playbook executed" else what for what, happened in zip(NOTED, page) if happened)


def environment() -> dict[str, str]:
    """Return the environment of the server, without the cookie."""
    return _ENVIRONMENT


def about() -> dict:
    """Tell what runs would find."""
    import ansible.release

    return {"core": ansible.release.__version__, "python": sys.executable, "pid": os.getppid(), "files": sources()}


def sources() -> list[str]:
    """Return the paths of all that the server has imported and read, and of what
    it would have: a server is as good as they are what they were.
    """
    own = os.path.dirname(os.path.abspath(__file__)) + os.sep
    found = {module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    # Packages come and go in the directories of the search path.
    found.update(PATH)
    found.update(filter(None, [shutil.which("ssh", path=_ENVIRONMENT.get("PATH"))]))
    configured = os.environ.get("ANSIBLE_CONFIG", "")
    found.update((configured, os.path.join(configured, "ansible.cfg"), os.path.expanduser("~/.ansible.cfg"), "/etc/ansible/ansible.cfg"))
    found.update(os.path.join(place, "MANIFEST.json") for place in kubernetes_core())
    import prepared

    found.update(prepared.fragments())
    return sorted(path for path in found if os.path.isabs(path) and not path.startswith(own))


def load(path: list[str]) -> None:
    """Import and read everything. Called once, by the server."""
    global COOKIE, CONFIG_FILE
    COOKIE = process.Cookie()
    PATH[:] = path
    os.environ.pop(process.COOKIE_NAME, None)
    _ENVIRONMENT.update(os.environ)
    # An ansible.cfg beside the operator is none of a run's business, whose
    # working directory is another.
    home = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    with Recorder() as recorder:
        import_controller()
        import_libraries()
    READ.update(recorder.names)
    CONFIG_FILE = config_file()
    os.fchdir(home)
    os.close(home)
    import atexit

    import ansible.constants as constants
    from ansible.utils.path import cleanup_tmp_file

    SETTINGS.update({name: getattr(constants, name) for name in constants.config.get_configuration_definitions()})
    # The directory of the server; each run makes its own.
    atexit.unregister(cleanup_tmp_file)
    cleanup_tmp_file(constants.DEFAULT_LOCAL_TMP)
    compile_modules()
    FINDERS.update({path: finder for path, finder in sys.path_importer_cache.items()
                    if path in PATH and isinstance(finder, importlib.machinery.FileFinder)})
    read_kubeconfigs_quickly()
    write_discovery_quickly()
    begin_tls()
    check_ssh()
    import command, connection, leader, module, playbook, prepared, shared  # noqa: E401, F401, so that no run has to

    archive = prepared.load()
    with Recorder() as recorder:
        utilities.load(archive)
    READ.update(recorder.names)
    shared.find()


def read_kubeconfigs_quickly() -> None:
    """Let the Kubernetes client read its configuration by YAML's parser in C.
    What that refuses, the other one refuses in its own words.
    """
    config = sys.modules.get("kubernetes.config.kube_config")
    yaml = sys.modules.get("yaml")
    if config is None or not hasattr(yaml, "CSafeLoader"):
        return

    class Yaml:
        """The module yaml, as the Kubernetes client uses it."""

        def __getattr__(self, name: str) -> object:
            return getattr(yaml, name)

        @staticmethod
        def safe_load(file: io.TextIOBase) -> object:
            try:
                return yaml.load(file, yaml.CSafeLoader)
            except yaml.YAMLError:
                getattr(file, "seek", lambda _: None)(0)  # it may be a text
                return yaml.safe_load(file)

    config.yaml = Yaml()


def write_discovery_quickly() -> None:
    """Let the Kubernetes client encode what it has found out about the API at
    once, not piece by piece by a generator in Python.
    """
    import json

    discovery = sys.modules.get("kubernetes.dynamic.discovery")
    if discovery is None:
        return

    class Json:
        """The module json, as the Kubernetes client uses it."""

        def __getattr__(self, name: str) -> object:
            return getattr(json, name)

        @staticmethod
        def dump(value: object, file: io.TextIOBase, **kwargs: object) -> None:
            file.write(json.dumps(value, **kwargs))

    discovery.json = Json()


def begin_tls() -> None:
    """Begin a connection that goes nowhere: OpenSSL looks for its algorithms at
    the first of a process, and keeps what it has found.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass


def check_ssh() -> None:
    """Ask ssh what each run would ask it. That it is another one later, about tells."""
    from ansible.utils.ssh_functions import check_for_controlpersist

    if shutil.which("ssh"):
        check_for_controlpersist("ssh")


class Recorder:
    """Notes the environment variables that are read, except by Ansible's configuration."""

    def __enter__(self) -> Recorder:
        self.names: set[str] = set()
        self.original = os._Environ.__getitem__

        def record(environ: os._Environ, name: str) -> str:
            frame = sys._getframe(1)
            while frame and frame.f_globals.get("__name__") in ("os", "collections.abc", "_collections_abc"):
                frame = frame.f_back
            if frame and frame.f_globals.get("__name__") not in ("ansible.utils.py3compat", "ansible.config.manager"):
                self.names.add(name)
            return self.original(environ, name)

        os._Environ.__getitem__ = record
        return self

    def __exit__(self, *_: object) -> None:
        os._Environ.__getitem__ = self.original


def config_file() -> tuple | None:
    """Return the configuration file that Ansible finds here, and its version."""
    from ansible.config.manager import find_ini_config_file

    path = find_ini_config_file()
    if path is None:
        return None
    status = os.stat(path)
    return (path, status.st_mtime_ns, status.st_size, status.st_ino)


#: Packages of plugins of which a run needs some. Of most, it imports all.
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
            if info.name != "base":  # deprecated, and says so once
                attempt(f"ansible.plugins.{kind}.{info.name}")
        unshadow(package, own)
    load_jinja_plugins()
    prepare_templates()


def prepare_templates() -> None:
    """Let jinja2 prepare what takes templates apart: each worker would."""
    try:
        from ansible._internal._templating._jinja_bits import AnsibleEnvironment
    except ImportError:  # ansible-core 2.14
        from ansible.parsing.dataloader import DataLoader
        from ansible.template import Templar

        environment = Templar(loader=DataLoader()).environment
    else:
        environment = AnsibleEnvironment()
    environment.lexer  # noqa: B018, it is kept


def load_jinja_plugins() -> None:
    """Load filters and tests under the names that Ansible gives to their files:
    each worker that has a template would.
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
    """Give a package back the names that it uses: a module that is imported
    becomes an attribute of its package, where the plugin list hides Python's.
    Ansible loads plugins without that.
    """
    for name, value in list(vars(package).items()):
        if name in own and own[name] is not value:
            setattr(package, name, own[name])
        elif name not in own and hasattr(builtins, name):
            delattr(package, name)


def attempt(name: str) -> None:
    """Import what may be missing, or unusable here."""
    try:
        importlib.import_module(name)
    except (Exception, SystemExit):  # noqa: B902, whoever needs it will see why
        pass


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


#: Standard modules that only some modules need, or that do things when imported.
SHUNNED = {"ansible", "ansible_collections", "antigravity", "idlelib", "lib2to3", "readline", "test", "this", "tkinter", "turtle",
           "__future__", "curses", "pdb", "six", "imp", "asyncore", "asynchat", "smtpd", "distutils"}


def import_libraries() -> None:
    """Import what modules import: standard modules, and everything for kubernetes.core."""
    wanted: set[str] = set()
    for path in module_files():
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
    """Return the names that a source file imports by their full names."""
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def compile_modules() -> None:
    """Fill utilities.CODES, from compiled files where there are some, and IMPORTS."""
    for path in module_files():
        with open(path, "rb") as file:
            source = file.read()
        key = utilities.key(source)
        try:
            utilities.CODES[key] = importlib.machinery.SourceFileLoader("module", path).get_code("module")
            if "/ansible/modules/" not in path or os.path.basename(path)[:-3] in USUAL:
                IMPORTS[key] = prune(ast.parse(source))
        except (SyntaxError, OSError, ImportError):
            continue


#: Those of Ansible's own modules whose imports are kept: to parse all takes a second.
USUAL = {"command", "copy", "file", "get_url", "ping", "setup", "slurp", "stat", "tempfile", "uri", "wait_for"}


def prune(tree: ast.Module) -> ast.Module:
    """Return of a source what Ansible looks at to find the module utilities that
    it needs: imports, whether they are conditional, and METADATA.
    """
    top, nested = [], []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            (top if node in tree.body else nested).append(node)
    top += [node for node in tree.body if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "METADATA" for target in node.targets)]
    return ast.Module(body=[*top, ast.If(test=ast.Constant(value=True), body=nested, orelse=[])], type_ignores=[])
