import os

from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        import __main__
        import sys
        return [[os.getcwd(), os.environ.get("LANG"), sys.argv[1:2], os.path.basename(sys.argv[0]), os.path.basename(__main__.__file__), sys.path[:2],
                 sys.stdout.isatty(), sys.stdin.isatty(), sys.stdout.encoding, sys.executable, sorted(os.environ)]]
