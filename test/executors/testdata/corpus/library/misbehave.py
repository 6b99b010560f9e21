#!/usr/bin/python
"""Ends in all the ways in which a module should not."""
import os
import sys

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec={"how": {"type": "str"}})
    how = module.params["how"]
    if how == "raise":
        raise ValueError("a mistake")
    if how == "exit":
        sys.exit(3)
    if how == "text":
        sys.exit("a last word")
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "term":
        os.kill(os.getpid(), 15)
    if how == "garbage":
        print("no json")
        sys.exit(0)
    if how == "noise":
        print("some noise")
        sys.stderr.write("and on stderr\n")
        module.exit_json(changed=True, note="after noise")
    if how == "return":
        return
    if how == "os_exit":
        os._exit(7)
    if how == "warn":
        module.warn("beware")
        module.deprecate("old", version="9.9", collection_name="ansible.builtin")
        module.exit_json(warned=True)
    if how == "recursion":
        def deeper(n):
            return deeper(n + 1)
        deeper(0)
    if how == "unicode":
        module.exit_json(text="grüß \U0001f600 \x1b[31m")
    if how == "large":
        module.exit_json(text="x" * 300000)
    if how == "leave":
        if os.fork() == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            os.execvp("sleep", ["sleep", "30"])
        module.exit_json(left=True)
    module.fail_json(msg="failed as asked", how=how)


if __name__ == "__main__":
    main()
