#!/usr/bin/env bash
# Installs strace, with which tests see the files that a run touches, unless it is present. If it cannot be installed, or
# tracing is not permitted, the tests use an audit hook in Python instead.
set -euo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

if command -v strace >/dev/null; then
  echo "strace: $(strace --version | sed -n 1p), present"
elif apt_usable; then
  apt_install strace
else
  echo 'strace: missing; tests see what Python programs do, and no others (Debian: apt-get install strace)'
fi
