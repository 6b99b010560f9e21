from ansible.plugins.action import ActionBase

calls = []


class ActionModule(ActionBase):
    """The project's own: it counts, and changes arguments and variables."""

    def run(self, tmp=None, task_vars=None):
        calls.append(1)
        self._task.args["changed"] = True
        task_vars["left"] = "left"
        task_vars.get("l", []).append(len(calls))
        return dict(msg="overridden %d %s" % (len(calls), self._task.args.get("msg")), l=list(task_vars.get("l", [])))
