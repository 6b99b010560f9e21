"""Say of which versions Ansible and ansible-runner are, as their --version does, without importing them.

It fails where that cannot be told for certain, or where a distribution that they require is missing or of another
version: then the programs are to be asked, which say what is wrong. The argument is the directory of the programs.
"""

import json
import sys

sys.path[0] = sys.argv[1]

from importlib import metadata  # noqa: E402, where the programs find it

from ansible.release import __version__  # noqa: E402
from packaging.requirements import Requirement  # noqa: E402


def complete(name, seen):
    """Fail unless all is installed that a distribution requires."""
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.name in seen or requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        seen.add(requirement.name)
        if not requirement.specifier.contains(metadata.version(requirement.name), prereleases=True):
            raise LookupError(text)
        complete(requirement.name, seen)


seen = set()
for name in ("ansible-core", "ansible-runner"):
    complete(name, seen)
json.dump({"Runner": metadata.version("ansible-runner"), "Core": __version__, "Python": f"{sys.version.split()[0]} ({sys.executable})"}, sys.stdout)
