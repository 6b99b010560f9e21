"""Print the versions of Ansible, ansible-runner and Python as JSON, without the imports that --version needs.

This program fails if the versions are not certain, or if a distribution that Ansible or ansible-runner requires is missing
or has another version. Then the operator has to ask the programs, which report what is wrong. The argument is the
directory of the programs.
"""

import json
import sys

sys.path[0] = sys.argv[1]

from importlib import metadata  # noqa: E402, found where the programs find it

from ansible.release import __version__  # noqa: E402
from packaging.requirements import Requirement  # noqa: E402


def complete(name, seen):
    """Raise an error unless everything that a distribution requires is installed, in the right versions."""
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
