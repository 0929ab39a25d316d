#!/bin/sh
# Install if necessary, then run everything in the foreground. Arguments are passed to `kimi-proxy start`.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
"$here/scripts/setup"
# It reads the config.toml and .env next to this file, from any current directory.
KIMI_PROXY_FOLDER=$here
export KIMI_PROXY_FOLDER
exec "$here/.venv/bin/kimi-proxy" start "$@"
