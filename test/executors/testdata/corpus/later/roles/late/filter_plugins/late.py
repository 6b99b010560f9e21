calls = []


def basename(value):
    calls.append(value)
    return f"called {len(calls)}"


class FilterModule:
    def filters(self):
        return {"basename": basename}
