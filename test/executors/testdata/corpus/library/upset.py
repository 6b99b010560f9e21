#!/usr/bin/python
"""Changes all that a process can change of itself."""
import json
import locale
import os
import resource
import signal
import socket
import sys
import tempfile
import threading

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec={})
    found = [os.environ.get("UPSET"), hasattr(json, "upset"), "/upset" in vars(sys)["path"], socket.getdefaulttimeout(), tempfile.tempdir == "/upset"]
    os.environ["UPSET"] = "yes"
    os.putenv("UPSET", "yes")
    os.environ.pop("HOME", None)
    json.upset = True
    vars(sys)["path"].insert(0, "/upset")
    sys.modules["ansible.module_utils.helper"] = None
    socket.setdefaulttimeout(7)
    os.umask(0o777)
    os.chdir("/")
    tempfile.tempdir = "/upset"
    locale.setlocale(locale.LC_ALL, "C")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(1000)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(5000)
    threading.Thread(target=lambda: None).start()
    os.nice(1)
    os.close(0)
    module.exit_json(found=found)


if __name__ == "__main__":
    main()
