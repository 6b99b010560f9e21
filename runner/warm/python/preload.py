"""What the server imports and reads before it forks.

serverstate keeps what is read only once, at import, and may differ between runs. A
run in which it does differ executes ansible-playbook, unless playbook.refresh can
read it again; see playbook.unsuited. Only the server imports this file.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import shutil
import sys

import ansiblefiles
import preimports
import process
import serverstate
import vfork


def load(path: list[str]) -> None:
    """Import and read everything. Called once, by the server."""
    serverstate.COOKIE = process.Cookie()
    serverstate.PATH[:] = path
    os.environ.pop(process.COOKIE_NAME, None)
    serverstate.ENVIRONMENT.update(os.environ)
    # In the C locale, the interpreter itself sets LC_CTYPE (PEP 538). The environment that the operator gave it has none.
    with open("/proc/self/environ", "rb") as file:
        given = {os.fsdecode(entry.partition(b"=")[0]) for entry in file.read().split(b"\0")}
    serverstate.COERCED.update({name: value for name, value in os.environ.items() if name == "LC_CTYPE" and name not in given})
    # Do not read an ansible.cfg in the operator's working directory: runs have
    # another working directory.
    home = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    with preimports.Recorder() as recorder:
        preimports.import_controller()
        preimports.import_libraries()
    serverstate.READ.update(recorder.names)
    serverstate.CONFIG_FILE = ansiblefiles.config_file()
    os.fchdir(home)
    os.close(home)
    import atexit

    import ansible.constants as constants
    from ansible.utils.path import cleanup_tmp_file

    serverstate.SETTINGS.update({name: getattr(constants, name) for name in constants.config.get_configuration_definitions()})
    # This temporary directory is the server's. Each run makes its own.
    atexit.unregister(cleanup_tmp_file)
    cleanup_tmp_file(constants.DEFAULT_LOCAL_TMP)
    compile_modules()
    serverstate.FINDERS.update({path: finder for path, finder in sys.path_importer_cache.items()
                                if path in serverstate.PATH and isinstance(finder, importlib.machinery.FileFinder)})
    begin_tls()
    check_ssh()
    # Not at the head of this file: the recorder must see what the first import of their libraries reads.
    import prepared
    import runhead  # noqa: F401, which imports all others, so that no run has to
    import shared
    import translated
    import utilities

    archive = prepared.load()
    with preimports.Recorder() as recorder:
        utilities.load(archive)
    serverstate.READ.update(recorder.names)
    translated.load()
    shared.find()


def begin_tls() -> None:
    """Begin a TLS connection to nowhere: OpenSSL looks up its algorithms for the first
    connection of a process, and keeps what it has found.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass


def check_ssh() -> None:
    """Ask ssh what each run would ask it. If ssh is replaced later, serverabout.sources lets the operator notice."""
    from ansible.utils.ssh_functions import check_for_controlpersist

    if shutil.which("ssh"):
        check_for_controlpersist("ssh")


def compile_modules() -> None:
    """Fill serverstate.CODES, from .pyc files if there are any, and serverstate.IMPORTS."""
    for path in ansiblefiles.module_files():
        with open(path, "rb") as file:
            source = file.read()
        key = serverstate.key(source)
        try:
            code = vfork.compiled(source, path) or importlib.machinery.SourceFileLoader("module", path).get_code("module")
            if code is not None:
                serverstate.CODES[key] = code
            if "/ansible/modules/" not in path or os.path.basename(path)[:-3] in USUAL:
                serverstate.IMPORTS[key] = prune(ast.parse(source))
        except (SyntaxError, OSError, ImportError):
            continue


#: Ansible's own modules whose imports are kept. Parsing all modules would take a second.
USUAL = {"command", "copy", "file", "get_url", "ping", "setup", "slurp", "stat", "tempfile", "uri", "wait_for"}


def prune(tree: ast.Module) -> ast.Module:
    """Return the parts of a source from which Ansible finds the module utilities that
    the source needs: imports (conditional ones below an if), METADATA, and the files
    that it embeds (ansible-core 2.21 and newer).
    """
    top: list[ast.stmt] = []
    nested: list[ast.stmt] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            (top if node in tree.body else nested).append(node)
    top += [node for node in tree.body if isinstance(node, ast.Assign)
            and (any(isinstance(target, ast.Name) and target.id == "METADATA" for target in node.targets) or embeds(node.value))]
    return ast.Module(body=[*top, ast.If(test=ast.Constant(value=True), body=nested, orelse=[])], type_ignores=[])


def embeds(value: ast.expr) -> bool:
    """Tell whether ModuleDepFinder may take a value for a file to embed."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "embed"
