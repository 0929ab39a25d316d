"""What all requests share: the room for their bodies, and the patience with wrong tokens."""

import asyncio
import gzip
import time
from math import ceil

from starlette.types import Message, Receive, Scope, Send
from tests.support.processes import until

from kimi_proxy.api import guard
from kimi_proxy.api.guard import MEMORY_SHARE, WORK_FACTOR, Guard, Room, Rules

HOST = (b"host", b"127.0.0.1:8000")


def a_scope(*headers: tuple[bytes, bytes], method: str = "POST") -> Scope:
    given = [HOST, *headers]
    return {"type": "http", "method": method, "path": "/mcp", "headers": given, "server": ("127.0.0.1", 8000)}


async def asked(app: Guard, scope: Scope, body: bytes = b"") -> dict[str, object]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return {"status": sent[0]["status"], **{key.decode(): value.decode() for key, value in sent[0]["headers"]}}


async def test_bodies_that_need_too_much_room_together_are_sent_again_later() -> None:
    busy, go_on = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        busy.set()
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    size = 1024
    guarded = Guard(app, Rules(max_body_bytes=size), room=Room(0, size))
    body = bytes(size)
    scope = a_scope((b"content-type", b"application/json"), (b"content-length", str(size).encode()))
    first = asyncio.create_task(asked(guarded, scope, body))
    await busy.wait()
    second = await asked(guarded, scope, body)
    assert (second["status"], second["retry-after"]) == (503, "1")
    go_on.set()
    assert (await first)["status"] == 200
    assert (await asked(guarded, scope, body))["status"] == 200


async def test_wrong_tokens_are_answered_ten_times_a_second_and_the_right_one_at_once() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    guarded = Guard(app, Rules(token="t" * 20))
    wrong, right = (a_scope((b"x-api-key", key), method="GET") for key in (b"x", b"t" * 20))
    for _ in range(guard.FREE_GUESSES):
        assert (await asked(guarded, wrong))["status"] == 401
    began = time.monotonic()
    guesses = [asyncio.create_task(asked(guarded, wrong)) for _ in range(5)]
    await asyncio.sleep(0)
    assert (await asked(guarded, right))["status"] == 200
    assert not any(guess.done() for guess in guesses)
    assert [(await guess)["status"] for guess in guesses] == [401] * 5
    assert time.monotonic() - began >= 4 * guard.GUESS_S


async def test_a_request_offers_at_most_four_tokens_and_each_counts_as_a_guess() -> None:
    """One request tried 2,000 of them, each with a look into the store."""
    looked_up: list[bytes] = []

    async def identify(headers: guard.Headers) -> None:
        looked_up.extend(guard.tokens_in(headers))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it reached the application")

    guarded = Guard(app, Rules(identify=identify))
    many, four = (a_scope(*((b"x-api-key", b"kpt_%d" % n) for n in range(count)), method="GET") for count in (2000, 4))
    assert (await asked(guarded, many))["status"] == 401
    assert looked_up == []
    for _ in range(guard.FREE_GUESSES // 4):
        assert (await asked(guarded, four))["status"] == 401
    began = time.monotonic()
    assert (await asked(guarded, four))["status"] == 401
    assert time.monotonic() - began >= guard.GUESS_S


async def test_bodies_that_do_not_all_fit_are_served_as_far_as_they_do() -> None:
    """20 of 31 MB came at once, and all were refused: each held its part while none could get the rest."""
    step = 1024
    gate, served = asyncio.Event(), 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal served
        served += 1
        await gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    guarded = Guard(
        app, Rules(max_body_bytes=4 * step), room=Room(int(WORK_FACTOR * 64.01 * step / MEMORY_SHARE), 4 * step)
    )
    piece = bytes(step)

    async def ask() -> int:
        left, sent = 4, list[Message]()

        async def receive() -> Message:
            nonlocal left
            await asyncio.sleep(0)  # the pieces of all bodies come by turns
            left -= 1
            return {"type": "http.request", "body": piece, "more_body": left > 0}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = a_scope((b"content-type", b"application/json"), (b"content-length", str(4 * step).encode()))
        await guarded(scope, receive, send)
        return int(sent[0]["status"])

    asking = [asyncio.create_task(ask()) for _ in range(20)]
    await until(lambda: served + sum(one.done() for one in asking) == 20)
    gate.set()
    statuses = [await one for one in asking]

    assert (statuses.count(200), statuses.count(503)) == (16, 4)


async def test_a_body_that_is_compressed_twice_is_refused() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it reached the application")

    twice = ((b"content-encoding", b"gzip"),) * 2
    refused = await asked(Guard(app, Rules()), a_scope((b"content-length", b"3"), *twice), b"abc")

    assert refused["status"] == 415


async def test_a_refused_body_is_read_to_its_end_unless_that_would_ask_for_it() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it reached the application")

    form = ((b"content-type", b"text/plain"), (b"content-length", b"3"))
    read = await asked(Guard(app, Rules()), a_scope(*form), b"abc")
    waiting = await asked(Guard(app, Rules()), a_scope(*form, (b"expect", b"100-continue")), b"abc")

    assert (read["status"], read.get("connection")) == (415, None)
    assert (waiting["status"], waiting.get("connection")) == (415, "close")


def bodies(count: float) -> Room:
    """A room for so many bodies of 1 MiB."""
    return Room(ceil(WORK_FACTOR * count * 1024**2 / MEMORY_SHARE), 1024**2)


async def test_small_bodies_that_inflate_to_large_ones_take_no_more_than_there_is_room() -> None:
    """60 of 31 KB took 2 GB: room was asked for when they were inflated already."""
    served = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await served.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    bomb = gzip.compress(bytes(1024**2 - 64))
    guarded = Guard(app, Rules(max_body_bytes=1024**2), room=bodies(4.5))
    asking = [asyncio.create_task(ask_with(guarded, bomb)) for _ in range(12)]
    await until(lambda: sum(one.done() for one in asking) >= 8)
    served.set()
    statuses = [await one for one in asking]

    assert sorted(statuses) == [200] * 4 + [503] * 8
    assert await ask_with(guarded, bomb) == 200, "all of the room is given back"


async def ask_with(guarded: Guard, body: bytes) -> int:
    return int(
        (await asked(guarded, a_scope(*GZIP, (b"content-length", str(len(body)).encode())), body))["status"]  # type: ignore[call-overload]
    )


GZIP = ((b"content-type", b"application/json"), (b"content-encoding", b"gzip"))


def test_one_person_leaves_room_for_the_others_and_one_body_always_fits() -> None:
    room = bodies(9)

    own = [room.take("psn_ada", 1024**2) for _ in range(4)]

    assert own == [True, True, True, False]
    assert room.take("psn_ben", 1024**2)
    assert Room(0, 1024**2).take("psn_ada", 1024**2)


def test_what_is_given_back_can_be_taken_again() -> None:
    room = bodies(1)
    for _ in range(3):
        assert room.take("psn_ada", 1024**2)
        assert not room.take("psn_ben", 1)
        room.give_back("psn_ada", 1024**2)
