from ansible.plugins.lookup import LookupBase

runs = []


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        """Return the number of runs, and append to the variables that are named."""
        runs.append(terms)
        for term in terms:
            variables[term].append(len(runs))
        variables["left_by_lookup"] = "left"
        return [len(runs)]
