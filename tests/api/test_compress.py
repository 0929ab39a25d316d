"""A conversation that fills its window: compressed by itself or by hand, in the bytes that the provider receives."""

import asyncio
import json
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support import model
from tests.support.api.compress import (
    ASKED_FOR_SUMMARY,
    AUTOMATIC,
    FULL,
    PATHS,
    SUMMARY,
    WINDOW,
    Answer,
    conversation,
    sent_body,
    tokens_in,
    words,
    world,
)
from tests.support.conversations import Assistant, User, body
from tests.support.evil import Heard, Line, http
from tests.support.model import Says

from kimi_proxy.core import json as jsontext
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.json import JsonValue

WIRES = list(Wire)


async def refuses(heard: Heard, line: Line, wire: Wire) -> None:
    await line.send(http(b'{"error":{"message":"overloaded"}}', "529 Overloaded"))


async def stalls(heard: Heard, line: Line, wire: Wire) -> None:
    await line.until_left()


async def breaks(heard: Heard, line: Line, wire: Wire) -> None:
    line.reset()


async def babbles(heard: Heard, line: Line, wire: Wire) -> None:
    await line.send(http(b"<html>garbage</html>"))


async def talks_too_much(heard: Heard, line: Line, wire: Wire) -> None:
    await line.send(http(model.body(wire, Says("word " * 30_000))))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_window_that_is_nearly_full_is_compressed_by_itself(tmp_path: Path, wire: Wire):
    async with world(tmp_path, wire, AUTOMATIC) as here:
        before = await here.send(conversation(5))
        after = await here.send(conversation(FULL))
        stats = (await here.p.http.get("/api/compress/day-1/stats")).json()

    assert before.body == sent_body(wire, conversation(5))
    assert SUMMARY in words(after) and here.summaries_asked == 1
    assert "Question 3:" not in words(after)
    assert all(f"Question {n}:" in words(after) for n in range(FULL - 5, FULL))
    assert tokens_in(after.body, wire) < 0.6 * WINDOW
    assert after.system[0].text == before.system[0].text
    assert (stats["compressions"], stats["history"][0]["automatic"]) == (1, True)


@pytest.mark.parametrize("wire", WIRES)
async def test_requests_after_a_compression_begin_with_the_same_bytes(tmp_path: Path, wire: Wire):
    async with world(tmp_path, wire, AUTOMATIC) as here:
        bodies = [(await here.send(conversation(FULL + n))).body for n in range(3)]
    async with world(tmp_path, wire, AUTOMATIC) as here:  # after a restart too
        bodies.append((await here.send(conversation(FULL + 3))).body)

    for one, other in pairwise(bodies):
        pinned = one.rindex(b"And now?") - 60
        assert one[:pinned] == other[:pinned]
    assert here.summaries_asked == 0


async def test_nothing_happens_by_itself_unless_it_is_switched_on(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        sent = await here.send(conversation(FULL))

    assert sent.body == body(Wire.CHAT, conversation(FULL))
    assert here.summaries_asked == 0


@pytest.mark.parametrize("wire", WIRES)
async def test_by_hand_the_next_request_is_compressed_and_undo_brings_back_its_bytes(tmp_path: Path, wire: Wire):
    async with world(tmp_path, wire) as here:
        await here.send(conversation(FULL))
        status, done = await here.post("compress/day-1")
        compressed = await here.send(conversation(FULL + 1))
        undone = (await here.post("compress/day-1/undo"))[1]
        back = await here.send(conversation(FULL + 1))

    assert status == 200
    assert (done["summary"], done["summary_by"]) == (SUMMARY, "provider")
    assert done["compressed_tokens"] < done["original_tokens"]
    assert (done["summary_input_tokens"], done["summary_output_tokens"]) == (900, 40)
    assert SUMMARY in words(compressed)
    assert undone == {"session_id": done["session_id"], "undone": done["compression_id"], "active": None}
    assert back.body == sent_body(wire, conversation(FULL + 1))


async def test_what_was_removed_can_be_read_back_word_for_word(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        _, done = await here.post("compress/day-1")
        kept = (await here.p.http.get(f"/api/mask/{done['original_id']}")).json()["text"]
        (listed,) = (await here.p.http.get("/api/mask")).json()["masks"]

    messages = json.loads(body(Wire.CHAT, conversation(FULL)))["messages"]
    assert [json.loads(line) for line in kept.split("\n")] == messages[1 : 1 + done["messages_removed"]]
    assert (listed["id"], listed["preview"]) == (done["original_id"], kept[:200])


async def test_below_the_threshold_it_says_so_unless_it_is_forced(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(8))
        status, refused = await here.post("compress/day-1")
        forced, done = await here.post("compress/day-1", force=True)

    assert status == 400
    assert refused["error"] == "below_threshold" and refused["threshold"] == 85
    assert 30 < refused["current_percentage"] < 85 and refused["hint"]
    assert (forced, done["messages_removed"]) == (200, 3 * 4)


async def test_the_statistics_give_the_threshold_of_the_route_that_was_asked(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(8))
        paths = [f"/api/{name}/{rest}" for name in ("compress", "compaction") for rest in ("stats", "day-1/stats")]
        told = [(await here.p.http.get(path)).json()["threshold"] for path in paths]
        _, refused = await here.post("compaction/day-1")

    assert told == [85, 85, 80, 80]
    assert refused["threshold"] == 80


async def test_a_simulation_changes_nothing_and_asks_nobody(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        status, told = await here.post("compress/day-1/simulate")
        after = await here.send(conversation(FULL))

    assert (status, told["simulated"], told["summary_by"]) == (200, True, "heuristic")
    assert told["original_id"] is None
    assert told["compressed_tokens"] < told["original_tokens"]
    assert after.body == body(Wire.CHAT, conversation(FULL))
    assert here.summaries_asked == 0


@pytest.mark.parametrize("summary", [refuses, stalls, breaks, babbles, talks_too_much])
async def test_a_summary_that_does_not_come_is_no_reason_to_fail(tmp_path: Path, summary: Answer):
    settings = AUTOMATIC + "summary_timeout_s = 0.5\n"
    async with world(tmp_path, Wire.CHAT, settings, summary) as here:
        sent = await here.send(conversation(FULL))
        stats = (await here.p.http.get("/api/compress/day-1/stats")).json()

    assert here.summaries_asked >= 1
    assert "the user said: Question 0" in words(sent)
    assert tokens_in(sent.body, Wire.CHAT) < 0.6 * WINDOW
    assert stats["history"][0]["summary_by"] == "heuristic"


async def test_what_cannot_be_cut_goes_out_whole(tmp_path: Path):
    one = [User("Read this: " + "word " * 5_500)]
    async with world(tmp_path, Wire.CHAT, AUTOMATIC) as here:
        sent = await here.send(one)
        status, refused = await here.post("compress/day-1")
        metric = (await here.p.http.get("/api/export/json?session=day-1")).json()

    assert sent.body == body(Wire.CHAT, one)
    assert status == 409 and refused["error"]["code"] == "compression_refused"
    assert "nothing_to_compress" in json.dumps(metric)


async def test_a_second_compression_tells_the_first_one_on(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT, AUTOMATIC) as here:
        await here.send(conversation(FULL))
        later = await here.send(conversation(FULL + 12))
        asked = [heard.body.decode() for heard in here.provider.heard if ASKED_FOR_SUMMARY in heard.body]
        undone = (await here.post("compress/day-1/undo"))[1]

    assert len(asked) == 2 and SUMMARY in asked[1] and "Question 3:" not in asked[1]
    assert "Question 20:" not in words(later) and f"Question {FULL + 11}:" in words(later)
    assert undone["active"] is not None


async def test_after_an_undo_nothing_happens_by_itself_until_somebody_asks(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT, AUTOMATIC) as here:
        await here.send(conversation(FULL))
        await here.post("compress/day-1/undo")
        whole = await here.send(conversation(FULL))
        status, _ = await here.post("compress/day-1")
        again = await here.send(conversation(FULL))

    assert whole.body == body(Wire.CHAT, conversation(FULL))
    assert status == 200 and SUMMARY in words(again)


@pytest.mark.parametrize("rest", ["cooldown_s = 3600\n", "cooldown_s = 0\nmax_in_a_row = 1\n"])
async def test_it_rests_between_two_compressions(tmp_path: Path, rest: str):
    async with world(tmp_path, Wire.CHAT, "rescue = false\nautomatic = true\n" + rest) as here:
        await here.send(conversation(FULL))
        grown = await here.send(conversation(FULL + 12))
        told = (await here.p.http.get("/api/compress/day-1/stats")).json()

    assert told["compressions"] == 1
    assert SUMMARY in words(grown) and tokens_in(grown.body, Wire.CHAT) > 0.85 * WINDOW


async def test_two_requests_at_once_are_compressed_once(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT, AUTOMATIC) as here:
        await asyncio.gather(*(here.send(conversation(FULL)) for _ in range(4)))

    assert len({request.body for request in here.heard}) == 1
    assert SUMMARY in words(here.heard[0])


async def test_sessions_are_told_apart_and_names_are_not_mixed_up(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        await here.send(conversation(FULL), **{"x-session-id": "day-2"})
        await here.post("compress/day-1")
        one = await here.send(conversation(FULL))
        other = await here.send(conversation(FULL), **{"x-session-id": "day-2"})

    assert SUMMARY in words(one)
    assert other.body == body(Wire.CHAT, conversation(FULL))


async def test_the_light_preset_keeps_two_exchanges_and_asks_nobody(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        status, done = await here.post("compaction/day-1")
        sent = await here.send(conversation(FULL))

    assert (status, done["kind"], done["summary_by"]) == (200, "compaction", "heuristic")
    assert here.summaries_asked == 0
    assert f"def function_{FULL - 3}" not in words(sent) and f"def function_{FULL - 2}" in words(sent)


async def test_without_a_request_since_the_start_there_is_nothing_to_compress(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
    async with world(tmp_path, Wire.CHAT) as here:
        status, refused = await here.post("compress/day-1")
        unknown, _ = await here.post("compress/nobody")
        nothing, _ = await here.post("compress/day-1/undo")

    assert (status, refused["error"]["code"]) == (404, "no_request_seen")
    assert (unknown, nothing) == (404, 409)


async def test_blocks_of_memory_are_never_compressed_away(tmp_path: Path):
    block = "<mcp-memory>\nLe port de production est 8443.\n</mcp-memory>"
    items = [User(f"Remember {block}"), Assistant("I will."), *conversation(FULL)]
    async with world(tmp_path, Wire.MESSAGES, AUTOMATIC) as here:
        sent = await here.send(items)

    assert words(sent).count(block) == 1 and SUMMARY in words(sent)


async def test_a_deleted_session_begins_anew(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        await here.post("compress/day-1")
        await here.send(conversation(FULL))
        await here.p.http.delete("/api/sessions/day-1")
        sent = await here.send(conversation(FULL))

    assert sent.body == body(Wire.CHAT, conversation(FULL))


async def test_the_context_is_shown_message_by_message(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        await here.post("compress/day-1")
        await here.send(conversation(FULL))
        shown = (await here.p.http.get("/api/sessions/day-1/context")).json()
        summary = next(each for each in shown["messages"] if "compressed" in each["flags"])
        looked = (await here.p.http.get(f"/api/sessions/day-1/context/{summary['index']}")).json()
        beyond = await here.p.http.get("/api/sessions/day-1/context/999")
        one = shown["summarized"][2]
        gone = (await here.p.http.get(f"/api/sessions/day-1/context/summarized/{one['index']}")).json()
        stayed = await here.p.http.get(f"/api/sessions/day-1/context/summarized/{4 * FULL}")

    assert sum(shown["composition"].values()) == shown["tokens"]
    assert [each["index"] for each in shown["messages"]] == list(range(len(shown["messages"])))
    assert SUMMARY in looked["sent"] and "Question 0:" in looked["received"] and looked["changed"]
    assert beyond.status_code == 400
    assert shown["messages"][0]["flags"] == [] and shown["buried"] is False
    assert shown["summary_index"] == summary["index"]
    assert [each["role"] for each in shown["summarized"][:4]] == ["user", "assistant", "tool", "assistant"]
    assert "word0 word0" in gone["received"] and gone["sent"] == looked["sent"] and gone["role"] == "tool"
    assert one["preview"] == gone["received"][:160] and one["tokens"] > 100
    assert stayed.status_code == 400


async def test_where_nothing_was_compressed_no_message_is_summarized(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        shown = (await here.p.http.get("/api/sessions/day-1/context")).json()
        gone = await here.p.http.get("/api/sessions/day-1/context/summarized/1")

    assert (shown["summary_index"], shown["summarized"]) == (None, [])
    assert gone.status_code == 400


async def test_the_history_of_compressions_tells_each_summary_and_what_became_of_it(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        _, made = await here.post("compress/day-1")
        stats = (await here.p.http.get("/api/compress/day-1/stats")).json()
        await here.post("compress/day-1/undo")
        again = (await here.p.http.get("/api/compress/day-1/stats")).json()
        status, refused = await here.post("compress/day-1/undo")

    (stood,), (undone,) = stats["history"], again["history"]
    assert (stood["summary"], stood["undone_at"]) == (SUMMARY, None)
    assert stood["messages_removed"] == made["messages_removed"]
    assert undone["undone"] and undone["undone_at"] >= undone["at"]
    assert (status, refused["error"]["reason"]) == (409, "nothing_to_undo")


async def test_instructions_that_much_follows_on_are_marked_as_buried(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT) as here:
        await here.send(conversation(FULL))
        shown = (await here.p.http.get("/api/sessions/day-1/context")).json()

    assert shown["messages"][0]["flags"] == ["buried"] and shown["buried"] is True


async def test_pictures_fill_a_window_too(tmp_path: Path):
    """Their addresses are short."""
    shown = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}]
    said: list[JsonValue] = []
    for n in range(12):
        said += [
            {"role": "user", "content": [*shown, {"type": "text", "text": f"Question {n}"}]},
            {"role": "assistant", "content": "A cat."},
        ]
    raw = jsontext.encode({"model": "kimi-k2", "messages": [*said, {"role": "user", "content": "And now?"}]})
    async with world(tmp_path, Wire.CHAT, AUTOMATIC) as here:
        await here.p.http.post(PATHS[Wire.CHAT], content=raw, headers={"content-type": "application/json"})

    assert tokens_in(raw, Wire.CHAT) > WINDOW > len(raw)
    assert len(here.heard[-1].messages) < len(parse(raw, Wire.CHAT).messages)


async def test_a_clock_that_was_ahead_keeps_nothing_from_happening_once_it_is_right(tmp_path: Path):
    async with world(tmp_path, Wire.CHAT, AUTOMATIC) as here:
        await here.send(conversation(FULL))
    with closing(sqlite3.connect(tmp_path / "store" / "originals.sqlite3")) as file, file:
        file.execute("UPDATE compression_log SET timestamp = timestamp + 86400 * 30")
    async with world(tmp_path, Wire.CHAT, AUTOMATIC + "max_in_a_row = 1\n") as here:
        await here.send(conversation(FULL + 12))

    assert here.summaries_asked == 1
