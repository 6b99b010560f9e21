#!/usr/bin/python
"""Says what the interpreter that executes a module looks like. It is forked: it
does not say how it could look elsewhere for libraries.
"""
import gc
import locale
import logging
import os
import signal
import socket
import sys
import threading

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.helper import helped


def main():
    module = AnsibleModule(argument_spec={"path": {"type": "str"}, "secret": {"type": "str", "no_log": True}}, supports_check_mode=True)
    umask = os.umask(0)
    os.umask(umask)
    import ansible
    module.deprecate("what is old", version="2.99")
    module.exit_json(
        changed=False,
        argv=[os.path.basename(a) for a in sys.argv],
        executable=sys.executable,
        path=[p for p in vars(sys)["path"] if "_payload" not in p],
        environ={k: v for k, v in os.environ.items() if k not in ("_", "SHLVL", "OLDPWD")},
        cwd=os.getcwd(),
        umask=umask,
        name=__name__,
        main=getattr(sys.modules["__main__"], "__name__", None),
        signals={str(s): str(signal.getsignal(s)) for s in sorted(signal.valid_signals()) if s < 32},
        locale=[locale.setlocale(locale.LC_ALL), sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors, sys.stdin.errors],
        stdio=[f.isatty() for f in (sys.stdin, sys.stdout, sys.stderr)],
        buffering=[sys.stdout.line_buffering, sys.stderr.line_buffering],
        fds=sorted(int(n) for n in os.listdir("/proc/self/fd"))[:3],
        stdin=os.read(0, 10).decode(),
        threads=threading.active_count(),
        gc=gc.isenabled(),
        loggers=len(logging.getLogger().handlers),
        timeout=socket.getdefaulttimeout(),
        ansible=[os.path.basename(ansible.__file__), ansible.__version__],
        foreign=sorted(m for m in sys.modules if m.startswith(("ansible.plugins", "ansible.executor", "ansible.cli", "ansible_runner", "ansible.parsing", "ansible.template"))),
        helped=helped(),
        session=[os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
        nice=os.nice(0),
        tmpdir=os.path.basename(module.tmpdir)[:12],
        debug=module._debug,
    )


if __name__ == "__main__":
    main()
