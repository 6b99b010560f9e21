asked = []


def first(value):
    asked.append(value)
    return len(asked) == 1


def consumed(value):
    return bool(value) and value.pop() is not None


class TestModule:
    def tests(self):
        return {"first": first, "consumed": consumed}
