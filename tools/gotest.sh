#!/usr/bin/env bash
# gotest.sh PACKAGES FLAGS...: runs go test, and repeats each failed test once.
# With GOTESTSUM_FORMAT=testname it prints the name of each test that ends.
#
# The tests use real API servers, kernels and interpreters, so on a slow machine
# a test can fail in a way that is not known yet. Such a test counts as passed if
# it passes when it is repeated alone; its name is printed, here and at the end of
# `make test`. Nothing is repeated after a data race, a panic, a timeout or more
# than twelve failures. A package that fails outside its tests, for example
# because goroutines are left, has failed.
set -euo pipefail

packages=$1
shift
bin=$(cd "$(dirname "$0")/.." && pwd)/bin
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$bin/tools/gotestsum" --format "${GOTESTSUM_FORMAT:-standard-quiet}" --jsonfile-timing-events "$dir/events" \
  --rerun-fails=1 --rerun-fails-max-failures=12 --rerun-fails-abort-on-data-race --rerun-fails-run-root-test \
  --rerun-fails-report "$dir/report" --packages "$packages" -- "$@"
# failed -v: prints the packages that have failed; failed -e: prints the packages in which a test has failed.
failed() { grep '"Action":"fail"' "$dir/events" | grep "$@" '"Test":' | sed 's/.*"Package":"\([^"]*\)".*/\1/' | sort -u; }
if failed -v | grep -vxF -f <(failed -e) >&2; then
  echo 'FAILED: these have failed otherwise than in one of their tests' >&2
  exit 1
fi
if [ -f "$dir/report" ]; then
  sed -n 's/^\(.*\): 2 runs, 1 failures$/REPEATED: \1 failed, and passed when it was repeated/p' "$dir/report" | tee -a "$bin/repeated"
fi
