"""Servers that are killed while they relay: whatever a model was shown in part, the other servers give back whole."""

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from tests.support.checkout import ROOT
from tests.support.conversations import Item, body
from tests.support.deep import IS_DEEP, too
from tests.support.forks import commands
from tests.support.replicas.fleet import PATH, PATIENCE_S, SETTINGS, Provider, cut_ids, drain, turn
from tests.support.services.store.postgres_server import controlled
from tests.support.services.store.s3_server import BUCKET, CREDENTIALS, s3_server

from kimi_proxy.core.chat import Wire

pytestmark = pytest.mark.timeout(3600 if IS_DEEP else 600)

KILLS = 500 if IS_DEEP else 60
JSON = {"content-type": "application/json"}


class LightServers:
    """Servers that share a database, of which each is started to be killed."""

    def __init__(self, home: Path, settings: Path, url: str) -> None:
        self._home = home
        self._arguments = [str(settings), url]
        self._count = 0

    def start(self) -> "LightServer":
        self._count += 1
        home = self._home / str(self._count)
        home.mkdir()
        return LightServer(["-m", "tests.support.replicas.light_server", str(home), *self._arguments])


class LightServer:
    def __init__(self, command: list[str]) -> None:
        self._alive = ExitStack()
        self._process = self._alive.enter_context(
            commands().started(command, ROOT, {"PATH": os.environ["PATH"], **CREDENTIALS})
        )
        threading.Thread(target=drain, args=(self._process.stderr,), daemon=True).start()
        self._url = ""

    @property
    def url(self) -> str:
        """Wait until it answers."""
        if not self._url:
            port = int(self._process.stdout.readline())
            self._url = f"http://127.0.0.1:{port}"
        return self._url

    def kill(self) -> None:
        self._process.kill()
        assert self._process.wait(PATIENCE_S) < 0
        self._alive.close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    running = Provider()
    try:
        yield running
    finally:
        running.close()


OBJECTS = f"""[store]
object_storage = "s3://{BUCKET}/kills"
object_endpoint = "{{url}}"
object_min_bytes = 1
"""


@pytest.fixture(params=["in the database", too("in object storage")])
def servers(request: pytest.FixtureRequest, tmp_path: Path, provider: Provider) -> Iterator[LightServers]:
    settings = tmp_path / "config.toml"
    with ExitStack() as alive:
        objects = OBJECTS.format(url=alive.enter_context(s3_server()).url) if "object" in request.param else ""
        settings.write_text(SETTINGS.format(port=provider.port, balancer=1) + objects)
        postgres = alive.enter_context(controlled())
        yield LightServers(tmp_path, settings, postgres.url)


def ask(http: httpx.Client, url: str, items: list[Item]) -> None:
    """Send a conversation to a server that may be killed meanwhile."""
    with suppress(httpx.TransportError):
        http.post(url + PATH, content=body(Wire.CHAT, items), headers=JSON)


def test_servers_that_are_killed_in_mid_stream_lose_no_original(servers: LightServers, provider: Provider):
    """With the stream of one request, and a second one anywhere between its arrival and its answer."""
    chance = random.Random(17)
    texts: dict[str, str] = {}  # of all results that were sent, by the line that begins them
    with ExitStack() as alive, ThreadPoolExecutor(1) as beside:
        http = alive.enter_context(httpx.Client(timeout=PATIENCE_S, trust_env=False, verify=False))
        victim, other = servers.start(), servers.start()
        for number in range(KILLS):
            streamed, second = turn(number, "stream"), turn(number, "second")
            for items in (streamed, second):
                text = items[-1].text  # type: ignore[union-attr]
                texts[text.partition("\n")[0]] = text
            raw = body(Wire.CHAT, streamed, stream=True)
            with http.stream("POST", victim.url + PATH, content=raw, headers=JSON) as got:
                chunks = got.iter_raw()
                for _ in range(chance.randrange(1, 4)):
                    next(chunks)
                asked = beside.submit(ask, http, victim.url, second)
                time.sleep(chance.random() * 0.06)
                victim.kill()
                with suppress(httpx.TransportError):
                    for _ in chunks:
                        pass
            asked.result(PATIENCE_S)
            victim, other = other, servers.start()
        alive.callback(victim.kill)
        alive.callback(other.kill)
        sent = [(raw, cut_ids(raw)) for raw in provider.bodies]
        found = {id: http.get(f"{other.url}/api/mask/{id}").json()["text"] for _, ids in sent for id in ids}

    streams = [ids for raw, ids in sent if b'"stream": true' in raw]
    assert len(streams) == KILLS
    assert all(streams)
    assert len(found) >= KILLS
    assert all(texts[text.partition("\n")[0]] == text for text in found.values())
