"""What the fork server says about itself."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

import ansiblefiles
import prepared
import proof
import serverstate
import switches


#: Why each task has a worker with this version of ansible-core: what differs from the tested versions (see proof.workers).
WORKERS: list[str] = []


def judge() -> None:
    """Turn off the means that rely on code that was not tested. Called once, by the server."""
    import ansible.release

    WORKERS.extend(proof.workers(ansible.release.__version__))
    if WORKERS:
        switches.turn_off("content", "inprocess", "lazycopy", "templates")


def about() -> dict:
    """Return what the operator asks about the server. Called in a run head, whose parent is the server."""
    import ansible.release

    core = ansible.release.__version__
    # In the turbo mode, modules of kubernetes.core are not forked.
    kubernetes = any(map(os.path.isdir, ansiblefiles.places("kubernetes", "core"))) and importlib.util.find_spec("kubernetes") is not None \
        and "ENABLE_TURBO_MODE" not in serverstate.ENVIRONMENT
    return {"core": core, "differs": proof.differs(core), "workers": WORKERS, "pid": os.getppid(), "files": sources(), "kubernetes": kubernetes}


def read() -> list[str]:
    """Return the files, other than code, that imports read, or would read if they existed: the list of plugins that Ansible
    must not use, and the certificates of authorities, which some versions of requests keep.
    """
    import ansible.constants as constants

    found = [constants.PLUGIN_FILTERS_CFG or "/etc/ansible/plugin_filters.yml"]
    if (certificates := sys.modules.get("requests.certs")) is not None:
        found.append(certificates.where())
    return found


def sources() -> list[str]:
    """Return the paths of everything that the server has imported or read, or would
    have if it existed. The server can be used as long as none of it changes.
    """
    own = os.path.dirname(os.path.abspath(__file__)) + os.sep
    found = {str(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    # Packages are installed into the directories of the search path, and removed from there.
    found.update(serverstate.PATH)
    found.update(filter(None, [shutil.which("ssh", path=serverstate.ENVIRONMENT.get("PATH"))]))
    configured = os.environ.get("ANSIBLE_CONFIG", "")
    found.update((configured, os.path.join(configured, "ansible.cfg"), os.path.expanduser("~/.ansible.cfg"), "/etc/ansible/ansible.cfg"))
    found.update(os.path.join(place, "MANIFEST.json") for collection in ansiblefiles.COLLECTIONS for place in ansiblefiles.places(*collection))
    found.update(prepared.fragments())
    found.update(read())
    return sorted(path for path in found if os.path.isabs(path) and not path.startswith(own))
