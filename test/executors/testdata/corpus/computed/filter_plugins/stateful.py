import itertools
import os

from ansible.utils.display import Display

numbers = itertools.count(1)
kept = []


def numbered(value):
    """A value with the number of the call."""
    return "%s%d" % (value, next(numbers))


def keep(value):
    """All values that there were."""
    kept.append(value)
    return list(kept)


def grow(value, *more):
    value.extend(more)
    return len(value)


def empty(value):
    value.clear()
    return "emptied"


def tally(value, path):
    """A value, and a line in a file for each call."""
    with open(path, "a") as file:
        file.write("%s\n" % (value,))
    return value


def tally_lines(path):
    with open(path) as file:
        return len(file.readlines())


def in_environment(value, name):
    os.environ[name] = value
    return value


def in_directory(path):
    os.chdir(path)
    return os.getcwd()


def told(value, how="warning"):
    getattr(Display(), how)("told %s" % value)
    return value


def deprecated(value):
    Display().deprecated("%s is of the past" % value, version="9.9", collection_name="acme.tools")
    return value


def broken(value):
    raise ValueError("broken by %s" % value)


def broken_within(value):
    try:
        broken(value)
    except ValueError as error:
        raise RuntimeError("wrapped") from error


def out(value):
    raise SystemExit(value)


def undecodable(value):
    return value + b"\xff\xfe".decode("utf-8", "surrogateescape")


class FilterModule:
    def filters(self):
        names = "numbered keep grow empty tally tally_lines in_environment in_directory told deprecated broken broken_within out undecodable"
        return dict({name: globals()[name] for name in names.split()}, as_set=set, as_tuple=tuple, as_bytes=str.encode, text_of=repr)
