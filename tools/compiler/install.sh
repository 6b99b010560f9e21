#!/usr/bin/env bash
# Installs a C compiler, which Go's race detector needs, unless one is present.
set -euo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

if command -v "$(go env CC)" >/dev/null; then
  echo "C compiler: $(go env CC), present"
elif apt_usable; then
  apt_install gcc libc6-dev
else
  echo "go test -race needs a C compiler ($(go env CC)): install one, on Debian with: apt-get install gcc libc6-dev" >&2
  exit 1
fi
