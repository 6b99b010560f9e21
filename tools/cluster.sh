#!/usr/bin/env bash
# cluster.sh up DIR CONTROLPLANE [FLAG...]: starts a control plane in the background, with its state in DIR, and prints
# its export line when it is ready. One that is there already, or is starting, is waited for. What it says is in DIR.log.
# cluster.sh down DIR: stops it and removes all of that. Nothing there is no error.
set -euo pipefail

mode=$1 dir=$2

# holder prints the process of the control plane in the directory. A number that is another program's by now is none.
holder() {
  local pid
  pid=$(cat "$dir/controlplane.lock" 2>/dev/null) && grep -qsxzF -- "--dir=$dir" "/proc/$pid/cmdline" && echo "$pid"
}

up() {
  local started=''
  exec 4</dev/null
  if ! holder >/dev/null; then
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
  if pid=$(holder); then
    kill "$pid" || true
    timeout 15 tail -s 0.1 --pid "$pid" -f /dev/null || kill -KILL "$pid"
  fi
  rm -f "$dir.log" "$dir.ready"
  if [ -e "$dir/controlplane.lock" ] || [ -n "$pid" ]; then
    rm -rf "$dir"
    echo "the control plane in $dir is stopped" >&2
  else
    echo "no control plane in $dir" >&2
  fi
}

"$mode" "${@:3}"
