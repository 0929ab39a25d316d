"""Export of the audit log as JSON lines in a file, or as messages to syslog."""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from logging.handlers import SysLogHandler
from urllib.parse import urlsplit

from kimi_proxy.core import json
from kimi_proxy.core.errors import location
from kimi_proxy.services.store.team import AuditEntry
from kimi_proxy.services.team.report import audit_line

SYSLOG_PORT = 514
SYSLOG_S = 2.0  # within which a connection must be made and a message taken
FACILITY = SysLogHandler.LOG_AUTHPRIV
TAG = "kimi-proxy"

log = logging.getLogger(__name__)


class AuditExport:
    """Appends entries after they are in the store. The file is opened for each batch: to rotate it, move it."""

    def __init__(self, path: str, syslog: str) -> None:
        self._path = path
        self._syslog = syslog

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Never raises: an entry that could not be exported is still in the store, and the log reports it."""
        lines = [json.encode(audit_line(entry)) for entry in entries]
        for target, write in ((self._path, self._write_file), (self._syslog, self._send_syslog)):
            if not target:
                continue
            try:
                await asyncio.to_thread(write, lines)
            except OSError as e:
                lost = {"entries": len(lines), "what": location(e)}
                log.error("audit entries were not exported; they are in the store", extra=lost)

    def _write_file(self, lines: Sequence[bytes]) -> None:
        with open(self._path, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(b"".join(line + b"\n" for line in lines))

    def _send_syslog(self, lines: Sequence[bytes]) -> None:
        """Send each line as one message: a datagram, or on a stream with its length before it (RFC 6587)."""
        priority = FACILITY << 3 | SysLogHandler.LOG_INFO
        messages = [f"<{priority}>1 - - {TAG} - audit - ".encode() + line for line in lines]
        parts = urlsplit(self._syslog)
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.connect(parts.path)
                for message in messages:
                    line.send(message)
            return
        place = parts.hostname or "", parts.port or SYSLOG_PORT
        if parts.scheme == "tcp":
            with socket.create_connection(place, SYSLOG_S) as line:
                line.sendall(b"".join(b"%d %s" % (len(message), message) for message in messages))
            return
        with socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET, socket.SOCK_DGRAM) as line:
            for message in messages:
                line.sendto(message, place)
