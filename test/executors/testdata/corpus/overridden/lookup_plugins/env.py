from ansible.plugins.lookup import LookupBase

calls = []


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        calls.append(terms)
        return ["the project's env %d" % len(calls)]
