"""Write what an image has in it, as CycloneDX 1.5 in JSON, to standard output.

    python3 sbom.py MODULES VERSION

Run it in the image. MODULES is the output of `go version -m` for the operator's
binary, VERSION is Rolewright's. Components are Debian's packages, Go's modules, Rolewright
itself among them, and Ansible's collections, sorted, without a time or a serial number: the same contents give
the same document.
"""

import glob
import json
import subprocess
import sys
from urllib.parse import quote

COLLECTIONS = "/usr/share/ansible/collections/ansible_collections/*/*/MANIFEST.json"


def debian():
    fields = "${Package}\\t${Version}\\t${Architecture}\\t${db:Status-Status}\\n"
    packages = subprocess.run(["dpkg-query", "-W", "-f", fields], check=True, capture_output=True, text=True)
    for line in packages.stdout.splitlines():
        name, version, arch, status = line.split("\t")
        if status == "installed":
            yield name, version, f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={arch}"


def modules(path, version):
    with open(path, encoding="utf-8") as listing:
        lines = [line.split() for line in listing]
    for words in lines:
        # "mod PATH (devel)" is the program's own, whose version Go does not know; then there is
        # "dep PATH VERSION SUM", and "=> PATH VERSION SUM" for what takes its place.
        if len(words) >= 2 and words[0] == "mod":
            yield words[1], version, f"pkg:golang/{quote(words[1])}@{quote(version)}"
        elif len(words) >= 3 and words[0] in ("dep", "=>"):
            yield words[1], words[2], f"pkg:golang/{quote(words[1])}@{quote(words[2])}"
        elif words and words[0].endswith(":") and len(words) == 2:
            yield "stdlib", words[1].removeprefix("go"), f"pkg:golang/stdlib@{words[1].removeprefix('go')}"


def collections():
    for path in glob.glob(COLLECTIONS):
        with open(path, encoding="utf-8") as manifest:
            info = json.load(manifest)["collection_info"]
        name = f"{info['namespace']}.{info['name']}"
        yield name, info["version"], f"pkg:generic/{name}@{info['version']}"


def main():
    listing, version = sys.argv[1:]
    found = sorted({*debian(), *modules(listing, version), *collections()})
    json.dump(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": {"type": "container", "name": "rolewright", "version": version}},
            "components": [
                {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}
                for name, version, purl in found
            ],
        },
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main()
