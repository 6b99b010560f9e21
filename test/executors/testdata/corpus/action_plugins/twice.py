from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        first = self._execute_module("ping", dict(data="one"), task_vars=task_vars)
        second = self._low_level_execute_command("echo raw $HOME; exit 3", executable="/bin/sh")
        result.update(first=first["ping"], rc=second["rc"], out=second["stdout"])
        return result
