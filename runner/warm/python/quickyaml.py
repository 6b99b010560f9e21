"""Lets libyaml parse the YAML that modules get, such as manifests and kubeconfigs, if its result is the same as that of
PyYAML's own parser. libyaml takes an eighth of the time.
"""

from __future__ import annotations

import io
import re
from typing import Any

import switches

#: Text for which the results may differ, because libyaml accepts what PyYAML refuses or reads another value: tabs, carriage
#: returns, tags, question marks, directives, control characters, line separators, and comments right behind a block
#: indicator (| or >). Also lists nested within one line: libyaml crashes if they are very deep.
OTHERWISE = re.compile("[\t\r!?%\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff]|[|>][-+0-9]*#|(?:- +){50}")
#: How many opening brackets and braces a text may have, for the latter reason.
MOST = 2000
#: The versions of PyYAML and libyaml whose results were compared.
PYYAML, LIBYAML = "6", (0, 2, 5)


def install() -> None:
    """Let this process, and the modules that it forks, parse text with libyaml. Called by the process that forks modules."""
    try:
        import yaml
        import yaml._yaml as libyaml
    except ImportError:
        return
    if switches.without("yaml") or yaml.__version__.partition(".")[0] != PYYAML or libyaml.get_version() != LIBYAML:
        return
    ordinary_one, ordinary_all = yaml.safe_load, yaml.safe_load_all
    if any(name.startswith("yaml_") for name in vars(yaml.SafeLoader)):
        return  # a constructor or resolver was added to SafeLoader
    loaders = (yaml.SafeLoader, yaml.CSafeLoader)
    parts = {part for loader in loaders for part in loader.__mro__}
    were = [dict(vars(part)) for part in parts]

    def is_same(stream: Any) -> bool:
        """Tell whether libyaml gives the same result for a text. It may not if the module has changed the loaders."""
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
