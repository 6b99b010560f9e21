#!/usr/bin/env bash
# install.sh DIR: installs ansible-playbook, ansible-runner, Python's kubernetes client and the collection
# kubernetes.core, unless all of them are present. As root on Debian, the missing ones come from Debian's packages.
# Elsewhere, pip installs all of them into a virtual environment in DIR, whose bin/ is in the Makefile's PATH.
set -euo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

environment=${1:?usage: install.sh DIR}

# interpreter prints the path of the Python that Ansible runs in, which may not be the python3 in the PATH.
interpreter() {
  ansible-playbook --version 2>/dev/null | sed -nE 's/^ *python version = .* \((\/[^)]*)\)$/\1/p'
}

# Each of the four checks prints the version that it finds, and nothing if the part is missing.
check_playbook()   { ansible-playbook --version 2>/dev/null | sed -n 1p; }
check_runner()     { ansible-runner --version 2>/dev/null; }
check_client()     { "$(interpreter)" -c 'import kubernetes; print(kubernetes.__version__)' 2>/dev/null; }
check_collection() {
  ansible-galaxy collection list kubernetes.core 2>/dev/null | sed -nE 's/^kubernetes\.core +([0-9][^ ]*).*/\1/p' | sort -u
}

# missing prints the parts that are missing, one a line, and reports the versions of the others on standard error.
missing() {
  local part version
  for part in playbook runner client collection; do
    version=$(check_$part) || version=''
    if [ -n "$version" ]; then
      echo "${labels[$part]}: $version" >&2
    else
      echo "$part"
    fi
  done
}

declare -A labels=(
  [playbook]='ansible-playbook' [runner]='ansible-runner'
  [client]='Python client of Kubernetes' [collection]='collection kubernetes.core'
)
declare -A packages=(
  [playbook]='ansible-core' [runner]='python3-ansible-runner' [client]='python3-kubernetes' [collection]='ansible'
)

wanted=$(missing)
if [ -z "$wanted" ]; then
  exit 0
fi
if apt_usable; then
  names=()
  for part in $wanted; do
    echo "${labels[$part]}: missing"
    names+=("${packages[$part]}")
  done
  apt_install "${names[@]}"
else
  echo "missing: ${wanted//$'\n'/ } - installing Ansible with pip into $environment"
  if ! python3 -m venv "$environment"; then
    echo 'No virtual environment without Python 3 and its venv module (Debian: apt-get install python3-venv).' >&2
    echo "Or install what is missing yourself (Debian: apt-get install ${packages[*]})." >&2
    exit 1
  fi
  "$environment/bin/python" -m pip install --quiet ansible-core ansible-runner kubernetes
  "$environment/bin/ansible-galaxy" collection install kubernetes.core
fi
still=$(missing)
if [ -n "$still" ]; then
  echo "still missing after the installation: ${still//$'\n'/ }" >&2
  exit 1
fi
