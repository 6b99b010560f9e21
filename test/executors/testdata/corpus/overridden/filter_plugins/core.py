calls = []


def default(value, *_):
    calls.append(value)
    return "the project's default %d" % len(calls)


class FilterModule:
    def filters(self):
        return {"default": default}
