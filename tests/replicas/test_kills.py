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
import psycopg
import pytest
from tests.support.checkout import ROOT
from tests.support.conversations import Item, User, body
from tests.support.deep import IS_DEEP
from tests.support.forks import commands
from tests.support.replicas.fleet import PATH, PATIENCE_S, SETTINGS, Provider, cut_ids, drain, turn
from tests.support.services.store.postgres_server import controlled

from kimi_proxy.core.chat import Wire
from kimi_proxy.services.journal import LEASE_S

pytestmark = pytest.mark.timeout(3600 if IS_DEEP else 600)

KILLS = 500 if IS_DEEP else 60
JSON = {"content-type": "application/json"}


PRICED = """
[models."priced"]
provider = "openai-evil"
model = "priced"
max_context_size = 128000
input_usd_per_million = 2.0
output_usd_per_million = 8.0
"""


class LightServers:
    """Servers that share a database, of which each is started to be killed."""

    def __init__(self, home: Path, settings: Path, url: str) -> None:
        self._home = home
        self.database = url
        self._ahead = home / "ahead"  # seconds that the servers' clocks are ahead
        self._arguments = [str(settings), url, str(self._ahead)]
        self._count = 0
        self.pass_time(0)

    def start(self) -> "LightServer":
        self._count += 1
        home = self._home / str(self._count)
        home.mkdir()
        return LightServer(["-m", "tests.support.replicas.light_server", str(home), *self._arguments])

    def pass_time(self, ahead_s: float) -> None:
        """Set the clocks of all servers so many seconds ahead."""
        made = self._ahead.with_suffix(".new")
        made.write_text(str(ahead_s))
        made.rename(self._ahead)


class LightServer:
    def __init__(self, command: list[str]) -> None:
        self._alive = ExitStack()
        self._process = self._alive.enter_context(commands().started(command, ROOT, {"PATH": os.environ["PATH"]}))
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


@pytest.fixture
def servers(tmp_path: Path, provider: Provider) -> Iterator[LightServers]:
    settings = tmp_path / "config.toml"
    settings.write_text(SETTINGS.format(port=provider.port, balancer=1) + PRICED)
    with controlled() as postgres:
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


STREAMS = 8


def wait_until(connection: psycopg.Connection[tuple[int]], condition: str, *values: str | float) -> None:
    """Return once a query gives true."""
    end = time.monotonic() + PATIENCE_S
    while not (connection.execute(f"SELECT {condition}".encode(), values).fetchone() or (0,))[0]:
        assert time.monotonic() < end, connection.execute("SELECT * FROM open_request").fetchall()
        time.sleep(0.05)


def test_what_a_killed_server_was_relaying_is_settled_once_by_the_other_two(servers: LightServers):
    """And a request that one of them still relays costs what that one says, even if it was too slow to hold it."""
    raws = [body(Wire.CHAT, turn(number, "lost"), stream=True, model="priced") for number in range(STREAMS + 1)]
    with ExitStack() as alive:
        http = alive.enter_context(httpx.Client(timeout=PATIENCE_S, trust_env=False, limits=httpx.Limits()))
        database = alive.enter_context(psycopg.connect(servers.database, autocommit=True))
        others, victim = (servers.start(), servers.start()), servers.start()
        streams: list[tuple[httpx.Response, Iterator[bytes]]] = []
        for at, raw in enumerate(raws):
            url = (victim if at else others[0]).url + PATH
            got = alive.enter_context(http.stream("POST", url, content=raw, headers=JSON))
            assert got.status_code == 200, got.read()
            chunks = got.iter_raw()
            next(chunks)
            streams.append((got, chunks))  # an iterator that nobody holds closes its stream
            if not at:
                wait_until(database, "count(*) = 1 FROM open_request")
                (living,) = database.execute("SELECT id FROM open_request").fetchone() or ("",)
        wait_until(database, "count(*) = %s FROM open_request", len(raws))
        (lost,) = database.execute("SELECT sum(usd) FROM open_request WHERE id <> %s", (living,)).fetchone() or (0,)
        victim.kill()

        steps = range(0, round(2 * LEASE_S) + 1, 20)
        for ahead_s in steps:
            servers.pass_time(ahead_s)
            for at, server in enumerate(others):
                ask(http, server.url, [User(f"Is it over after {ahead_s} s, {at}?")])
            wait_until(database, "sum(requests) >= %s FROM usage_day", 2 * (ahead_s // 20 + 1))
        wait_until(database, "count(*) = 0 FROM open_request WHERE settled IS NULL AND id <> %s", living)
        streams[0][0].close()
        wait_until(database, "count(*) = 1 FROM metrics WHERE id = %s", living)
        wait_until(database, "count(*) = 0 FROM open_request WHERE id = %s", living)
        (ended,) = database.execute("SELECT cost_usd FROM metrics WHERE id = %s", (living,)).fetchone() or (0,)
        settled = database.execute(
            "SELECT sum(requests), sum(cost_usd) FROM usage_day WHERE model = 'priced'"
        ).fetchall()
        for server in others:
            server.kill()

    assert settled == [(STREAMS + 1, pytest.approx(lost + ended))]
    assert lost > 0
    assert ended > 0
