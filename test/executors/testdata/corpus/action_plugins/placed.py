"""Changes the environment of ansible-playbook, and executes a module."""
import os

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        os.environ.update(self._task.args["environ"])
        return self._execute_module("placed", module_args={}, task_vars=task_vars)
