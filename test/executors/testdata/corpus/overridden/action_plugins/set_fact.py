from ansible.plugins.action import ActionBase

calls = []


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        calls.append(1)
        return dict(ansible_facts=dict(self._task.args, calls=len(calls)))
