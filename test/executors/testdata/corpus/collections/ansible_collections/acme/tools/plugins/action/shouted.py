from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        result.update(self._execute_module("acme.tools.measure", {"value": self._task.args["value"]}, task_vars=task_vars))
        result["shouted"] = str(result["scaled"]) + "!"
        return result
