"""The templates that stand in the content of the watches, taken apart and compiled before there are runs: each run would do
so again.

The server reads no content itself. A process does that which it forks when it starts, which has nothing of any object, renders
nothing, imports no plugin but Ansible's, and ends before the first run. A template is known by its text: one that is changed
later, or is not found, is compiled by the run that needs it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import marshal
import os
import re
import resource
import select
import signal
import stat
import sys
import time
import types
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import ansiblefiles
import fences
import process
import switches

#: The file beside this one that has the directories with the content, a list in JSON.
DIRECTORIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "content.json")
#: What is read of the content: directories and files, bytes of a file, and of all files.
MOST_PLACES, LONGEST, MOST = 4000, 1 << 18, 16 << 20
#: How many characters of templates are compiled, and how much memory that may take beside the server's.
MOST_SOURCE, MEMORY = 4 << 20, 256 << 20
#: How much CPU time the process may take, and how long it is waited for, in seconds.
SECONDS, PATIENCE = 5, 15
#: Directories that are not looked at.
LEFT_OUT = {"__pycache__", "ansible_collections", "files", "node_modules"}
#: The names of lists and texts that are expressions without braces.
EXPRESSIONS = {"changed_when", "failed_when", "that", "until", "when"}
#: What YAML has in which there is a template.
SAYS_MORE = re.compile(rb"{{|{%|\b(?:" + "|".join(sorted(EXPRESSIONS)).encode() + rb")\b")
#: What of an environment has a part in what a source is compiled to.
SETTINGS = ("block_start_string", "block_end_string", "variable_start_string", "variable_end_string", "comment_start_string",
            "comment_end_string", "line_statement_prefix", "line_comment_prefix", "trim_blocks", "lstrip_blocks", "newline_sequence",
            "keep_trailing_newline", "optimized", "autoescape", "is_async")

#: What tells compiled templates apart: see [key].
Key = tuple


class Translated(NamedTuple):
    """A template that is compiled."""

    code: types.CodeType
    #: The filters and tests in it: where they are kept, the name, and what of the template they are called with. It has a part
    #: in the code.
    plugins: tuple[tuple[str, str, str], ...]


#: Those of the content.
TRANSLATED: dict[Key, Translated] = {}


def key(environment: Any, source: str, expression: bool = False) -> Key:
    """Return what a source is compiled to depends on, but for its filters and tests."""
    finalize = environment.finalize
    return (type(environment).__module__, type(environment).__qualname__, getattr(finalize, "__qualname__", None), expression, escapes(),
            *(getattr(environment, name) for name in SETTINGS), *sorted(environment.extensions), str(source))


def escapes() -> bool:
    """Tell whether backslashes in texts are kept, which from ansible-core 2.19 on the one says who compiles."""
    bits: Any = sys.modules.get("ansible._internal._templating._jinja_bits")
    context: Any = bits and bits._TemplateCompileContext.current(optional=True)
    return bool(context and context.escape_backslashes)


def find(environment: Any, source: str, expression: bool = False) -> types.CodeType | None:
    """Return what a source is compiled to, if it is known."""
    found = TRANSLATED.get(key(environment, source, expression))
    if found is None:
        return None
    try:
        if any(passed(environment, kind, name) != how for kind, name, how in found.plugins):
            return None
    except Exception:  # noqa: B902, of a plugin that cannot be loaded: the ordinary way says so
        return None
    return found.code


def passed(environment: Any, kind: str, name: str) -> str:
    """Return with what of the template a filter or test is called, as jinja2 decides it."""
    from jinja2.utils import _PassArg

    plugin = getattr(environment, kind).get(name)
    return "missing" if plugin is None else str(_PassArg.from_obj(plugin))


def load() -> None:
    """Fill TRANSLATED. Called once, by the server, when it has imported everything."""
    with open(DIRECTORIES, encoding="utf-8") as file:
        directories = json.load(file) or []
    if switches.without("content") or switches.without("templates"):
        return
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:  # a lack of processes: runs do without
        os.close(read)
        os.close(write)
        return
    if pid == 0:
        tell(directories, write)
    os.close(write)
    answer = receive(read)
    os.close(read)
    for kill in (os.killpg, os.kill):  # it has ended, or is late; there is no group yet if it has not begun
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with contextlib.suppress(EOFError, ValueError, TypeError):  # where it was cut
        while True:
            found, code, plugins = marshal.load(answer)
            TRANSLATED[found] = Translated(code, plugins)


def receive(read: int) -> BinaryIO:
    """Return what the process says until it ends, or is late."""
    parts = []
    deadline = time.monotonic() + PATIENCE
    while (left := deadline - time.monotonic()) > 0 and select.select([read], [], [], left)[0]:
        if not (part := os.read(read, 1 << 20)):
            break
        parts.append(part)
    return io.BytesIO(b"".join(parts))


def tell(directories: list[str], write: int) -> None:
    """Compile the templates of the content and write them. It does not return."""
    code = 1
    try:
        os.setsid()
        process.reset_signals()
        process.prctl(process.PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        with open("/proc/self/statm", encoding="ascii") as statm:
            memory = int(statm.read().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        # What is told when a template is compiled is for the run to tell.
        warnings.simplefilter("error")
        with open(write, "wb") as answer:
            for found in translate(directories):
                marshal.dump(found, answer)
        code = 0
    finally:
        os._exit(code)


def translate(directories: list[str]) -> Iterator[tuple]:
    """Return keys of templates, what they are compiled to, and their filters and tests."""
    import ansible.plugins.loader as loader

    if fences.has_others():
        return  # to ask for a filter would import them
    for each in (loader.filter_loader, loader.test_loader):
        each._ensure_non_collection_wrappers()
    environment, compiler = new_environment(), Compiler()
    environment._generate, environment._compile = compiler.generate, compiler.compile
    compiler.environment = environment
    told: set[Key] = set()
    left = MOST_SOURCE
    for text in itertools.chain(ANSIBLES, texts(directories)):
        left -= len(text.source)
        if left < 0:
            return
        with contextlib.suppress(Exception), escaping(text):  # the run that uses it has the error
            source, expression = adapted(environment, text)
            found = key(environment, source, expression)
            if found in told:
                continue
            told.add(found)
            if expression:
                environment.compile_expression(source, False)
            else:
                environment.from_string(source)
            yield found, compiler.code, compiler.plugins


class Compiler:
    """Takes the place of what compiles the templates of an environment, and keeps what it has made last."""

    environment: Any
    code: types.CodeType
    plugins: tuple[tuple[str, str, str], ...]

    def generate(self, tree: Any, *args: Any, **kwargs: Any) -> str:
        import ansible.plugins.loader as loader
        from jinja2 import nodes

        grows = any(not any(node.find_all(nodes.Name)) for node in tree.find_all((nodes.Mul, nodes.Pow)))  # when it is compiled
        if grows or folds(tree) or fences.reached(tree) is not None:
            raise ValueError
        used = {("filters" if isinstance(node, nodes.Filter) else "tests", node.name) for node in tree.find_all((nodes.Filter, nodes.Test))}
        loaders = {"filters": loader.filter_loader, "tests": loader.test_loader}
        if not all(fences.keeps_nothing(loaders[kind], name.removeprefix("ansible.builtin.")) for kind, name in used):
            raise ValueError  # to ask for it would import what is not Ansible's
        self.plugins = tuple((kind, name, passed(self.environment, kind, name)) for kind, name in sorted(used))
        return type(self.environment)._generate(self.environment, tree, *args, **kwargs)

    def compile(self, source: str, filename: str) -> types.CodeType:
        self.code = type(self.environment)._compile(self.environment, source, filename)
        return self.code


def folds(tree: Any) -> bool:
    """Tell whether a filter or test may be computed when the template is compiled: one that has no variable, or one behind
    which a variable may not be looked at.
    """
    from jinja2 import nodes

    for node in tree.find_all((nodes.Filter, nodes.Test)):
        if node.node is None:
            continue
        if not any(node.find_all(nodes.Name)) or any(node.find_all((nodes.Or, nodes.And, nodes.CondExpr, nodes.Compare))):
            return True
    return False


def new_environment() -> Any:
    """Return an environment of templates as Ansible has it."""
    if ansiblefiles.has_engine():
        from ansible._internal._templating._jinja_bits import AnsibleEnvironment

        return AnsibleEnvironment()
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    return Templar(loader=DataLoader()).environment


class Text(NamedTuple):
    """A template of the content: that of a file, a value, or an expression without braces."""

    source: str
    kind: str


#: Templates that Ansible has itself, of the host localhost and of loops.
ANSIBLES = (Text("{{ansible_playbook_python}}", "value"), Text("{{item}}", "value"))


def escaping(text: Text) -> contextlib.AbstractContextManager:
    """Return the context in which Ansible compiles such a text."""
    if not ansiblefiles.has_engine():
        return contextlib.nullcontext()
    from ansible._internal._templating._jinja_bits import _TemplateCompileContext

    return _TemplateCompileContext(escape_backslashes=text.kind == "value")


def adapted(environment: Any, text: Text) -> tuple[str, bool]:
    """Return what Ansible has compiled for such a text, and whether it is an expression."""
    if ansiblefiles.has_engine():
        return text.source, text.kind == "expression"
    from ansible.template import _escape_backslashes

    source = f"{{% if {text.source} %}} True {{% else %}} False {{% endif %}}" if text.kind == "expression" else text.source
    return source if text.kind == "file" else _escape_backslashes(source, environment), False


def texts(directories: list[str]) -> Iterator[Text]:
    """Return the templates in the files below directories."""
    left = MOST
    for path in files(directories):
        with contextlib.suppress(Exception):  # of a file that a run cannot read either, or says more of
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST:
                continue
            left -= status.st_size
            if left < 0:
                return
            with open(path, "rb") as file:
                content = file.read(LONGEST)
            if not path.endswith((".yml", ".yaml")) or f"{os.sep}templates{os.sep}" in path:
                if is_template(source := content.decode()):
                    yield Text(source, "file")
            elif SAYS_MORE.search(content):
                yield from values(content)


def files(directories: list[str]) -> Iterator[str]:
    """Return the YAML files and templates below directories, and behind links there."""
    seen: set[str] = set()
    left = MOST_PLACES
    for directory in directories:
        for place, below, names in os.walk(directory, followlinks=True):
            real = os.path.realpath(place)
            below[:] = [] if real in seen else sorted(name for name in below if not name.startswith(".") and name not in LEFT_OUT)
            if real in seen:
                continue
            seen.add(real)
            wanted = [name for name in sorted(names) if not name.startswith(".")
                      and (name.endswith((".yml", ".yaml", ".j2")) or f"{os.sep}templates" in place)]
            left -= 1 + len(wanted)
            if left < 0:
                return
            yield from (os.path.join(place, name) for name in wanted)


def is_template(source: str) -> bool:
    """Tell whether there is something to compute in a text. One that sets its own marks is for the run to read."""
    return ("{{" in source or "{%" in source) and not source.startswith("#jinja2:")


def values(content: bytes) -> Iterator[Text]:
    """Return the templates that are values of YAML documents."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    Loader.add_multi_constructor("!", lambda loader, tag, node: node.value if isinstance(node.value, str) else None)
    left: list[tuple[Any, bool]] = [(document, False) for document in yaml.load_all(content, Loader)]
    seen: set[int] = set()
    while left:
        value, expression = left.pop()
        if isinstance(value, str):
            if is_template(value):
                yield Text(value, "value")
            elif expression and value:
                yield Text(value, "expression")
        elif isinstance(value, (dict, list)) and id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, dict):
                left += [(each, name in EXPRESSIONS) for name, each in value.items()]
            else:
                left += [(each, expression) for each in value]
