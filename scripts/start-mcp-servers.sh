#!/bin/sh
# Start, stop and look at the MCP servers; the work is done by `kimi-proxy mcp`.
#   scripts/start-mcp-servers.sh start|stop|restart|status [NAME...]
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
case ${1-} in
    start) action=up ;;
    stop) action=down ;;
    restart | status) action=$1 ;;
    *)
        echo "usage: $0 start|stop|restart|status [NAME...]" >&2
        exit 2
        ;;
esac
shift
"$here/setup"
exec "$here/../.venv/bin/kimi-proxy" mcp "$action" "$@"
