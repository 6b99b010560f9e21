#!/usr/bin/env bash
# Installs what a real node needs: containerd, runc, the CNI network plugins and iproute2. Keeps those that are present.
set -euo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

missing=()
command -v containerd >/dev/null && command -v ctr >/dev/null || missing+=(containerd)
command -v runc >/dev/null || missing+=(runc)
command -v ip >/dev/null || missing+=(iproute2)
[ -x /usr/lib/cni/bridge ] || [ -x /opt/cni/bin/bridge ] || missing+=(containernetworking-plugins)
if [ ${#missing[@]} -eq 0 ]; then
  echo "node: $(containerd --version | cut -d ' ' -f 1-3), $(runc --version | sed -n 1p), present"
elif apt_usable; then
  apt_install "${missing[@]}"
else
  echo "node: missing: ${missing[*]}; install them (Debian: apt-get install ${missing[*]})" >&2
  exit 1
fi
