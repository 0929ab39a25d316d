"""Three servers behind a balancer: any of them answers any request, and none of them is missed."""

import re
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import httpx
import pytest
from tests.conversations import Assistant, Call, Item, Result, User, body
from tests.deep import IS_DEEP
from tests.outputs import pytest_log
from tests.replicas.fleet import PATH, Fleet, balancer_name, fleet, messages

from kimi_proxy.core.chat import Wire

pytestmark = pytest.mark.timeout(1800 if IS_DEEP else 600)

TURNS = 100
KILLS = 500 if IS_DEEP else 12  # a server that starts takes a second or two of CPU
PATIENCE_S = 60

# Ids of originals in the marker of a cut.
IDS = re.compile(rb"(?:prn|msk)_[0-9a-hjkmnp-tv-z]{16}")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as running:
        print(f"behind {balancer_name()}")
        yield running


def turn(number: int, name: str = "") -> list[Item]:
    """Return a question, a call, and a result that is long enough to be cut."""
    call = f"call_{name}{number:06}"
    text = f"run {name}{number}\n{pytest_log(60, number).text}"
    return [User(f"Turn {name}{number}: why does it fail?"), Assistant("", (Call(call),)), Result(call, text)]


def cut_ids(raw: bytes) -> list[str]:
    return [id.decode() for id in IDS.findall(raw)]


def test_what_is_cut_on_one_server_is_recovered_on_the_others(here: Fleet):
    items = turn(1, "cut")
    assert here.ask(items).status_code == 200
    (id,) = set(cut_ids(here.provider.bodies[-1]))
    texts = [here.http.get(f"{one.url}/api/mask/{id}").json()["text"] for one in here.replicas]

    assert texts == [items[-1].text] * 3  # type: ignore[union-attr]


def test_a_conversation_that_changes_servers_with_every_turn_keeps_its_prefix(here: Fleet):
    before = len(here.provider.bodies)
    items: list[Item] = []
    for number in range(TURNS):
        items += turn(number, "long")
        assert here.ask(items).status_code == 200
        items.append(Assistant("I see."))
    sent = [messages(raw) for raw in here.provider.bodies[before:]]

    assert len(sent) == TURNS
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(sent))
    assert all("PRUN" in each[-1] for each in sent)


def test_servers_that_are_killed_in_mid_stream_lose_no_original(here: Fleet):
    kept: dict[str, str] = {}
    for number in range(KILLS):
        victim, items = here.replicas[number % 3], turn(number, "kill")
        asked = len(here.provider.bodies)
        with httpx.Client(timeout=PATIENCE_S, trust_env=False) as http:
            raw = body(Wire.CHAT, items, stream=True)
            with http.stream(
                "POST", victim.url + PATH, content=raw, headers={"content-type": "application/json"}
            ) as got:
                next(got.iter_raw())
                here.provider.wait_for(asked + 1)
                victim.kill()
        (id,) = set(cut_ids(here.provider.bodies[asked]))
        kept[id] = items[-1].text  # type: ignore[union-attr]
        survivor = here.replicas[(number + 1) % 3]
        assert here.http.get(f"{survivor.url}/api/mask/{id}").json()["text"] == kept[id]
        victim.start()
        victim.wait()
    found = {id: here.http.get(f"{here.url}/api/mask/{id}").json()["text"] for id in kept}

    assert len(kept) == KILLS
    assert found == kept


def test_a_restart_of_the_database_loses_no_request_and_cutting_resumes(here: Fleet):
    answers: list[tuple[float, int, bool]] = []  # when it was answered, how, and whether the result was cut
    stop = threading.Event()

    def load(name: str) -> None:
        with httpx.Client(timeout=PATIENCE_S, trust_env=False) as http:
            number = 0
            while not stop.is_set():
                number += 1
                came = f"run {name}{number}\n".encode()[:-1]
                status = here.ask(turn(number, name), http=http).status_code
                sent = next(raw for raw in reversed(here.provider.bodies) if came in raw)
                answers.append((time.monotonic(), status, bool(cut_ids(sent))))

    def cut_since(moment: float) -> bool:
        return any(is_cut for at, _, is_cut in answers if at > moment)

    threads = [threading.Thread(target=load, args=(name,)) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    try:
        _until(lambda: cut_since(0))
        here.postgres.stop()
        away = time.monotonic()
        _until(lambda: sum(at > away for at, _, _ in answers) >= 6)
        here.postgres.start()
        back = time.monotonic()
        _until(lambda: cut_since(back))
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)

    assert {status for _, status, _ in answers} == {200}
    assert any(not is_cut for at, _, is_cut in answers if away < at < back)
    print(f"cut again {min(at for at, _, is_cut in answers if is_cut and at > back) - back:.1f} s after it was back")


def _until(condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "this never became true"
        time.sleep(0.02)
