"""Claude Code in front of a local model: its prompt cache is hit, although the client varies the first text."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from tests.evil import Heard, Line, evil, http
from tests.model import Says, body

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.chat.handler import ChatRequest
from kimi_proxy.services.runtime import running

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
