#!/usr/bin/env bash
# gotest.sh PACKAGES FLAGS...: go test, where a test that fails is repeated once.
# GOTESTSUM_FORMAT=testname has it name each test that ends.
#
# On real API servers, kernels and interpreters a machine can be too slow for a
# test in a way that no one has met yet. Such a test is named, here and at the
# end of `make test`, and passes if it does alone. Nothing is repeated after a
# data race, a panic, a timeout or more than twelve failures; what fails
# otherwise than in a test, as where goroutines are left, has failed.
set -euo pipefail

packages=$1
shift
bin=$(cd "$(dirname "$0")/.." && pwd)/bin
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$bin/tools/gotestsum" --format "${GOTESTSUM_FORMAT:-standard-quiet}" --jsonfile-timing-events "$dir/events" \
  --rerun-fails=1 --rerun-fails-max-failures=12 --rerun-fails-abort-on-data-race --rerun-fails-run-root-test \
  --rerun-fails-report "$dir/report" --packages "$packages" -- "$@"
# failed -v: the packages that have failed; failed -e: those of which a test has.
failed() { grep '"Action":"fail"' "$dir/events" | grep "$@" '"Test":' | sed 's/.*"Package":"\([^"]*\)".*/\1/' | sort -u; }
if failed -v | grep -vxF -f <(failed -e) >&2; then
  echo 'FAILED: these have failed otherwise than in one of their tests' >&2
  exit 1
fi
if [ -f "$dir/report" ]; then
  sed -n 's/^\(.*\): 2 runs, 1 failures$/REPEATED: \1 failed, and passed when it was repeated/p' "$dir/report" | tee -a "$bin/repeated"
fi
