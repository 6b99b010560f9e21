#!/usr/bin/env bash
# Checks the shipped Python code and its tests: style, types, and the unit tests that need no Ansible.
set -euo pipefail
cd "$(dirname "$0")/../.."
config=tools/python/setup.cfg
flake8 --config $config runner test/python
# The files of the fork server import one another without a package name. The guard wraps methods of Ansible, which has no types.
MYPYPATH=runner/warm/python mypy --config-file $config --no-error-summary --cache-dir=/dev/null runner/warm/python/*.py runner/libraries/libraries.py
# Ansible's collections have no __init__.py.
MYPYPATH=runner/collection mypy --config-file $config --no-error-summary --cache-dir=/dev/null --namespace-packages --explicit-package-bases \
  runner/collection/ansible_collections/*/*/plugins/*/*.py
# The python3 in the PATH may not be the one that has pexpect.
python=python3
$python -c 'import pexpect' 2>/dev/null || python=/usr/bin/python3
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=runner/warm/python:runner/collection $python -m unittest discover --start-directory test/python --pattern '*_test.py' --buffer
