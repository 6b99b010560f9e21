"""YAML that a module is given, such as the manifests of k8s and a kubeconfig, which libyaml parses where it gives what Python's parser
gives: in an eighth of the time.
"""

from __future__ import annotations

import io
import re
from typing import Any

import switches

#: Where libyaml takes what PyYAML refuses, or another value of it: tabs, carriage returns, tags, question marks,
#: directives, control characters, separators of lines, and comments right behind the mark of a block. And lists in lists in
#: one line: libyaml does not live through very deep ones.
OTHERWISE = re.compile("[\t\r!?%\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff]|[|>][-+0-9]*#|(?:- +){50}")
#: How many lists and dictionaries in brackets a text may have, for the same reason.
MOST = 2000
#: The versions of both that were compared.
PYYAML, LIBYAML = "6", (0, 2, 5)


def install() -> None:
    """Let this process, and those that it forks, parse text so. Called by what forks modules."""
    try:
        import yaml
        import yaml._yaml as libyaml
    except ImportError:
        return
    if switches.without("yaml") or yaml.__version__.partition(".")[0] != PYYAML or libyaml.get_version() != LIBYAML:
        return
    ordinary_one, ordinary_all = yaml.safe_load, yaml.safe_load_all
    if any(name.startswith("yaml_") for name in vars(yaml.SafeLoader)):
        return  # its tables are its own
    loaders = (yaml.SafeLoader, yaml.CSafeLoader)
    parts = {part for loader in loaders for part in loader.__mro__}
    were = [dict(vars(part)) for part in parts]

    def is_same(stream: Any) -> bool:
        """Tell whether libyaml makes the same of a text. A module may have given the loaders ways of its own."""
        return (type(stream) is str and not OTHERWISE.search(stream) and stream.count("[") + stream.count("{") <= MOST
                and (yaml.SafeLoader, yaml.CSafeLoader) == loaders and [dict(vars(part)) for part in parts] == were)

    def safe_load(stream: Any) -> Any:
        text = stream
        if type(stream) is io.TextIOWrapper and stream.seekable():  # a kubeconfig
            begin = stream.tell()
            text = stream.read()
            stream.seek(begin)
        if is_same(text):
            try:
                value = yaml.load(text, Loader=yaml.CSafeLoader)
            except Exception:  # noqa: B902, whatever it is, the ordinary way says it
                return ordinary_one(stream)
            if text is not stream:
                stream.read()
            return value
        return ordinary_one(stream)

    def safe_load_all(stream: Any) -> Any:
        if is_same(stream):
            try:
                return iter(list(yaml.load_all(stream, Loader=yaml.CSafeLoader)))
            except Exception:  # noqa: B902, as above
                pass
        return ordinary_all(stream)

    yaml.safe_load, yaml.safe_load_all = safe_load, safe_load_all
