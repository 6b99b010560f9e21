"""Lets modules start programs by vfork.

A module is a large process once it is forked. Python forks it for a program if there is a function to call before the
program begins (preexec_fn), and otherwise uses vfork, which copies nothing. AnsibleModule.run_command always gives such a
function, which does something only if the module has asked for a umask.

The server compiles run_command with another argument in this place. To give Python another argument when a program starts
would add a frame to what modules print of their errors.
"""

from __future__ import annotations

import types

import switches

#: The functions that run_command gives to Python, with what they call, in ansible-core 2.14 and in 2.19. They are changed in no other form.
FORMS = ((b"""
    def _restore_signal_handlers(self):
        # Reset SIGPIPE to SIG_DFL, otherwise in Python2.7 it gets ignored in subprocesses.
        if PY2 and sys.platform != 'win32':
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
""", b"""
        def preexec():
            self._restore_signal_handlers()
            if umask:
                os.umask(umask)

"""), (b"""
        def preexec():
            if umask:
                os.umask(umask)

""",))
#: The argument, and what takes its place. Without close_fds, Python would not use vfork either, but posix_spawn.
ARGUMENT = b"\n            preexec_fn=preexec,\n"
NEEDED = b"\n            preexec_fn=preexec if umask or not close_fds else None,\n"


def compiled(source: bytes, path: str) -> types.CodeType | None:
    """Return the code of ansible.module_utils.basic, changed as this file says; None if the source is not in a known form."""
    if switches.without("vfork") or source.count(ARGUMENT) != 1 or not any(all(source.count(part) == 1 for part in form) for form in FORMS):
        return None
    return compile(source.replace(ARGUMENT, NEEDED), path, "exec", dont_inherit=True)
