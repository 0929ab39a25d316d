"""kimi-proxy as it runs for people, in a process of its own, with traffic that really passes through it."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from threading import Thread

import httpx
from tests.support.forks import Fork, commands

from kimi_proxy.core.json import JsonObject, JsonValue

PATIENCE_S = 300
# Two sessions of the demo's day, as they are called by the first words of the person.
INVOICE = "A customer says that invoice 1147 is a cent off. Find out…"
NOTES = "What do our release notes have to say, and how long may…"
LISTENS = re.compile(r"the (pruner|proxy) listens on (http://\S+)")


@dataclass(frozen=True)
class Product:
    address: str
    home: Path
    pruner: str = ""

    def ask(self, method: str, path: str, body: JsonValue = None, **headers: str) -> httpx.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {} if body is None else {"json": body}
        # Without certificates to check, which take 50 ms to load.
        with httpx.Client(timeout=60, trust_env=False, verify=False) as client:
            return client.request(method, self.address + path, headers=sent, **given)

    def chat(self, session: str, messages: list[JsonValue], model: str = "demo/apprentice", **more: JsonValue) -> int:
        """A chat request of an agent; the status of its answer."""
        body: JsonObject = {"model": model, "messages": titled(session, messages), **more}
        return self.ask("POST", "/v1/chat/completions", body, x_session_id=session).status_code

    def get(self, path: str) -> JsonObject:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        value: JsonObject = answer.json()
        return value


def titled(session: str, messages: list[JsonValue]) -> list[JsonValue]:
    """The same messages, with the session's name as the first words of the person: so it is called in the dashboard.

    What agents wrap in tags is left out of a title.
    """
    said = list(messages)
    for at, message in enumerate(said):
        match message:
            case {"role": "user", "content": str(words)}:
                said[at] = {**message, "content": f"{session} <said>{words}</said>"}
                break
    return said


def exchanges(count: int, words: int) -> list[JsonValue]:
    """A conversation that takes up room: each exchange has about that many words."""
    told: list[JsonValue] = [{"role": "system", "content": "You help with a shop. Never change a released file."}]
    for number in range(count):
        told.append({"role": "user", "content": f"Question {number}: " + "the parcel of order " * (words // 4)})
        told.append({"role": "assistant", "content": f"Answer {number}: it was sent."})
    return [*told, {"role": "user", "content": "And now?"}]


@contextmanager
def demo(home: Path, *arguments: str, until: str = "day 1 is over") -> Iterator[Product]:
    """A demo whose first day is over: whatever it left is there, and nothing moves any more."""
    command = ["demo", "--no-browser", "--speed", "80", "--days", "1", *arguments]
    with _process(command, {"TMPDIR": str(home)}) as said:
        said.wait_for(until)
        yield Product(said.found["proxy"], home)


@contextmanager
def started(home: Path, toml: str, **more: str) -> Iterator[Product]:
    """`kimi-proxy start` with these settings, on free ports."""
    config = home / "config.toml"
    config.write_text(toml, "utf-8")
    env = {
        "KIMI_PROXY_CONFIG": str(config),
        "KIMI_PROXY_HOME": str(home),
        "MCP_PRUNER_PORT": "0",
        "KIMI_PROXY_PORT": "0",
        **more,
    }
    with _process(["start"], env) as said:
        said.wait_for("press Ctrl-C to stop")
        yield Product(said.found["proxy"], home, said.found["pruner"])


class Said:
    """What a process says on standard error, read as it comes."""

    def __init__(self, process: Fork) -> None:
        self.found: dict[str, str] = {}
        self._lines: list[str] = []
        self._process = process
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with TextIOWrapper(BufferedReader(self._process.stderr), "utf-8") as lines:
            for line in lines:
                self._lines.append(line)
                if found := LISTENS.search(line):
                    self.found[found[1]] = found[2]

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not any(words in line for line in list(self._lines)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"it never said {words!r}:\n{''.join(self._lines)}")
            time.sleep(0.02)

    def end(self) -> None:
        self._reader.join(60)


@contextmanager
def _process(arguments: list[str], env: dict[str, str]) -> Iterator[Said]:
    home = env.get("TMPDIR") or env["KIMI_PROXY_HOME"]
    with commands().started(arguments, Path(home), {"PATH": os.environ["PATH"], "HOME": home, **env}) as process:
        said = Said(process)
        try:
            yield said
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
            said.end()
