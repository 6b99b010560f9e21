#!/usr/bin/env bash
# Installs mypy and flake8, with which `make lint` checks the shipped Python code, and pexpect, which its unit tests use.
# Installs nothing if all of them are present.
set -euo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

if command -v mypy >/dev/null && command -v flake8 >/dev/null && python3 -c "import pexpect" 2>/dev/null; then
  exit 0
elif apt_usable; then
  apt_install mypy flake8 python3-pexpect
else
  echo 'mypy, flake8 or pexpect is missing, and is installed only as root with apt. Install them: apt-get install mypy flake8 python3-pexpect, or pip install mypy flake8 pexpect' >&2
  exit 1
fi
