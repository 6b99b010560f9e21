DOCUMENTATION = """
name: order
type: notification
short_description: writes what it is told, in order
description: writes what it is told, in order
options:
  file: {description: where to, env: [{name: ORDER_FILE}]}
"""
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "order"

    def set_options(self, *args, **kwargs):
        super().set_options(*args, **kwargs)
        self.file = open(self.get_option("file"), "w", buffering=1)
        self.counted = 0

    def note(self, *words):
        self.counted += 1
        print(self.counted, *words, file=self.file)

    def of_task(self, task):
        """A task as it is in the playbook's process, not as it was for one host."""
        return [task.action, task.name, task.args, task.vars, task.no_log, task.ignore_errors, task.changed_when, task.delegate_to,
                task.environment, task.register, task.loop, task.loop_control and task.loop_control.label]

    def of_result(self, kind, result, ignore_errors=False):
        fields = getattr(result, "_task_fields", {})
        said = getattr(result, "_result", {})
        self.note(kind, getattr(result, "_host", None), *self.of_task(result._task))
        self.note("  fields", [fields.get(name) for name in ("name", "args", "vars", "no_log", "ignore_errors", "changed_when", "delegate_to")])
        self.note("  result", sorted(said), result.is_changed(), result.is_failed(), result.is_skipped(), ignore_errors)
        # What it takes away is its own.
        for name in ("msg", "ansible_facts", "results"):
            value = said.get(name)
            if hasattr(value, "clear"):
                value.clear()
            said.pop(name, None)

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.note("task", *self.of_task(task))
        self._display.display("the callback has seen %s" % task.action)

    def v2_playbook_on_handler_task_start(self, task):
        self.note("handler", *self.of_task(task))

    def v2_runner_on_start(self, host, task):
        self.note("start", host, task.name)

    def v2_playbook_on_notify(self, handler, host):
        self.note("notify", handler, host)

    def v2_playbook_on_include(self, included_file):
        self.note("include", included_file._filename.rpartition("/")[2], included_file._hosts)

    def v2_playbook_on_stats(self, stats):
        self.note("stats", [stats.summarize(host) for host in sorted(stats.processed)], stats.custom)


for name in ("on_ok", "on_failed", "on_skipped", "item_on_ok", "item_on_failed", "item_on_skipped", "retry"):
    def of_kind(self, result, ignore_errors=False, kind=name):
        self.of_result(kind, result, ignore_errors)

    setattr(CallbackModule, "v2_runner_" + name, of_kind)
