DOCUMENTATION = """
name: origin
short_description: where a lookup is
description: where a lookup is
options: {}
"""
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        return ["%s %s" % (__name__.rpartition(".")[0], term) for term in terms]
