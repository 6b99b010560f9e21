#!/usr/bin/env python3
"""Repeats what its object says in every way that a command has, and writes down what arrived."""
import base64
import json
import os
import sys


def whole(digits):
    """A whole number. Beyond 64 bits it is a float in the API server, and so is -0."""
    number = int(digits)
    return number if -(2**63) <= number < 2**63 and digits != "-0" else float(digits)


doc = json.load(sys.stdin, parse_int=whole)
with open(os.environ["ROLEWRIGHT_OBJECT"]) as file:
    arrived = {"object": doc["object"], "file": json.load(file, parse_int=whole)}


def strings(value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


said = [one for one in dict.fromkeys(strings(doc["object"])) if one]
for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(errors="backslashreplace")
    print("\n".join(said), file=stream, flush=True)


def report(**fields):
    line = json.dumps(fields) + "\n"
    if len(line) < 60_000:
        os.write(3, line.encode())


for one in said[:1000]:
    report(type="progress", step=one, message=one)
    report(type="event", reason=one, message=one, related={"kind": one, "name": one})
    report(type="condition", conditionType=one, status=one, reason=one, message=one)
    report(type="status", patch={one: one})
    report(type="metric", name=one, description=one, gauge={"set": one})
    report(type="requeue", after=one)
    report(type=one, **{"a" + one: one})
path = os.path.join(os.environ["ROLEWRIGHT_DIR"], "arrived")
with open(path, "wb") as file:
    file.write(base64.b64encode(json.dumps(arrived).encode()))
if sys.argv[1:] == ["fail"]:
    report(type="result", verdict="failed", message="\n".join(said)[:20_000], task="\n".join(said)[:1000])
