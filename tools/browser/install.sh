#!/usr/bin/env bash
# install.sh DIR: installs what tests of the page need: Chromium, if apt can install it, and axe-core into DIR, if npm is
# present. It does not install what is present.
set -euo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

if command -v chromium >/dev/null; then
  echo "Chromium: $(chromium --version --no-sandbox 2>/dev/null || echo present)"
elif apt_usable; then
  apt_install chromium fonts-dejavu-core
else
  echo 'tests of the page need Chromium: install it, on Debian as root with: apt-get install chromium' >&2
  exit 1
fi

files="$(dirname "$0")/axe"
mkdir -p "$1"
if cmp -s "$files/package-lock.json" "$1/package-lock.json" && [ -e "$1/node_modules" ]; then
  echo 'axe-core: present'
elif command -v npm >/dev/null; then
  cp "$files"/package*.json "$1"
  npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$1"
else
  echo 'There is no npm to get axe-core.' >&2
fi
