#!/usr/bin/env bash
# step.sh NAME COMMAND...: runs the command under a heading and says how long it took.
set -euo pipefail

name=$1
shift
printf '\n==> %s\n' "$name"
began=$SECONDS
if "$@"; then
  printf '==> %s: done in %d s\n' "$name" $((SECONDS - began))
else
  code=$?
  printf '==> %s: FAILED after %d s\n' "$name" $((SECONDS - began)) >&2
  exit "$code"
fi
