"""Claude Code in front of a local model: its prompt cache is hit, although the client varies the first text."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User
from tests.support.conversations import body as request_body
from tests.support.evil import Heard, Line, evil, http
from tests.support.model import Says, body

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.chat.requests import ChatRequest

# As version 2.1.325 writes it, where it takes the server for Anthropic's.
BILLING = (
    "x-anthropic-billing-header: cc_version=2.1.325.7d8; cc_entrypoint=sdk-cli; cch={hash}; cc_prompt_id={prompt}; "
    "cc_turn_origin=sdk; cc_prompt_index=0; cc_turn_index={turn};"
)
RULES = "You are a careful engineer. " * 40


class Hashing:
    """A model that reads anew what follows the longest prefix that it has read before, counted in messages."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self.read_anew: list[int] = []
        self.systems: list[str] = []

    async def __call__(self, heard: Heard, line: Line) -> None:
        request = parse(heard.body, Wire.MESSAGES)
        self.systems.append(request.system[0].text)
        head = json.dumps([json.loads(heard.body).get("tools"), [part.text for part in request.system]])
        said = [head.encode(), *(heard.body[message.start : message.end] for message in request.messages)]
        hashes = [sha256(b"\0".join(said[: end + 1])).digest() for end in range(len(said))]
        self.read_anew.append(sum(1 for each in hashes if each not in self._seen))
        self._seen |= set(hashes)
        await line.send(http(body(Wire.MESSAGES, Says("So."))))


def turn(number: int) -> bytes:
    billing = BILLING.format(hash=f"{number:05x}", prompt=f"p-{number}", turn=number)
    system = [{"type": "text", "text": billing}, {"type": "text", "text": RULES}]
    said = [{"role": "assistant" if at % 2 else "user", "content": f"words {at}"} for at in range(2 * number + 1)]
    asked: JsonObject = {"model": "local", "max_tokens": 9, "system": system, "messages": said}
    return json.dumps(asked).encode()


@pytest.mark.parametrize(("name", "read_anew"), [("llama", [2, 2, 2, 2]), ("anthropic", [2, 4, 6, 8])])
async def test_a_model_that_is_not_anthropic_s_hits_its_cache_in_every_turn(
    name: str, read_anew: list[int], tmp_path: Path
):
    model = Hashing()
    async with evil(model) as provider:
        toml = f'[providers.{name}]\ntype = "anthropic"\nbase_url = "{provider.url}"\napi_key = ""\n'
        for turns in (range(2), range(2, 4)):  # with a restart between them
            async with running(parse_config(toml, {}, tmp_path)) as runtime:
                for number in turns:
                    headers = ((b"x-claude-code-session-id", b"3fe3571c"),)
                    async with runtime.chat.answer(ChatRequest(LOCAL, Wire.MESSAGES, turn(number), headers)):
                        pass

    assert model.read_anew == read_anew
    if name == "llama":
        (pinned,) = set(model.systems)
        assert pinned.startswith("x-anthropic-billing-header: cc_version=2.1.325.7d8; cc_entrypoint=sdk-cli; cch=")
        assert "cc_prompt_id" not in pinned and len(pinned.rpartition("cch=")[2]) == len("00000;")


LOG = outputs.pytest_log(300)
LOGIN = (b"authorization", b"Bearer sk-ant-oat01-x")
KEY = (b"x-api-key", b"sk-ant-api03-x")


def signed(*items: Item, hash: str = "cch=69494; ") -> bytes:
    """A request with tools, as Claude Code signs it."""
    asked = json.loads(request_body(Wire.MESSAGES, items))
    billing = f"x-anthropic-billing-header: cc_version=2.1.325.b2e; cc_entrypoint=sdk-cli; {hash}"
    return json.dumps(asked | {"system": [{"type": "text", "text": billing}, {"type": "text", "text": RULES}]}).encode()


async def sent(home: Path, raw: bytes, *headers: tuple[bytes, bytes], name: str = "anthropic", more: str = "") -> bytes:
    """Return what a provider of that name gets of a request."""
    async with evil(Hashing()) as provider:
        toml = f'[providers.{name}]\ntype = "anthropic"\nbase_url = "{provider.url}"\napi_key = ""\n{more}'
        async with (
            running(parse_config(toml, {}, home), thread_max_chars=10**9) as runtime,
            runtime.chat.answer(ChatRequest(LOCAL, Wire.MESSAGES, raw, headers)),
        ):
            pass
        return provider.heard[0].body


TURN: list[Item] = [User(LOG.goal), Assistant("", (Call("call_a1"),)), Result("call_a1", LOG.text)]
PATIENT = "[sanitizer]\nbudget_ms = 60000\n"


@pytest.mark.parametrize("pays", [LOGIN, KEY], ids=["the login of a plan pays", "a key pays"])
async def test_what_claude_code_signed_is_sent_unchanged(
    tmp_path: Path, pays: tuple[bytes, bytes], caplog: pytest.LogCaptureFixture
):
    raw = signed(*TURN)

    assert await sent(tmp_path, raw, pays, more=PATIENT) == raw
    assert "Claude Code signed it" in caplog.text


@pytest.mark.parametrize(
    ("raw", "header", "name", "more"),
    [
        pytest.param(signed(*TURN, hash=""), LOGIN, "anthropic", "", id="not signed"),
        pytest.param(signed(*TURN), LOGIN, "llama", "", id="another provider"),
        pytest.param(signed(*TURN), LOGIN, "anthropic", "change_attested = true\n", id="the user chose so"),
    ],
)
async def test_other_requests_are_shortened_as_usual(
    tmp_path: Path, raw: bytes, header: tuple[bytes, bytes], name: str, more: str
):
    came = await sent(tmp_path, raw, header, name=name, more=PATIENT + more)

    assert len(came) < len(raw) and b"recover_text" in came


async def test_a_signed_conversation_is_not_rescued_although_it_exceeds_the_window(tmp_path: Path):
    small = '[models."kimi-k2"]\nprovider = "anthropic"\nmax_context_size = 2000\n'
    items: list[Item] = []
    for number in range(20):
        items += [User(f"Do step {number}: {'word ' * 100}"), Assistant("Done.")]
    asked = signed(*items, User("And?"))
    unsigned = signed(*items, User("And?"), hash="")

    assert await sent(tmp_path, asked, KEY, more=PATIENT + small) == asked
    assert len(await sent(tmp_path, unsigned, KEY, more=PATIENT + small)) < len(unsigned)


async def test_what_was_cut_before_it_was_signed_stays_cut_and_nothing_new_is(tmp_path: Path):
    later: list[Item] = [*TURN, Assistant("", (Call("call_a2"),)), Result("call_a2", LOG.text + "more")]
    session = (b"x-session-id", b"one")
    first = await sent(tmp_path, signed(*TURN, hash=""), LOGIN, session, more=PATIENT)
    second = await sent(tmp_path, signed(*later), LOGIN, session, more=PATIENT)

    def results(raw: bytes) -> list[str]:
        return [part.text for m in parse(raw, Wire.MESSAGES).messages for part in m.parts if part.kind == "tool_result"]

    assert results(second) == [*results(first), LOG.text + "more"]
    assert results(first) != [LOG.text] and b"recover_text" in second
