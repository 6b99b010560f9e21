"""What a role of the corpus needs to get at the data wherever it stands."""
import sys


def leaves(value):
    """Every string of a value, the keys of its maps included, as the same objects."""
    if isinstance(value, dict):
        found = []
        for key, item in value.items():
            found.append(key)
            found.extend(leaves(item))
        return found
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if isinstance(value, str) else []


def brief(strings):
    """Those that fit into a command line together, which can hold no NUL."""
    found, room = [], 50_000
    for text in strings:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size < min(room, 1000) and "\0" not in text:
            found.append(text)
            room -= size
    return found


def printed(text):
    """Prints a text past Ansible's own display, as a plugin of the author's might."""
    sys.stdout.write(text)
    sys.stdout.flush()
    return "printed"


class FilterModule:
    def filters(self):
        return {"leaves": leaves, "brief": brief, "printed": printed}
