import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kimi_proxy.core.config import LogSettings
from kimi_proxy.core.logs import write_to_stderr


@pytest.fixture(autouse=True)
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # basicConfig(force=True) closes what it replaces, and pytest's own handlers are still needed.
    root.handlers = []
    yield
    root.handlers, root.level = handlers, level


def _written(settings: LogSettings) -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    write_to_stderr(settings, stream)
    return logging.getLogger("kimi_proxy.test"), stream


def test_an_event_is_one_line_with_its_fields() -> None:
    log, stream = _written(LogSettings())
    log.info("pruned", extra={"lines": 12, "backend": "heuristic", "note": "two words"})
    assert stream.getvalue().endswith(' info    pruned lines=12 backend=heuristic note="two words"\n')


def test_an_event_in_json_can_be_read_by_a_program() -> None:
    log, stream = _written(LogSettings(format="json"))
    log.warning("store degraded", extra={"free_bytes": 0})
    event = json.loads(stream.getvalue())
    assert event.pop("time").endswith("+00:00")
    assert event == {
        "level": "warning",
        "logger": "kimi_proxy.test",
        "event": "store degraded",
        "free_bytes": 0,
    }


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_value_with_a_line_break_cannot_forge_an_event(format: str) -> None:
    log, stream = _written(LogSettings.model_validate({"format": format}))
    log.info("asked", extra={"path": "/x\n2026-01-01 error forged\u2028more \ud800"})
    assert len(stream.getvalue().splitlines()) == 1


def test_events_below_the_level_are_not_written() -> None:
    log, stream = _written(LogSettings(level="error"))
    log.warning("not this one")
    assert stream.getvalue() == ""


def test_the_http_client_does_not_tell_its_addresses() -> None:
    _, stream = _written(LogSettings(level="debug"))
    logging.getLogger("httpx").info("HTTP Request: POST https://example.org/?key=secret")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("format", ["text", "json"])
def test_an_exception_keeps_its_traceback(format: str) -> None:
    log, stream = _written(LogSettings.model_validate({"format": format}))
    try:
        raise ValueError("the reason")
    except ValueError:
        log.exception("failed")
    assert "ValueError: the reason" in stream.getvalue()


FLOOD = """
import logging
from kimi_proxy.core.config import LogSettings
from kimi_proxy.core.logs import MAX_WAITING, write_to_stderr

write_to_stderr(LogSettings())
for number in range(3 * MAX_WAITING):
    logging.warning("event %d %s", number, "x" * 100)
print("done", flush=True)
input()
logging.warning("the last one")
"""


def test_a_reader_that_stops_reading_stops_no_one() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FLOOD], text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            _, said = process.communicate("\n", timeout=60)
        finally:
            process.kill()

    lines = said.splitlines()
    assert "event 0 " in lines[0]
    assert any("events were not written" in line for line in lines)
    assert len(lines) < 20_000 and process.returncode == 0
