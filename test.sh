#!/bin/sh
# Install if necessary, then run all checks and tests.
#   ./test.sh --deep          5,000 examples for each promise instead of 50, and the long fault runs; about an hour
#                             on two cores
#   ./test.sh [pytest args]   for instance: ./test.sh tests/core -k lines
set -eu
CDPATH='' cd -- "$(dirname -- "$0")"
if [ "${1-}" = --deep ]; then
    shift
    export KIMI_PROXY_DEEP=1 HYPOTHESIS_PROFILE=deep
    set -- --timeout 1800 "$@"  # for one test, on a machine that others use, too
fi
scripts/setup --dev
scripts/browser || true   # the tests that need one say that they are skipped
scripts/postgres || true  # likewise

# The checks run in parallel with the tests; their output is printed at the end.
found=$(mktemp)
trap 'rm -f "$found"' EXIT
scripts/check >"$found" 2>&1 &
checks=$!

status=0
scripts/test "$@" || status=$?
wait "$checks" || status=$?
cat "$found" >&2
exit "$status"
