#!/usr/bin/env bash
# Checks the Python that is shipped and its tests: style, types, unit tests of what needs no Ansible.
set -euo pipefail
cd "$(dirname "$0")/../.."
config=tools/python/setup.cfg
flake8 --config $config runner test/python
# The files of the fork server import one another by their bare names. The guard wraps methods of Ansible, which has no types.
MYPYPATH=runner/warm/python mypy --config-file $config --no-error-summary --cache-dir=/dev/null runner/warm/python/*.py runner/libraries/libraries.py
# Ansible's collections have no __init__.py.
MYPYPATH=runner/collection mypy --config-file $config --no-error-summary --cache-dir=/dev/null --namespace-packages --explicit-package-bases \
  runner/collection/ansible_collections/*/*/plugins/*/*.py
# The Python of the PATH need not be the one that pexpect was installed for.
python=python3
$python -c 'import pexpect' 2>/dev/null || python=/usr/bin/python3
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=runner/warm/python:runner/collection $python -m unittest discover --start-directory test/python --pattern '*_test.py' --buffer
