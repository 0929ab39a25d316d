"""No answer and no event shows a member of a team a setting that is not on the list, or shows an admin a password.

Every setting and every variable that holds text gets a canary (tests/support/planted.py), and every call that there is
(tests/api/walk.py) is made by no one, by a member and by an admin, also while the database is away.
"""

import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import psycopg
import pytest
from tests.api.people_world import Keeper, PeopleServer
from tests.api.walk import LONG, Call, conversation, unknown_like
from tests.api.walkers import Walker, all_calls, guards_of, walker, watched
from tests.support.api.proxy_world import proxy_of
from tests.support.api.watching import MODEL, Watcher, listed
from tests.support.evil import evil
from tests.support.planted import Garden, Make, plant
from tests.support.services.store import postgres_server
from tests.support.services.store.postgres_server import PostgresServer

from kimi_proxy.api.guard import Guard
from kimi_proxy.assembly.apps import metrics_app
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.environment import ENVIRONMENT, VARIABLES
from kimi_proxy.core.config.visible import FOR_MEMBERS

SOURCES = tuple((Path(__file__).parents[2] / "src").rglob("*.py"))
SEARCH = {"name": "search_tools", "arguments": {"query": "read a file"}}
LISTED = {name for names in FOR_MEMBERS.values() for name in names}
PROXY_PASSWORD = "canary-9999"
# Variables that only commands read, or that take one of a few words.
NO_ROOM = {"KIMI_PROXY_FOLDER", "KIMI_PROXY_LOG_LEVEL"}
ALIASES = {"PRUNER_URL"}
# A provider that is switched off, and one behind the proxy that a variable names.
MORE = """
[providers.off]
enabled = false
base_url = "http://127.0.0.1:9/v1"
[providers.far]
base_url = "http://127.0.0.9:9/v1"
proxy = "environment"
[models."off/m"]
provider = "off"
[models."far/m"]
provider = "far"
"""


def of_database(server: PostgresServer) -> Make:
    """Return what makes the address of a database: its user and its password are canaries."""

    def make(garden: Garden, place: str) -> str:
        user, password, name = garden.password(place), garden.password(place), garden.word(place)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f'CREATE ROLE "{user}" SUPERUSER LOGIN'.encode())
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        garden.places[server.home] = place  # the host, which is a folder
        return f"postgresql://{user}:{password}@/{name}?host={server.home}"

    return make


@dataclass(frozen=True)
class PlantedTeam:
    garden: Garden
    server: PeopleServer
    database: PostgresServer


@asynccontextmanager
async def planted_team(home: Path) -> AsyncIterator[PlantedTeam]:
    async with AsyncExitStack() as alive:
        database = alive.enter_context(postgres_server.controlled())
        provider = await alive.enter_async_context(evil(Keeper().talk))
        toml = provider.toml() + f'[models."{MODEL}"]\nprovider = "openai-evil"\n' + MORE
        garden, config = plant(home, toml, of_database(database))
        p = await alive.enter_async_context(proxy_of(config, env=garden.env))
        team = p.runtime.team
        assert team
        tokens = {"ben": (await team.people.add(LOCAL, "ben", "member", "x")).token}
        tokens["dee"] = (await team.people.add(LOCAL, "dee", "admin")).token
        yield PlantedTeam(garden, PeopleServer(p, tokens), database)


@dataclass(frozen=True)
class Seen:
    """What a person was shown, and by what."""

    where: str
    text: str


async def ask_all(person: Walker, calls: Sequence[Call]) -> list[Seen]:
    seen: list[Seen] = []
    for call in calls:
        answer = await person.make(unknown(call))
        seen.append(seen_in(f"{person.name}: {call.method} {call.path} {str(call.body)[:100]}", answer))
    return seen


async def ask_all_without_a_token(server: PeopleServer, calls: Sequence[Call]) -> list[Seen]:
    """Send each call through a guard of its own, because callers without a token wait for each other."""
    seen: list[Seen] = []
    guards = guards_of(server)
    for call in {(call.route, call.method, call.is_pruner): call for call in calls}.values():
        known = guards[call.is_pruner]
        transport = httpx.ASGITransport(Guard(known.app, known.rules, access=known.access))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            answer = await Walker("", client, client).make(unknown(call))
        seen.append(seen_in(f"no one: {call.method} {call.path}", answer))
    return seen


async def read_public_metrics(server: PeopleServer) -> Seen:
    transport = httpx.ASGITransport(metrics_app(server.proxy.runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9464") as client:
        return seen_in("no one: the port for metrics", await client.get("/metrics"))


def unknown(call: Call) -> Call:
    """Return a call about things that nobody has: only settings can be in its answer."""
    return call.about(unknown_like(dict.fromkeys(call.kinds, "x_1")))


def seen_in(where: str, answer: httpx.Response) -> Seen:
    return Seen(f"{where}: {answer.status_code}", f"{dict(answer.headers)} {answer.text}")


async def use_everything(person: Walker, team: PlantedTeam) -> list[Seen]:
    """Use every model and every server, most of which fail, and what needs the settings besides."""
    seen: list[Seen] = []
    config = team.server.proxy.runtime.config
    for model in config.models:
        body = conversation(model)
        seen.append(seen_in(f"chat {model}", await person.proxy.post("/v1/chat/completions", json=body)))
    for name in config.mcp.servers.keys() & team.garden.places.keys():
        for method, params in (("tools/list", {}), ("tools/call", {"name": "x", "arguments": {"path": "/etc/passwd"}})):
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            for path in (f"/api/mcp-gateway/{name}/rpc", f"/api/mcp-gateway/{name}/mcp"):
                seen.append(seen_in(f"{path} {method}", await person.proxy.post(path, json=message)))
    search = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": SEARCH}
    seen.append(seen_in("search_tools", await person.proxy.post("/api/mcp-gateway/rpc", json=search)))
    question = {"code": LONG, "query": "why?"}
    seen.append(seen_in("prune", await person.pruner.post("/prune", json=question)))
    found = await listed(person.proxy, "/api/sessions", "sessions", 1)
    for path in ("", "/metrics", "/memory", "/context"):
        where = f"/api/sessions/{found[0]['id']}{path}"
        seen.append(seen_in(where, await person.proxy.get(where)))
    return [replace(one, where=f"{person.name}: {one.where}") for one in seen]


def wrong_for_members(garden: Garden, seen: Sequence[Seen]) -> str:
    return "".join(f"{one.where} shows {found}\n" for one in seen if (found := garden.found_in(one.text) - LISTED))


def wrong_for_admins(garden: Garden, seen: Sequence[Seen]) -> str:
    return "".join(f"{one.where} shows {found}\n" for one in seen if (found := garden.passwords_in(one.text)))


def events(watcher: Watcher) -> list[Seen]:
    return [Seen(f"event {frame[:80]}", frame) for frame in watcher.frames]


async def test_members_see_the_settings_on_the_list_alone_and_admins_no_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.DEBUG, "kimi_proxy")
    monkeypatch.setenv("http_proxy", f"http://{PROXY_PASSWORD}:{PROXY_PASSWORD}@127.0.0.1:9")
    async with planted_team(tmp_path) as team, AsyncExitStack() as alive:
        server, garden = team.server, team.garden
        garden.passwords.add(PROXY_PASSWORD)
        garden.places[PROXY_PASSWORD] = "http_proxy"
        calls = all_calls(server)
        ben, dee = [await alive.enter_async_context(walker(server, name)) for name in ("ben", "dee")]
        live = {name: await alive.enter_async_context(watched(server, name)) for name in ("ben", "dee")}
        of_members = [*await use_everything(ben, team), *await ask_all(ben, calls)]
        of_members += await ask_all_without_a_token(server, calls)
        of_members.append(await read_public_metrics(server))
        of_admins = [*await use_everything(dee, team), *await ask_all(dee, calls)]
        late = {name: await alive.enter_async_context(watched(server, name)) for name in ("ben", "dee")}
        team.database.stop()
        reads = [call for call in calls if call.method == "GET"]
        of_members += [*await ask_all(ben, reads), *await ask_all_without_a_token(server, reads)]
        of_admins += await ask_all(dee, reads)
        of_members += [*events(live["ben"]), *events(late["ben"])]
        of_admins += [*events(live["dee"]), *events(late["dee"])]

    assert wrong_for_members(garden, of_members) == ""
    assert wrong_for_admins(garden, of_admins) == ""
    logged = [Seen(f"log {record.msg}", f"{vars(record)} {record.getMessage()}") for record in caplog.records]
    assert wrong_for_admins(garden, logged) == ""
    # The walk saw settings at all: members their models, admins more than that.
    assert "models" in set().union(*(garden.found_in(one.text) for one in of_members))
    assert {"record.dir", "KIMI_PROXY_CONFIG"} <= set().union(*(garden.found_in(one.text) for one in of_admins))


def test_every_variable_that_holds_text_has_its_canary(tmp_path: Path):
    garden, config = plant(tmp_path)

    numbers = {name for name, section, key, _ in ENVIRONMENT if not holds_text(config, section, key)}
    assert set(VARIABLES) - set(garden.env) - numbers - NO_ROOM - ALIASES == set()


# Variables of the system and of other programs that we look at; of these, AWS_REGION and PATH by servers.
NOT_OURS = {
    *("ANTHROPIC_API_KEY", "AWS_REGION", "CODEX_HOME", "DISPLAY", "NO_COLOR", "PATH", "TERM", "USERDOMAIN", "USERNAME"),
    *("WAYLAND_DISPLAY", "XDG_CONFIG_HOME", "XDG_STATE_HOME"),
}
READING = re.compile(r'(?:environ|env)(?:\.get\(|\[)"([A-Z_]+)"|(?:_secret\(env, |named_path\()"([A-Z_]+)"')


def test_no_variable_is_read_that_no_list_names():
    found = {name for path in SOURCES for pair in READING.findall(path.read_text("utf-8")) for name in pair if name}

    assert {"KIMI_PROXY_TOKEN", "KIMI_PROXY_HOME", "AWS_REGION"} <= found
    assert found - set(VARIABLES) == NOT_OURS


def holds_text(config: Config, section: str, key: str) -> bool:
    return not isinstance(getattr(getattr(config, section), key), bool | int)
