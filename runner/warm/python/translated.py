"""The templates in the content of the watches, parsed and compiled when the server starts. Otherwise each run would do so
again.

The server itself reads no content. It forks a process for that, which has no data of any object, renders nothing, imports
only Ansible's own plugins, and ends before the first run. A run finds a compiled template by its text. It compiles itself
what has changed since, and what this process has not found.
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

#: The file, in the directory of this one, with the directories of the content: a list in JSON.
DIRECTORIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "content.json")
#: Limits for reading the content: the number of directories and files, the bytes of one file, and those of all files.
MOST_PLACES, LONGEST, MOST = 4000, 1 << 18, 16 << 20
#: How many characters of templates are compiled, and how many bytes of memory that may take besides the server's.
MOST_SOURCE, MEMORY = 4 << 20, 256 << 20
#: How much CPU time the process may take, and how long the server waits for it, in seconds.
SECONDS, PATIENCE = 5, 15
#: The names of directories that are skipped.
LEFT_OUT = {"__pycache__", "ansible_collections", "files", "node_modules"}
#: The keys in YAML whose values, texts or lists of texts, are expressions without braces.
EXPRESSIONS = {"changed_when", "failed_when", "that", "until", "when"}
#: Matches YAML that may contain a template.
SAYS_MORE = re.compile(rb"{{|{%|\b(?:" + "|".join(sorted(EXPRESSIONS)).encode() + rb")\b")
#: The attributes of an environment that affect the code of its templates.
SETTINGS = ("block_start_string", "block_end_string", "variable_start_string", "variable_end_string", "comment_start_string",
            "comment_end_string", "line_statement_prefix", "line_comment_prefix", "trim_blocks", "lstrip_blocks", "newline_sequence",
            "keep_trailing_newline", "optimized", "autoescape", "is_async")

#: Identifies a compiled template: see [key].
Key = tuple


class Translated(NamedTuple):
    """A compiled template."""

    code: types.CodeType
    #: Its filters and tests: "filters" or "tests", the name, and what Jinja passes to it (see passed). The code depends on
    #: the latter.
    plugins: tuple[tuple[str, str, str], ...]


#: The compiled templates of the content.
TRANSLATED: dict[Key, Translated] = {}


def key(environment: Any, source: str, expression: bool = False) -> Key:
    """Return everything that the code of a template depends on, except for its filters and tests."""
    finalize = environment.finalize
    return (type(environment).__module__, type(environment).__qualname__, getattr(finalize, "__qualname__", None), expression, escapes(),
            *(getattr(environment, name) for name in SETTINGS), *sorted(environment.extensions), str(source))


def escapes() -> bool:
    """Tell whether the compiler is to keep backslashes in texts. From ansible-core 2.19 on, its caller decides that."""
    bits: Any = sys.modules.get("ansible._internal._templating._jinja_bits")
    context: Any = bits and bits._TemplateCompileContext.current(optional=True)
    return bool(context and context.escape_backslashes)


def find(environment: Any, source: str, expression: bool = False) -> types.CodeType | None:
    """Return the code of a template; None if it is not known, or if Jinja now passes something else to one of its filters
    and tests.
    """
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
    """Return what of the template Jinja passes to a filter or test besides its arguments, such as the context."""
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
    for kill in (os.killpg, os.kill):  # it has ended, or is late; before it begins, it has no group
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with contextlib.suppress(EOFError, ValueError, TypeError):  # at the end, or where the answer was cut
        while True:
            found, code, plugins = marshal.load(answer)
            TRANSLATED[found] = Translated(code, plugins)


def receive(read: int) -> BinaryIO:
    """Return what the process writes until it ends, or until PATIENCE is over."""
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
        # A template with a warning is left to the run, which then shows the warning.
        warnings.simplefilter("error")
        with open(write, "wb") as answer:
            for found in translate(directories):
                marshal.dump(found, answer)
        code = 0
    finally:
        os._exit(code)


def translate(directories: list[str]) -> Iterator[tuple]:
    """Yield the key of each template, its code, and its filters and tests."""
    import ansible.plugins.loader as loader

    if fences.has_others():
        return  # looking up a filter would import these files
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
        with contextlib.suppress(Exception), escaping(text):  # the run that uses it reports the error
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
    """Replaces the methods of an environment that compile templates, and keeps their last results."""

    environment: Any
    code: types.CodeType
    plugins: tuple[tuple[str, str, str], ...]

    def generate(self, tree: Any, *args: Any, **kwargs: Any) -> str:
        import ansible.plugins.loader as loader
        from jinja2 import nodes

        # The compiler computes constants, such as "x" * 1000000000.
        grows = any(not any(node.find_all(nodes.Name)) for node in tree.find_all((nodes.Mul, nodes.Pow)))
        if grows or folds(tree) or fences.reached(tree) is not None:
            raise ValueError
        used = {("filters" if isinstance(node, nodes.Filter) else "tests", node.name) for node in tree.find_all((nodes.Filter, nodes.Test))}
        loaders = {"filters": loader.filter_loader, "tests": loader.test_loader}
        if not all(fences.keeps_nothing(loaders[kind], name.removeprefix("ansible.builtin.")) for kind, name in used):
            raise ValueError  # looking it up would import a file that is not Ansible's
        self.plugins = tuple((kind, name, passed(self.environment, kind, name)) for kind, name in sorted(used))
        return type(self.environment)._generate(self.environment, tree, *args, **kwargs)

    def compile(self, source: str, filename: str) -> types.CodeType:
        self.code = type(self.environment)._compile(self.environment, source, filename)
        return self.code


def folds(tree: Any) -> bool:
    """Tell whether the compiler may call a filter or test, to compute a constant: if the filter or test is applied to no
    variable, or only to variables that an operator such as `or` may skip.
    """
    from jinja2 import nodes

    for node in tree.find_all((nodes.Filter, nodes.Test)):
        if node.node is None:
            continue
        if not any(node.find_all(nodes.Name)) or any(node.find_all((nodes.Or, nodes.And, nodes.CondExpr, nodes.Compare))):
            return True
    return False


def new_environment() -> Any:
    """Return an environment for templates, as Ansible makes it."""
    if ansiblefiles.has_engine():
        from ansible._internal._templating._jinja_bits import AnsibleEnvironment

        return AnsibleEnvironment()
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    return Templar(loader=DataLoader()).environment


class Text(NamedTuple):
    """A template of the content. Its kind is "file", "value", or "expression": one without braces."""

    source: str
    kind: str


#: Ansible's own templates, of the implicit localhost and of loops.
ANSIBLES = (Text("{{ansible_playbook_python}}", "value"), Text("{{item}}", "value"))


def escaping(text: Text) -> contextlib.AbstractContextManager:
    """Return the context in which Ansible compiles this text."""
    if not ansiblefiles.has_engine():
        return contextlib.nullcontext()
    from ansible._internal._templating._jinja_bits import _TemplateCompileContext

    return _TemplateCompileContext(escape_backslashes=text.kind == "value")


def adapted(environment: Any, text: Text) -> tuple[str, bool]:
    """Return the source that Ansible compiles for this text, and whether it compiles it as an expression."""
    if ansiblefiles.has_engine():
        return text.source, text.kind == "expression"
    from ansible.template import _escape_backslashes

    source = f"{{% if {text.source} %}} True {{% else %}} False {{% endif %}}" if text.kind == "expression" else text.source
    return source if text.kind == "file" else _escape_backslashes(source, environment), False


def texts(directories: list[str]) -> Iterator[Text]:
    """Yield the templates in the files below directories."""
    left = MOST
    for path in files(directories):
        with contextlib.suppress(Exception):  # the run that reads the file reports the error
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
    """Yield the paths of the YAML files and templates below directories, also of those behind links."""
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
    """Tell whether a text is a template. One that sets its own delimiters (#jinja2:) is left to the run."""
    return ("{{" in source or "{%" in source) and not source.startswith("#jinja2:")


def values(content: bytes) -> Iterator[Text]:
    """Yield the templates among the values of YAML documents."""
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
