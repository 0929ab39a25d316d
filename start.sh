#!/bin/sh
# Set up what is missing, then run everything in the foreground. Arguments go to `kimi-proxy start`.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
"$here/scripts/setup"
# Its config.toml and .env are those beside this file, wherever it is started from.
KIMI_PROXY_FOLDER=$here
export KIMI_PROXY_FOLDER
exec "$here/.venv/bin/kimi-proxy" start "$@"
