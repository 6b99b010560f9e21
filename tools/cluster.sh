#!/usr/bin/env bash
# cluster.sh up DIR CONTROLPLANE [FLAG...]: starts a control plane in the background, with its state in DIR and its log in
# DIR.log, and prints its export line when it is ready. If one runs or starts there already, it only waits for that one.
# cluster.sh down DIR: stops the control plane and removes its files. If there is none, that is no error.
set -euo pipefail

mode=$1 dir=$2

# holder prints the process ID of the control plane in the directory: the process that the lock file names and that has the
# lock file open. A zombie has no open files.
holder() {
  local pid file
  pid=$(cat "$dir/controlplane.lock" 2>/dev/null) || return
  for file in "/proc/$pid/fd/"*; do
    if [ "$file" -ef "$dir/controlplane.lock" ]; then echo "$pid"; return; fi
  done
  return 1
}

# ended SECONDS COMMAND...: waits until the command fails, at most for these seconds.
ended() {
  local end=$((SECONDS + $1))
  while "${@:2}" >/dev/null; do
    [ "$SECONDS" -lt "$end" ] || return
    sleep 0.1
  done
}

up() {
  local started='' pid
  exec 4</dev/null
  if pid=$(holder); then
    if ! [ "/proc/$pid/fd/1" -ef "$dir.ready" ]; then
      echo "the control plane in $dir, process $pid, was not started by this program: stop it first, with $0 down $dir" >&2
      exit 1
    fi
  else
    mkdir -p "$(dirname "$dir")"
    : >"$dir.ready" >"$dir.log"
    setsid "$1" run "--dir=$dir" "${@:2}" </dev/null >>"$dir.ready" 2>>"$dir.log" &
    started=$!
    trap 'kill "$started" 2>/dev/null; wait; exit 130' INT TERM HUP
    exec 4<"$dir.log"
  fi
  # The control plane prints its export line on standard output when it is ready, and its progress on standard error.
  while cat <&4 >&2; [ ! -s "$dir.ready" ]; do
    if ! kill -0 ${started:-none} 2>/dev/null && ! holder >/dev/null || [ "$SECONDS" -gt 200 ]; then
      cat <&4 >&2
      echo "no control plane is ready in $dir; see $dir.log, and stop it before you try again" >&2
      exit 1
    fi
    sleep 0.1
  done
  cat "$dir.ready"
}

down() {
  local pid
  if [ -e "$dir" ] && ! [ -x "$dir" ]; then
    echo "$dir is not yours to look into: nothing is stopped or removed" >&2
    exit 1
  fi
  if pid=$(holder); then
    kill "$pid" || true
    if ! ended 15 holder; then
      kill -KILL "$pid" || true
      ended 5 [ -e "$dir" ] || true # its servers end with it, and its janitor removes the directory, a moment later
    fi
    if holder >/dev/null; then
      echo "the control plane in $dir, process $pid, does not end: nothing is removed" >&2
      exit 1
    fi
  fi
  rm -f "$dir.log" "$dir.ready"
  if [ -e "$dir/controlplane.lock" ] || [ -n "$pid" ]; then
    rm -rf "$dir"
    echo "the control plane in $dir is stopped"
  else
    echo "no control plane in $dir"
  fi
}

"$mode" "${@:3}"
