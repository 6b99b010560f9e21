DOCUMENTATION = """
name: local
short_description: a project's own
description: a project's own
options: {}
"""
import importlib.util
import os

import ansible

_spec = importlib.util.spec_from_file_location("original_local", os.path.join(os.path.dirname(ansible.__file__), "plugins/connection/local.py"))
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)


class Connection(_module.Connection):
    def exec_command(self, cmd, in_data=None, sudoable=True):
        code, out, err = super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if "MARKED" in cmd:
            out += b"through the project's connection\n"
        return code, out, err
