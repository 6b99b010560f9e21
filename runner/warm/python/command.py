"""ansible-runner in a forked process.

The installed ansible-runner runs unchanged, and does everything that it does with
a private data directory. There is one difference: it forks a child to execute
ansible-playbook in a pseudo terminal, and this child becomes ansible-playbook
without executing it, see playbook.become.
"""

from __future__ import annotations

import os
from typing import Any

import playbook
import process
import runtrace
import serverstate


def main(args: list[str], environment: dict[str, str], cookie: str) -> None:
    """Run ansible-runner with the arguments. This function does not return."""
    name, _, value = cookie.partition("=")
    environment[name] = value
    process.reopen_stdio()
    process.replace_environment(environment)
    process.become_script(args, serverstate.PATH)
    code = 1
    try:
        from ansible_runner.__main__ import main as runner

        patch_spawn()
        code = process.exit_code(SystemExit(runner(args[1:])))
    except SystemExit as error:
        code = process.exit_code(error)
    except BaseException:  # noqa: B902, as the interpreter reports it
        import traceback

        traceback.print_exc()
    runtrace.trace_usage("ansible-runner")
    process.finish(code)


def patch_spawn() -> None:
    """Let the child that pexpect forks become ansible-playbook."""
    import ansible_runner.runner
    import pexpect

    class Spawn(pexpect.spawn):
        """A child whose output is read to its end.

        ansible-runner stops reading as soon as the child has ended, even if the pseudo
        terminal still holds output: on a busy machine, error messages would be lost.
        """

        reading = False

        def isalive(self) -> bool:
            if super().isalive():
                return True
            if not self.reading and not self.closed:
                self.reading = True
                try:
                    while True:
                        self.read_nonblocking(self.maxread, 0)
                except (pexpect.EOF, pexpect.TIMEOUT, OSError):  # OSError: the terminal is being closed
                    pass
            return False

    class Pexpect:
        """The module pexpect, as ansible-runner uses it."""

        exceptions = pexpect.exceptions

        def __getattr__(self, name: str) -> object:
            return getattr(pexpect, name)

        @staticmethod
        def spawn(command: str, args: list[str], **kwargs: Any) -> pexpect.spawn:
            if os.path.basename(command) == "ansible-playbook":
                kwargs["preexec_fn"] = lambda: playbook.become([command, *args], kwargs["env"])
            return Spawn(command, args, **kwargs)

    ansible_runner.runner.pexpect = Pexpect()
