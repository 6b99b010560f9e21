#!/usr/bin/env bash
# Installs buildah and debootstrap, which build images without a daemon and without a registry. Keeps those that are present.
set -euo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

missing=()
for program in buildah debootstrap; do
  command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "image: $(buildah --version), present"
elif apt_usable; then
  apt_install "${missing[@]}"
else
  echo "image: missing: ${missing[*]}; install them (Debian: apt-get install ${missing[*]})" >&2
  exit 1
fi
