"""The proof: whether the installed Ansible has the same code as a tested line in
all that the fork server replaces or relies on.

The code is compared by digests of its source, without comments, annotations and
layout. The digests of the tested lines are in tested.json, which `go test
./runner -run Proof -update` writes. The proof reads source files, and imports
none of them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator

import playbook

#: The functions, attributes and modules that the fork server replaces or relies on.
#: Not in the list: functions that it only calls, those that it only wraps to count
#: (ActionBase._execute_module), and those that make shell commands (connection.py
#: leaves commands that it does not know to the shell).
NAMES = """
    ansible.cli:check_blocking_io
    ansible.cli.playbook:main
    ansible.config.manager:ConfigManager.get_config_value
    ansible.config.manager:ConfigManager.get_configuration_definitions
    ansible.config.manager:ConfigManager.has_configuration_definition
    ansible.config.manager:ConfigManager.initialize_plugin_configuration_definitions
    ansible.config.manager:find_ini_config_file
    ansible.constants:set_constant
    ansible.executor.module_common:ModuleDepFinder
    ansible.executor.module_common:_CachedModule
    ansible.executor.module_common:_find_module_utils
    ansible.executor.process.worker:WorkerProcess._detach
    ansible.executor.process.worker:WorkerProcess.run
    ansible.plugins:get_plugin_class
    ansible.plugins.connection.local:Connection.exec_command
    ansible.plugins.loader:PluginLoader._get_paths
    ansible.plugins.loader:PluginLoader._load_config_defs
    ansible.plugins.loader:PluginLoader._load_module_source
    ansible.plugins.loader:init_plugin_loader
    ansible.plugins.strategy:StrategyBase.__init__
    ansible.plugins.strategy:StrategyBase._wait_on_pending_results
    ansible.plugins.strategy:results_thread_main
    ansible.utils.color
    ansible.utils.display:Display.__init__
    ansible.utils.path:cleanup_tmp_file
    ansible.utils.ssh_functions:_HAS_CONTROLPERSIST
    ansible.utils.ssh_functions:check_for_controlpersist
    ansible.utils.vars:get_unique_id
    ansible.utils.vars:random_int
    ansible_runner.runner:Runner.run
    kubernetes.config.kube_config:KUBE_CONFIG_DEFAULT_LOCATION
    multiprocessing.synchronize:SemLock.__init__
    os:_Environ.__getitem__
    zipimport:_get_module_path
    zipimport:zipimporter._get_files
    zipimport:zipimporter.get_code
""".split()

#: What only inprocess, fences, lazycopy and templates replace or rely on. If it differs, these are turned off, and each task
#: has a worker.
COMPUTING = """
    ansible._internal._task
    ansible._internal._templating._engine
    ansible._internal._templating._jinja_bits
    ansible._internal._templating._jinja_plugins
    ansible.executor.process.worker:WorkerProcess
    ansible.executor.task_executor:TaskExecutor
    ansible.executor.task_queue_manager:FinalQueue
    ansible.executor.task_result
    ansible.parsing.dataloader:DataLoader
    ansible.plugins.action:ActionBase
    ansible.plugins.action.assert
    ansible.plugins.action.command
    ansible.plugins.action.debug
    ansible.plugins.action.fail
    ansible.plugins.action.gather_facts
    ansible.plugins.action.include_vars
    ansible.plugins.action.normal
    ansible.plugins.action.set_fact
    ansible.plugins.action.set_stats
    ansible.plugins.action.shell
    ansible.plugins.action.validate_argument_spec
    ansible.plugins.connection.local:Connection
    ansible.plugins.loader:Jinja2Loader
    ansible.plugins.loader:PluginLoader._find_plugin_legacy
    ansible.plugins.loader:PluginLoader.get_with_context
    ansible.plugins.loader:get_all_plugin_loaders
    ansible.plugins.lookup.dict
    ansible.plugins.lookup.env
    ansible.plugins.lookup.file
    ansible.plugins.lookup.fileglob
    ansible.plugins.lookup.first_found
    ansible.plugins.lookup.flattened
    ansible.plugins.lookup.indexed_items
    ansible.plugins.lookup.items
    ansible.plugins.lookup.list
    ansible.plugins.lookup.nested
    ansible.plugins.lookup.sequence
    ansible.plugins.lookup.subelements
    ansible.plugins.lookup.template
    ansible.plugins.lookup.together
    ansible.plugins.lookup.varnames
    ansible.plugins.lookup.vars
    ansible.plugins.shell.sh
    ansible.plugins.strategy:StrategyBase._queue_task
    ansible.template
    ansible.template.vars
    ansible.utils.display:Display.display
    ansible.vars.hostvars
    jinja2.environment:Environment._compile
    jinja2.environment:Environment._generate
    jinja2.environment:Environment.compile
    jinja2.environment:Environment.compile_expression
    jinja2.environment:Environment.from_string
    jinja2.utils:_PassArg
""".split()

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tested.json")


def differs(core: str) -> list[str]:
    """Return the parts of this version of ansible-core whose code is like that of no
    tested line, and the settings that are unknown. The list is empty for a version of a tested line.
    """
    with open(TABLE, encoding="utf-8") as file:
        table = json.load(file)
    if line(core) in table["lines"]:
        return []
    return [name for name, digest in digests().items() if digest not in table["names"][name].values() and source_of(re.split("[.:]", name)[0])] \
        + sorted(f"{name} is read when Ansible is imported" for name in unknown_settings())


def workers(core: str) -> list[str]:
    """Return the names of COMPUTING whose code differs. Ansible's must be that of the tested version of the same line, and
    is not compared if core is a tested version; Jinja's must be that with any tested line. The list is empty for a version
    of a line that was not tested.
    """
    with open(TABLE, encoding="utf-8") as file:
        table = json.load(file)
    if line(core) not in table["lines"]:
        return []
    names = [name for name in COMPUTING if core not in table["versions"] or not name.startswith("ansible.")]
    known = {name: digests if not name.startswith("ansible.") else {line(core): digests.get(line(core))} for name, digests in table["names"].items()}
    return [name for name, digest in digests(names).items() if digest not in known[name].values()]


def line(core: str) -> str:
    """Return the line of a version: 2.19 of 2.19.11."""
    return ".".join(core.split(".")[:2])


def digests(names: list[str] = NAMES) -> dict[str, str]:
    """Return the digest of each name; an empty string if this version does not have it."""
    trees: dict[str, ast.Module | None] = {}
    found = {}
    for name in names:
        module, _, attribute = name.partition(":")
        if module not in trees:
            trees[module] = parse(source_of(module))
        tree = trees[module]
        parts: list[ast.AST] = [] if tree is None else [tree] if not attribute else list(definitions(tree, attribute.split(".")))
        found[name] = hashlib.sha256(repr([normal(part) for part in parts]).encode()).hexdigest()[:12] if parts else ""
    return found


def source_of(module: str) -> str | None:
    """Return the path of a module's source, without importing the module; None if there is no source."""
    top, *rest = module.split(".")
    known = sys.modules.get(top)
    spec = importlib.util.find_spec(top)
    origin = getattr(known, "__file__", None) or (spec and spec.origin)
    if not origin or not os.path.isabs(origin):  # part of the interpreter
        origin = os.path.join(os.path.dirname(os.__file__), top + ".py")
    base = os.path.join(os.path.dirname(origin), *rest)
    if not rest:
        return origin if os.path.isfile(origin) else None
    return next((path for path in (base + ".py", os.path.join(base, "__init__.py")) if os.path.isfile(path)), None)


def parse(path: str | None) -> ast.Module | None:
    """Return the syntax tree of a file; None if there is no file."""
    if path is None or not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        return ast.parse(file.read())


def definitions(tree: ast.AST, names: list[str]) -> Iterator[ast.AST]:
    """Yield the definitions of a dotted name, given as its parts, in a module or class, also those below an if or try."""
    for node in ast.iter_child_nodes(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        own = getattr(node, "name", None)
        if own == names[0] or any(isinstance(target, ast.Name) and target.id == names[0] for target in targets):
            if len(names) == 1:
                yield node
            else:
                yield from definitions(node, names[1:])
        elif own is None:
            yield from definitions(node, names)


def normal(node: object) -> object:
    """Return a syntax tree in a form that is the same with every version of Python."""
    if isinstance(node, list):
        return [normal(part) for part in node]
    if not isinstance(node, ast.AST):
        return node
    fields = []
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "kind", "type_comment", "ctx"):
            continue
        if name == "body" and isinstance(value, list) and value and isinstance(value[0], ast.Expr) and isinstance(value[0].value, ast.Constant):
            value = value[1:]  # without the docstring
        if value is not None and value != []:
            fields.append((name, normal(value)))
    return (type(node).__name__, fields)


def unknown_settings() -> set[str]:
    """Return the settings that Ansible reads when it is imported, but that playbook
    knows neither as kept (is_kept) nor as renewed (RENEWED).
    """
    root = os.path.dirname(source_of("ansible") or "")
    with open(os.path.join(root, "config", "base.yml"), encoding="utf-8") as file:
        settings = set(re.findall(r"^(_?[A-Z][A-Z0-9_]*):", file.read(), re.MULTILINE))
    read: set[str] = set()
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if name not in ("modules", "module_utils")]
        for file_name in files:
            tree = parse(os.path.join(directory, file_name)) if file_name.endswith(".py") else None
            if tree is not None:
                read.update(read_at_import(tree))
    return {name for name in read & settings if not playbook.is_kept(name) and name not in playbook.RENEWED}


#: Methods whose first argument names a setting that they read.
READERS = frozenset(["get_config_value", "get_config_value_and_origin", "from_config"])


def read_at_import(tree: ast.Module) -> set[str]:
    """Return the names of the settings that a module reads when it is imported:
    outside of functions, but also in class bodies, default arguments and decorators.
    """
    aliases: set[str] = set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "ansible":
            aliases.update(alias.asname or alias.name for alias in node.names if alias.name == "constants")
        elif isinstance(node, ast.Import):
            aliases.update(alias.asname for alias in node.names if alias.name == "ansible.constants" and alias.asname)
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            names.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module == "ansible.constants":
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in READERS and node.args and isinstance(node.args[0], ast.Constant):
            names.add(str(node.args[0].value))
            queue.extend(node.args[1:])
            continue
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            queue.extend([*node.args.defaults, *filter(None, node.args.kw_defaults), *getattr(node, "decorator_list", [])])
            continue
        queue.extend(ast.iter_child_nodes(node))
    return names
