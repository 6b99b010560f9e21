#!/usr/bin/env bash
# step.sh NAME COMMAND...: runs the command under a heading, prints a line every 30 seconds, and at the end how long it took.
set -euo pipefail

name=$1
shift
printf '\n==> %s\n' "$name"
began=$SECONDS
# `read -t` instead of sleep: no process is left when the step ends.
exec 9<> <(:)
(while true; do read -rt 30 -u 9 || printf '    %s: %d s\n' "$name" $((SECONDS - began)); done) &
ticker=$!
trap 'kill $ticker 2>/dev/null; wait $ticker 2>/dev/null || true' EXIT
if "$@" 9>&-; then
  printf '==> %s: done in %d s\n' "$name" $((SECONDS - began))
else
  code=$?
  printf '==> %s: FAILED after %d s\n' "$name" $((SECONDS - began)) >&2
  exit "$code"
fi
