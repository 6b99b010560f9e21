#!/usr/bin/env bash
# cluster.sh up DIR CONTROLPLANE [FLAG...]: starts a control plane in the background, with its state in DIR, and prints
# its export line when it is ready. One that is there already, or is starting, is waited for. What it says is in DIR.log.
# cluster.sh down DIR: stops it and removes all of that. Nothing there is no error.
set -euo pipefail

mode=$1 dir=$2

# holder prints the process of the control plane in the directory: that which the lock names and which has the lock open.
# A zombie has nothing open.
holder() {
  local pid file
  pid=$(cat "$dir/controlplane.lock" 2>/dev/null) || return
  for file in "/proc/$pid/fd/"*; do
    if [ "$file" -ef "$dir/controlplane.lock" ]; then echo "$pid"; return; fi
  done
  return 1
}

# ended SECONDS COMMAND...: waits as long until the command fails.
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
  # The process says on standard output that it is ready, and its progress beside that.
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
      ended 5 [ -e "$dir" ] || true # what ends with it, and the janitor removes, is in use for a moment
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
