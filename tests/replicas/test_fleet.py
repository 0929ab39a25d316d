"""Three servers behind a balancer: any of them answers any request, and none of them is missed."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise

import httpx
import pytest
from tests.support.conversations import Assistant, Item, body
from tests.support.deep import IS_DEEP, deep
from tests.support.replicas.fleet import PATH, Fleet, balancer_name, cut_ids, fleet, messages, turn

from kimi_proxy.core.chat import Wire

pytestmark = pytest.mark.timeout(1800 if IS_DEEP else 600)

TURNS = 100
KILLS = 3  # of each server once; many more in test_kills.py, where a server starts in no time
PATIENCE_S = 60
RESUMES_S = 5.0
TICK_S = 0.02


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as running:
        print(f"behind {balancer_name()}")
        yield running


@deep("test_agreement.py shows it with light servers")
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


@deep("test_kills.py kills light servers")
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


class Load:
    """Requests one after the other by each of two clients, and what became of every one of them."""

    def __init__(self, here: Fleet) -> None:
        self._here = here
        self._stop = threading.Event()
        self.asked: set[str] = set()
        self.answers: list[tuple[float, float, int, bool]] = []  # begun, answered, status, whether it was cut
        self.late_s = 0.0  # by which the machine let a sleeper wait too long
        clients = [threading.Thread(target=self._ask, args=(name,)) for name in ("x", "y")]
        self._threads = [*clients, threading.Thread(target=self._sleep)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def cut_after(self, moment: float) -> list[float]:
        """Return when the requests began that were cut and answered after `moment`."""
        return [begun for begun, answered, _, is_cut in list(self.answers) if is_cut and answered > moment]

    def _ask(self, name: str) -> None:
        with httpx.Client(timeout=PATIENCE_S, trust_env=False, verify=False) as http:
            number = 0
            while not self._stop.is_set():
                number += 1
                came = f"Turn {name}{number}:"
                self.asked.add(came)
                begun, status = time.monotonic(), 0
                with suppress(httpx.HTTPError):
                    status = self._here.ask(turn(number, name), http=http).status_code
                sent = next((raw for raw in reversed(self._here.provider.bodies) if came.encode() in raw), b"")
                self.answers.append((begun, time.monotonic(), status, bool(cut_ids(sent))))

    def _sleep(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            time.sleep(TICK_S)
            self.late_s += time.monotonic() - began - TICK_S


def test_a_restart_of_the_database_loses_no_request_and_cutting_resumes(here: Fleet):
    with Load(here) as load:
        _until(lambda: load.cut_after(0))
        here.postgres.stop()
        away = time.monotonic()
        _until(lambda: sum(answered > away for _, answered, _, _ in list(load.answers)) >= 6)
        here.postgres.start()
        back, late_s = time.monotonic(), load.late_s
        _until(lambda: load.cut_after(back))
        # What a busy machine let a sleeper wait beyond its time is taken off: the servers waited as long. How many
        # attempts it takes is counted in tests/team/store/postgres/test_troubles.py.
        took = min(load.cut_after(back)) - back - (load.late_s - late_s)

    assert len(load.answers) == len(load.asked)
    assert {status for _, _, status, _ in load.answers} == {200}
    assert any(not is_cut for begun, answered, _, is_cut in load.answers if away < begun and answered < back)
    assert took <= RESUMES_S


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "this never became true"
        time.sleep(0.02)
