"""Prints the versions of the Kubernetes client and of kubernetes.core as JSON."""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata


def client() -> str:
    """Return the version of the package kubernetes; empty if it is not installed."""
    try:
        return metadata.version("kubernetes")
    except metadata.PackageNotFoundError:
        return ""


def collection(directories: list[str]) -> str:
    """Return the version of the first kubernetes.core in the directories; empty if none has it."""
    for directory in directories:
        path = os.path.join(directory, "ansible_collections", "kubernetes", "core", "MANIFEST.json")
        try:
            with open(path, encoding="utf-8") as manifest:
                return str(json.load(manifest)["collection_info"]["version"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return ""


print(json.dumps({"Client": client(), "Core": collection(sys.argv[1:] + sys.path)}))
