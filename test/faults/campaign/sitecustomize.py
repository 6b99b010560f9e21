"""Lets ansible-runner be the scripted one in every process of Python that imports it.

So a fork server forks the scripted one: it imports the real one, passes its own
check with it, and executes the scripted one in the forked process of each run.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types


class Scripted(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> object:
        if fullname != "ansible_runner.__main__":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        ordinary = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            ordinary(module)
            real = module.main

            def main(sys_args: "list[str] | None" = None) -> object:
                args = sys.argv[1:] if sys_args is None else sys_args
                if "-i" in args and args[args.index("-i") + 1].startswith("check-"):
                    return real(sys_args)
                os.execv(os.environ["FAKERUNNER"], ["ansible-runner", *args])

            module.main = main

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Scripted())
