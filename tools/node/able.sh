#!/usr/bin/env bash
# Checks whether this machine can run a real node: exits with 0 if it can, or with 1 and prints the reasons why not.
set -uo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

reasons=()
[ "$(uname -s)" = Linux ] || reasons+=("it is no Linux")
[ "$(id -u)" -eq 0 ] || reasons+=("you are not root")
unshare --net --mount --pid --fork --mount-proc true 2>/dev/null || reasons+=("it permits no namespaces")
for procs in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do
  if [ -e "$procs" ]; then
    [ -w "$(dirname "$procs")" ] || reasons+=("it permits no control groups in $(dirname "$procs")")
    break
  fi
done
grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || reasons+=("it has no overlay file system")
for program in containerd runc buildah debootstrap; do
  command -v "$program" >/dev/null || apt_usable || reasons+=("$program is missing, and there is no apt-get to install it with")
done
for reason in "${reasons[@]}"; do echo "$reason"; done
[ ${#reasons[@]} -eq 0 ]
