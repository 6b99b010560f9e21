#!/usr/bin/env bash
# install.sh DIR: makes ansible-playbook, ansible-runner, the kubernetes client of Python and the collection
# kubernetes.core available. What is there is used. As root on Debian the rest comes from Debian's packages; elsewhere
# pip puts all of it into a virtual environment in DIR, whose bin/ the Makefile has in its PATH.
set -euo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

environment=${1:?usage: install.sh DIR}

# interpreter prints the Python that Ansible runs in; it need not be the python3 of the PATH.
interpreter() {
  ansible-playbook --version 2>/dev/null | sed -nE 's/^ *python version = .* \((\/[^)]*)\)$/\1/p'
}

# The four checks print the version of what they find, and nothing where it is missing.
check_playbook()   { ansible-playbook --version 2>/dev/null | sed -n 1p; }
check_runner()     { ansible-runner --version 2>/dev/null; }
check_client()     { "$(interpreter)" -c 'import kubernetes; print(kubernetes.__version__)' 2>/dev/null; }
check_collection() {
  ansible-galaxy collection list kubernetes.core 2>/dev/null | sed -nE 's/^kubernetes\.core +([0-9][^ ]*).*/\1/p' | sort -u
}

# missing prints what cannot be found, one word each, and reports the rest on standard error.
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
