#!/usr/bin/env bash
# fuzz.sh DURATION: runs every fuzz target of the main module for a time (5m) or a number of inputs (3000x). `go test` runs
# only one target, which must be named. It writes failing inputs to testdata/fuzz of the package: commit them with the fix.
set -euo pipefail

duration=${1:?usage: fuzz.sh DURATION, such as 3000x}
targets=0
while IFS=: read -r file line; do
  [ -n "$file" ] || continue
  name=${line#func }
  name=${name%%(*}
  echo "--- $name in $(dirname "$file")"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$duration" -fuzzminimizetime 10x "./$(dirname "$file")" </dev/null
  targets=$((targets + 1))
done < <(find cmd controller internal runner test -name '*_test.go' -exec grep -H '^func Fuzz[A-Z]' {} + | sort)
if [ "$targets" -eq 0 ]; then
  echo 'no fuzz target found: that is a mistake in this script or in the tree' >&2
  exit 1
fi
echo "$targets fuzz targets, $duration each"
