"""Log events with fields, on standard error only: standard output is for results and the stdio transport.

`log.info("pruned", extra={"lines": 12})` is written as one line. A field is never a prompt and never a key."""

import logging
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TextIO

from kimi_proxy.core import json
from kimi_proxy.core.config import LogSettings
from kimi_proxy.core.json import JsonObject

MAX_WAITING = 10_000
FLUSH_S = 1.0

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}

# Below a warning these log whole URLs, query strings included, or every connection.
_VERBOSE = ("httpx", "httpcore", "asyncio")
# An answer that broke off upstream is dropped on purpose, and logged with its reason (api/chat.py). A WebSocket that is
# refused with an answer counts as one without a handshake.
_ON_PURPOSE = frozenset(f"ASGI callable returned without completing {what}." for what in ("response", "handshake"))


def write_to_stderr(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send every log event of the process to standard error (or `stream`) in the configured format."""
    handler = BackgroundHandler(sys.stderr) if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(_JsonLine() if settings.format == "json" else _TextLine())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def write_line(text: str) -> None:
    """Write a remark of a command as an event in JSON, whatever the level."""
    record = logging.LogRecord("kimi_proxy", logging.INFO, "", 0, text, None, None)
    for handler in logging.getLogger().handlers:
        handler.handle(record)


class BackgroundHandler(logging.Handler):
    """Writes in a separate thread: a program that no longer reads our standard error must not block us.

    Until it reads again, the first events wait, and later ones are counted and dropped.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: SimpleQueue[str | threading.Event] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= MAX_WAITING:
            self._dropped += 1
            return
        try:
            self._waiting.put(self.format(record))
        except Exception:  # noqa: BLE001 - what cannot be formatted is reported as logging does
            self.handleError(record)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="log", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Wait until everything is written, for a second at most."""
        if self._thread is not None and threading.current_thread() is not self._thread:
            written = threading.Event()
            self._waiting.put(written)
            written.wait(FLUSH_S)

    def _write(self) -> None:
        while True:
            line = self._waiting.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            dropped, self._dropped = self._dropped, 0
            more = self._dropped_line(dropped) if dropped else ""
            with suppress(OSError, ValueError):
                self._stream.write(f"{line}\n{more}")
                self._stream.flush()

    def _dropped_line(self, count: int) -> str:
        text = f"{count} events were not written: standard error was not read"
        if not isinstance(self.formatter, _JsonLine):
            return f"{text}\n"
        return self.format(logging.LogRecord(__name__, logging.WARNING, "", 0, text, None, None)) + "\n"


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg not in _ON_PURPOSE


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: JsonObject = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.encode(event).decode()


class _TextLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_format_value(value)}" for name, value in _fields(record).items())
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{_time(record)} {record.levelname.lower():7} {_one_line(record.getMessage())}{fields}{trace}"


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> JsonObject:
    extra = {name: value for name, value in vars(record).items() if name not in _PLAIN}
    return {name: value if isinstance(value, str | int | float | None) else str(value) for name, value in extra.items()}


def _format_value(value: object) -> str:
    text = _one_line(str(value))
    return f'"{text}"' if " " in text or not text else text


def _one_line(text: str) -> str:
    """Escape line breaks, with which a value could forge an event."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
