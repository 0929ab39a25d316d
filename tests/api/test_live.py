"""`/ws`: who may watch, what is seen, and what happens to those who do not look."""

import asyncio
import base64
import json
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.api.live import Audience, frozen_viewer, is_cut
from tests.support.api.watching import Watcher, models, watching, world
from tests.support.processes import until
from tests.support.texts import a_log, a_question
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.services.events import HISTORY, MAX_VIEWERS

TOKEN = "a-token/that+is-long-enough"


def seqs(watcher: Watcher) -> list[int]:
    return [int(str(event["seq"])) for event in watcher.events]


async def test_a_request_is_seen_as_it_begins_and_as_it_ends(tmp_path: Path):
    async with world(tmp_path) as w, watching(w.proxy.port) as watcher:
        await w.ask("hi", name="mine")
        await watcher.until("context_alert")
        told = ["init", "session_created", "metric", "memory_metrics_update", "metric_updated", "context_alert"]
        assert watcher.types == told
        assert seqs(watcher) == list(range(seqs(watcher)[0], seqs(watcher)[0] + len(told)))
        (updated,) = watcher.said("metric_updated")
        (listed,) = (await w.get("/api/export/json"))["metrics"]  # type: ignore[misc, union-attr]
    assert updated["metric"] == listed
    (alert,) = watcher.said("context_alert")
    assert alert["level"] == "warning"
    command = f"kimi-proxy compress {alert['session_id']}"
    assert (
        alert["hint"]
        == f'little room is left: make room with the red button "Compress now" on the dashboard, or with {command}'
    )


async def test_a_viewer_who_comes_later_is_told_how_things_are(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi")
        sessions = await w.sessions(1)
        async with watching(w.proxy.port) as watcher:
            (init,) = await watcher.until("init")
    assert init["sessions"] == sessions
    assert isinstance(init["metrics"], list)
    assert [each["outcome"] for each in init["metrics"]] == ["ok"]


async def test_who_comes_back_goes_on_where_it_left(tmp_path: Path):
    async with world(tmp_path) as w:
        async with watching(w.proxy.port) as watcher:
            await w.ask("hi")
            await watcher.until("context_alert")
        for turn in range(3):
            await w.ask(f"hi {turn}")
        await w.sessions(4)
        async with watching(w.proxy.port, f"?since={seqs(watcher)[2]}") as again:
            await again.until("metric_updated", 4)
    assert "init" not in again.types
    assert again.events[:3] == watcher.events[3:]
    assert seqs(again) == list(range(seqs(again)[0], seqs(again)[0] + len(again.events)))


@pytest.mark.parametrize("since", ["0", "99999999999999", "x", "-1", "", "1e3", "٣"])
async def test_who_knows_nothing_that_is_still_known_begins_again(tmp_path: Path, since: str):
    async with world(tmp_path) as w:
        w.proxy.runtime.hub.publish(LOCAL, "metric", {})
        async with watching(w.proxy.port, f"?since={since}") as watcher:
            await watcher.until("init")
    assert watcher.types == ["init"]


async def test_who_was_away_too_long_begins_again(tmp_path: Path):
    async with world(tmp_path) as w:
        async with watching(w.proxy.port) as watcher:
            await watcher.until("init")
        for _ in range(HISTORY + 1):
            w.proxy.runtime.hub.publish(LOCAL, "metric", {})
        async with watching(w.proxy.port, f"?since={seqs(watcher)[0]}") as again:
            await again.until("init")


async def test_prunes_are_seen(tmp_path: Path):
    async with world(tmp_path) as w, watching(w.proxy.port) as watcher:
        await watcher.until("init")
        answer = await w.proxy.runtime.pruner.prune(LOCAL, a_question(a_log(300)))
        (event,) = await watcher.until("prune_event")
    assert (event["prune_id"], event["outcome"]) == (answer.prune_id, "pruned")
    assert event["pruned_lines"] == answer.pruned.pruned_lines


async def test_what_passes_the_gateway_is_seen(tmp_path: Path):
    toml = models() + '[mcp.servers.nobody]\nurl = "http://127.0.0.1:9/rpc"\n'
    async with world(tmp_path, toml) as w, watching(w.proxy.port) as watcher:
        await watcher.until("init")
        await w.proxy.rpc("nobody", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        (event,) = await watcher.until("gateway_event")
    assert (event["server"], event["outcome"]) == ("nobody", "upstream_unreachable")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "file://"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.nip.io"}, 421),
    ],
)
async def test_a_page_of_somebody_else_gets_no_socket(tmp_path: Path, headers: dict[str, str], status: int):
    async with world(tmp_path) as w:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"ws://127.0.0.1:{w.proxy.port}/ws", additional_headers=headers, proxy=None):
                pass
    assert refused.value.response.status_code == status


async def test_our_own_page_gets_one(tmp_path: Path):
    async with world(tmp_path) as w:
        own = f"http://127.0.0.1:{w.proxy.port}"
        async with connect(f"ws://127.0.0.1:{w.proxy.port}/ws", origin=own, proxy=None) as socket:  # type: ignore[arg-type]
            assert json.loads(await socket.recv())["type"] == "init"


async def test_a_token_is_asked_for_before_the_socket_opens(tmp_path: Path):
    coded = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    async with world(tmp_path, KIMI_PROXY_TOKEN=TOKEN) as w:
        url = f"ws://127.0.0.1:{w.proxy.port}/ws"
        for headers in ({}, {"authorization": "Bearer wrong"}, {"sec-websocket-protocol": "kimi-proxy, bearer.eHg"}):
            with pytest.raises(InvalidStatus) as refused:
                async with connect(url, additional_headers=headers, proxy=None):
                    pass
            assert refused.value.response.status_code == 401
        async with connect(url, additional_headers={"authorization": f"Bearer {TOKEN}"}, proxy=None) as socket:
            assert json.loads(await socket.recv())["type"] == "init"
        offered = ["kimi-proxy", f"bearer.{coded}"]
        async with connect(url, subprotocols=offered, proxy=None) as socket:  # type: ignore[arg-type]
            assert socket.subprotocol == "kimi-proxy"


async def test_what_a_viewer_says_is_passed_over_unless_it_is_too_much(tmp_path: Path):
    async with world(tmp_path) as w, watching(w.proxy.port) as watcher:
        await watcher.until("init")
        for word in ("hello", b"\x00\xff", '{"type": "metric"}'):
            await watcher.socket.send(word)
        w.proxy.runtime.hub.publish(LOCAL, "metric", {})
        await watcher.until("metric")
        await watcher.socket.send("x" * 100_000)
        await watcher.socket.wait_closed()
        assert watcher.socket.close_code == 1009


async def test_viewers_that_close_while_events_are_sent_leave_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with world(tmp_path) as w:
        for _ in range(20):
            # It reads no more than a few events, so it would wait long for the answer to its goodbye.
            async with connect(f"ws://127.0.0.1:{w.proxy.port}/ws", proxy=None, close_timeout=0.05) as socket:
                await socket.recv()
                for number in range(50):
                    w.proxy.runtime.hub.publish(LOCAL, "metric", {"n": number, "text": "x" * 5000})
                await asyncio.sleep(0)
        await until(lambda: not w.proxy.runtime.hub.viewers)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("pieces", [[b"\xff"], [b"caf\xc3", b"\x28"]])
async def test_a_text_that_is_not_utf_8_ends_the_connection_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pieces: list[bytes]
):
    async with world(tmp_path) as w:
        async with connect(f"ws://127.0.0.1:{w.proxy.port}/ws", proxy=None) as socket:
            await socket.recv()
            await socket.send(pieces if len(pieces) > 1 else pieces[0], text=True)
            await socket.wait_closed()
        async with watching(w.proxy.port) as watcher:
            await watcher.until("init")

    assert socket.close_code == 1007
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def test_a_crowd_is_turned_away(tmp_path: Path):
    async with world(tmp_path) as w, AsyncExitStack() as crowd:
        for _ in range(MAX_VIEWERS):
            crowd.enter_context(w.proxy.runtime.hub.join(LOCAL))
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"ws://127.0.0.1:{w.proxy.port}/ws", proxy=None):
                pass
    assert refused.value.response.status_code == 503


async def test_a_sick_store_is_told_and_news_come_all_the_same(tmp_path: Path):
    home = tmp_path / "home"
    home.write_text("in the way")
    async with world(home) as w, watching(w.proxy.port) as watcher:
        (init,) = await watcher.until("init")
        await w.ask("hi")
        await watcher.until("metric_updated")
    assert init["store"] == "recovery_unavailable"


async def test_a_frozen_viewer_is_cut_off_and_the_others_do_not_notice(tmp_path: Path):
    async with world(tmp_path) as w, AsyncExitStack() as alive:
        watchers = [await alive.enter_async_context(watching(w.proxy.port)) for _ in range(20)]
        await asyncio.gather(*(watcher.until("init") for watcher in watchers))
        audience = Audience(w.proxy.runtime.hub, watchers)
        frozen = alive.enter_context(frozen_viewer(w.proxy.port))
        began, rounds = time.monotonic(), 0
        while not (cut := is_cut(frozen)) and time.monotonic() - began < 60:
            await audience.hears_in()
            rounds += 1

    assert cut
    # Had they waited for the frozen one, it would have been cut off after the first; scripts/bench has the delays.
    assert rounds > 3
    assert "gap" not in {kind for watcher in watchers for kind in watcher.types}


async def test_a_viewer_who_takes_no_event_for_five_seconds_is_evicted_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "kimi_proxy")
    async with world(tmp_path) as w:
        with frozen_viewer(w.proxy.port) as frozen:
            began = time.monotonic()
            await until(lambda: w.proxy.runtime.hub.viewers == 1)
            for _ in range(400):
                w.proxy.runtime.hub.publish(LOCAL, "metric", {"padding": "x" * 100_000})
            await until(lambda: is_cut(frozen))
            took = time.monotonic() - began
        assert w.proxy.runtime.metrics.registry.get_sample_value("kimi_proxy_viewers_evicted_total") == 1
        assert w.proxy.runtime.hub.viewers == 0
    assert took < 60
    assert [record.getMessage() for record in caplog.records if "viewer" in record.getMessage()] == ["viewer evicted"]


async def test_a_server_that_stops_lets_its_viewers_go(tmp_path: Path):
    async with world(tmp_path) as w:
        viewers = [await connect(f"ws://127.0.0.1:{w.proxy.port}/ws", proxy=None) for _ in range(5)]
        began = time.monotonic()
    assert time.monotonic() - began < 60
    for viewer in viewers:
        async with asyncio.timeout(60):
            await viewer.wait_closed()
        assert viewer.close_code == 1012
