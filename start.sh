#!/bin/sh
# Set up what is missing, then run everything in the foreground. Arguments go to `kimi-proxy start`.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
"$here/scripts/setup"
exec "$here/.venv/bin/kimi-proxy" start "$@"
