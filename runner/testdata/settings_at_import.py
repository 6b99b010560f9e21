"""Print the settings that Ansible reads when it is imported, and that a forked run
with another value would therefore miss: those that are not in playbook.KEPT, nor
made good by playbook.refresh. The argument is the directory of playbook.py.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator

sys.path.insert(0, sys.argv[1])

import ansible  # noqa: E402
import ansible.constants as constants  # noqa: E402
import playbook  # noqa: E402

SETTINGS = set(constants.config.get_configuration_definitions())
#: What no forked run imports: other programs, and modules, which have processes of their own.
ELSEWHERE = ("modules", "galaxy", os.path.join("cli", "console.py"), os.path.join("cli", "doc.py"))
#: What playbook.refresh does again.
REFRESHED = {"ANSIBLE_FORCE_COLOR", "ANSIBLE_NOCOLOR", "DEFAULT_CALLBACK_PLUGIN_PATH"}


def read_at_import(tree: ast.Module) -> Iterator[str]:
    """Yield the settings that are read outside of functions, in their defaults too."""
    queue: list[ast.AST] = list(tree.body)
    while queue:
        node = queue.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            queue += [*node.args.defaults, *(value for value in node.args.kw_defaults if value), *getattr(node, "decorator_list", [])]
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("C", "constants") and node.attr in SETTINGS:
            yield node.attr
        queue += ast.iter_child_nodes(node)


root = os.path.dirname(ansible.__file__)
looked = 0
for folder, _, names in os.walk(root):
    for name in names:
        path = os.path.relpath(os.path.join(folder, name), root)
        if not name.endswith(".py") or path.startswith(ELSEWHERE):
            continue
        looked += 1
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for setting in read_at_import(ast.parse(file.read())):
                if setting not in playbook.KEPT | REFRESHED and not setting.startswith("COLOR_"):
                    print(setting, path)
if looked < 200:
    print("only", looked, "files below", root)
