"""What is remembered of conversations is in one registry, and a deletion walks it."""

import ast
import gc
from pathlib import Path

import pytest
from tests.support.fakes import Clock

import kimi_proxy
from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.config import parse
from kimi_proxy.services.remembered import Memory, Remembered, stays, with_any, with_session

OTHER = Caller("person/other")
CHAT = Path(kimi_proxy.__file__).parent / "services" / "chat"


def places(remembered: Remembered[tuple[str, str], str]) -> set[tuple[str, str]]:
    return {place for place, _ in remembered.items()}


def kept(memory: Memory, name: str, forget: object = with_session) -> Remembered[tuple[str, str], str]:
    remembered: Remembered[tuple[str, str], str] = Remembered(memory, name, size=9, forget=forget)  # type: ignore[arg-type]
    for scope in (LOCAL.scope, LOCAL.observed.scope, OTHER.scope):
        for session in ("one", "two"):
            remembered.put((scope, session), "words")
    return remembered


def test_a_session_that_is_deleted_is_forgotten_also_as_it_was_observed():
    memory = Memory()
    own, digests, unsure = kept(memory, "own"), kept(memory, "digests", stays), kept(memory, "unsure", with_any)
    everything = places(digests)
    memory.forget(LOCAL, "one")

    assert everything - places(own) == {(LOCAL.scope, "one"), (LOCAL.observed.scope, "one")}
    assert places(digests) == everything
    assert places(unsure) == {(OTHER.scope, "one"), (OTHER.scope, "two")}


def test_all_sessions_of_a_person_are_forgotten_and_nobody_else_s():
    memory = Memory()
    own = kept(memory, "own")
    memory.forget(LOCAL, None)

    assert places(own) == {(OTHER.scope, "one"), (OTHER.scope, "two")}


def test_an_entry_lives_as_long_as_its_kind():
    clock = Clock()
    remembered: Remembered[tuple[str, str], str] = Remembered(
        Memory(), "short", size=9, life_s=10, now=clock, forget=with_session
    )
    remembered.put(("local", "one"), "words")
    clock.advance(11)
    assert remembered.get(("local", "one")) is None


def test_two_kinds_cannot_have_one_name():
    memory = Memory()
    kept(memory, "own")
    with pytest.raises(ValueError, match="twice"):
        kept(memory, "own")


async def test_every_cache_of_the_running_server_s_chats_is_in_the_one_registry(tmp_path: Path):
    gc.collect()
    before = {id(each) for each in gc.get_objects() if isinstance(each, Remembered)}
    async with running(parse('[providers.p]\ntype = "openai"\nbase_url = "http://127.0.0.1:9"\n', {}, tmp_path)):
        made = [each for each in gc.get_objects() if isinstance(each, Remembered) and id(each) not in before]
        registries = [each for each in gc.get_objects() if isinstance(each, Memory) and set(made) & set(each)]
        assert len(registries) == 1, "a part was built without the registry"
        assert {each.name for each in registries[0]} == {each.name for each in made}


def test_no_file_of_chats_makes_a_cache_beside_it():
    outside = [
        path.name
        for path in CHAT.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and any(name.name == "LruCache" for name in node.names)
    ]
    assert outside == []
