"""Providers that cache prompts as their own pages say, and keep their own bill. Nothing here is read from our table.

Anthropic: platform.claude.com/docs/en/build-with-claude/prompt-caching. OpenAI: developers.openai.com, prompt caching.
Moonshot: forum.moonshot.ai 613. DeepSeek: api-docs.deepseek.com, kv_cache.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256

from tests.support.evil import Heard, Line, http

from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.tokens import count as tokens_of

CALL_TOKENS = 60
MARKER = re.compile(r"prune_id=(prn_[0-9a-z]{16}) lignes (\d+)-")
_DONE = {"role": "assistant", "content": "Done."}

Block = tuple[str, str | None]  # what the model reads, and the life that a mark on it asks for ("" by default)


@dataclass
class Counts:
    plain: int = 0
    read: int = 0
    write: int = 0
    hour: int = 0  # of what is written, for an hour
    output: int = 50


@dataclass
class CachedProvider:
    """Answers every request with one sentence; `cache` says what is read and written, by the rules of one provider."""

    now: Callable[[], float]
    cache: Callable[["CachedProvider", Sequence[Block]], Counts]
    prices: dict[str, float]  # USD for a million tokens: plain, read, write, hour, output
    entries: dict[bytes, tuple[float, float]] = field(default_factory=dict)  # until when, and for how long
    bill: float = 0.0
    prompts: list[list[str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    written: int = 50  # tokens of its next answer, thinking included
    reasoned: int = 0  # of these, what it thinks and the client does not send back
    recalls: int = 0  # so many times it reads something back before its next answer
    recalled: int = 0  # how often it has

    async def answer(self, heard: Heard, line: Line) -> None:
        asked = json.loads(heard.body)
        is_messages = "max_tokens" in asked
        await line.send(http(json.dumps(self.charge(asked, is_messages)).encode()))

    def charge(self, asked: JsonObject, is_messages: bool) -> JsonObject:
        blocks = rendered(asked)
        self.prompts.append([text for text, _ in blocks])
        counts = self.cache(self, blocks)
        call = self._recall(asked, is_messages)
        counts.output = CALL_TOKENS if call else self.written
        names = ("plain", "read", "write", "output")
        self.bill += sum(getattr(counts, name) * self.prices[name] for name in names) / 1e6
        self.bill += counts.hour * (self.prices["hour"] - self.prices["write"]) / 1e6
        if is_messages:
            usage = {
                "input_tokens": counts.plain,
                "cache_read_input_tokens": counts.read,
                "cache_creation_input_tokens": counts.write,
                "cache_creation": {"ephemeral_1h_input_tokens": counts.hour},
                "output_tokens": counts.output,
            }
            content = [call or {"type": "text", "text": "Done."}]
            head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
            return {**head, "stop_reason": "tool_use" if call else "end_turn", "content": content, "usage": usage}
        details = {"cached_tokens": counts.read, "cache_write_tokens": counts.write}
        prompt = counts.plain + counts.read + counts.write
        if "input" in asked:
            usage = {"input_tokens": prompt, "input_tokens_details": details, "output_tokens": counts.output}
            answer = {"id": "r", "object": "response", "model": "m", "status": "completed", "usage": usage}
            return {**answer, "output": [call] if call else []}
        usage = {"prompt_tokens": prompt, "completion_tokens": counts.output, "prompt_tokens_details": details}
        if self.reasoned and not call:
            usage["completion_tokens_details"] = {"reasoning_tokens": self.reasoned}
        message = {"role": "assistant", "content": None, "tool_calls": [call]} if call else _DONE
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
        return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}

    def _recall(self, asked: JsonObject, is_messages: bool) -> JsonObject | None:
        """Return a call that reads back the first lines that were cut; None if it has no more to read."""
        marker = MARKER.search(json.dumps(asked, ensure_ascii=False))
        if self.recalls < 1 or marker is None:
            return None
        self.recalls -= 1
        self.recalled += 1
        id, start = f"own_{self.recalled}", int(marker[2])
        wanted = {"id": marker[1], "start": start, "end": start + 20}
        if is_messages:
            return {"type": "tool_use", "id": id, "name": "recover_text", "input": wanted}
        called = {"name": "recover_text", "arguments": json.dumps(wanted)}
        if "input" in asked:
            return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "status": "completed", **called}
        return {"id": id, "type": "function", "function": called}

    def lives(self, key: bytes) -> bool:
        return key in self.entries and self.entries[key][0] >= self.now()

    def keep(self, key: bytes, life_s: float) -> None:
        life_s = max(life_s, self.entries[key][1] if self.lives(key) else 0.0)
        self.entries[key] = (self.now() + life_s, life_s)


def rendered(asked: JsonObject) -> list[Block]:
    """Return the prompt in the order in which providers read it: tools, system, messages."""
    blocks: list[Block] = [(json.dumps({**tool, "cache_control": 0}), _life(tool)) for tool in asked.get("tools", ())]
    system = asked.get("system") or asked.get("instructions") or []
    blocks += [(system, None)] if isinstance(system, str) else [(part["text"], _life(part)) for part in system]
    for message in asked.get("messages") or asked.get("input"):
        role = message.get("role") or message["type"]
        thought = message.get("reasoning_content") or opened(message.get("encrypted_content", ""))
        blocks += [(f"{role}: {thought}", None)] if thought else []
        content = message.get("content") or message.get("output") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks += [(f"{role}: {_text_of(part)}", _life(part)) for part in parts]
        if calls := message.get("tool_calls") or message.get("arguments"):
            blocks.append((json.dumps(calls), None))
    if "cache_control" in asked and blocks:
        blocks[-1] = (blocks[-1][0], asked["cache_control"].get("ttl", ""))
    return blocks


def _text_of(part: JsonObject) -> str:
    """Return what the model reads of a block."""
    if part.get("thinking") == "":
        return opened(part["signature"])
    if pixels := PIXELS.search(json.dumps(part)):
        return b64decode(pixels[0]).decode()
    text = part.get("text", part.get("thinking", part.get("content", part.get("input"))))
    if isinstance(text, list):  # a text, or blocks of it: a provider reads the same
        return "".join(block.get("text", json.dumps(block)) for block in text)
    return text if isinstance(text, str) else json.dumps(text)


SEAL_BYTES = 200  # around the thinking itself
SEEN = re.compile(r"pixels of (\d{4}) tokens, number")
PIXELS = re.compile(b64encode(b"pixels of ").decode()[:12] + r"[\w+/=]+")


def sealed(thought: str) -> str:
    """Return thinking as the provider gives it away: as long as it is, and readable for nobody else."""
    return b64encode(bytes(SEAL_BYTES) + thought.encode()).decode()


def opened(signature: str) -> str:
    return b64decode(signature)[SEAL_BYTES:].decode()


def picture(tokens: int, number: int) -> str:
    """Return the data of an image or a document that a model reads as so many tokens."""
    return b64encode(f"pixels of {tokens:04} tokens, number {number} {'.' * 3000}".encode()).decode()


def _life(part: JsonObject) -> str | None:
    inside = part.get("content")
    last = inside[-1] if isinstance(inside, list) and inside else {}
    mark = part.get("cache_control") or last.get("cache_control")
    return mark.get("ttl", "") if mark else None


@cache
def counted(text: str) -> int:
    """Return a provider's own count, which differs from ours."""
    if pixels := SEEN.search(text):
        return int(pixels[1])
    return round(1.15 * tokens_of(text)) + 4


def weights(blocks: Sequence[Block]) -> tuple[list[int], list[bytes]]:
    """Return how many tokens stand up to the end of each block, and a hash of all that."""
    total, seen = 0, sha256()
    tokens: list[int] = []
    hashes: list[bytes] = []
    for text, _ in blocks:
        total += counted(text)
        seen.update(text.encode() + b"\0")
        tokens.append(total)
        hashes.append(seen.copy().digest())
    return tokens, hashes


def anthropic(provider: CachedProvider, blocks: Sequence[Block], least: int = 512) -> Counts:
    """Up to four marks; each finds what was written up to 20 blocks before it; 5 minutes or an hour, from the start."""
    tokens, hashes = weights(blocks)
    marks = [(at, ttl) for at, (_, ttl) in enumerate(blocks) if ttl is not None]
    if len(marks) > 4:
        provider.refused.append("more than 4 marks")
    lives = [ttl == "1h" for _, ttl in marks]
    if lives != sorted(lives, reverse=True):
        provider.refused.append("an hour behind five minutes")
    marks = [(at, ttl) for at, ttl in marks if tokens[at] >= least]
    found = (near for at, _ in marks for near in range(at, max(-1, at - 21), -1) if provider.lives(hashes[near]))
    hit = max(found, default=-1)
    counts = Counts(read=tokens[hit] if hit >= 0 else 0)
    if hit >= 0:
        provider.keep(hashes[hit], 0.0)
    before = counts.read
    for at, ttl in marks:
        if at > hit:
            written = tokens[at] - before
            counts.write += written
            counts.hour += written if ttl == "1h" else 0
            before = tokens[at]
        provider.keep(hashes[at], 3600.0 if ttl == "1h" else 300.0)
    counts.plain = tokens[-1] - counts.read - counts.write
    return counts


def openai(provider: CachedProvider, blocks: Sequence[Block]) -> Counts:
    """Any equal prefix of 1,024 tokens and more; in these minutes it is always there, and after an hour it never is."""
    tokens, hashes = weights(blocks)
    hit = max((at for at, key in enumerate(hashes) if provider.lives(key) and tokens[at] >= 1024), default=-1)
    for key in hashes:
        provider.keep(key, 3600.0)
    read = tokens[hit] if hit >= 0 else 0
    return Counts(tokens[-1] - read, read)


def openai_breakpoints(provider: CachedProvider, blocks: Sequence[Block]) -> Counts:
    """From GPT-5.6 on: written at the end of the newest message, found there and nowhere else; 30 minutes."""
    tokens, hashes = weights(blocks)
    hit = max((at for at, key in enumerate(hashes) if provider.lives(key)), default=-1)
    read = tokens[hit] if hit >= 0 else 0
    for key in [hashes[-1], *([hashes[hit]] if hit >= 0 else [])]:
        provider.keep(key, 1800.0)
    is_written = tokens[-1] >= 1024
    return Counts(0 if is_written else tokens[-1] - read, read, tokens[-1] - read if is_written else 0)


def moonshot(provider: CachedProvider, blocks: Sequence[Block]) -> Counts:
    """Any equal prefix in chunks of 256 tokens, for 5 minutes without use."""
    tokens, hashes = weights(blocks)
    hit = max((at for at, key in enumerate(hashes) if provider.lives(key)), default=-1)
    for key in hashes:
        provider.keep(key, 300.0)
    read = tokens[hit] // 256 * 256 if hit >= 0 else 0
    return Counts(tokens[-1] - read, read)


def deepseek(provider: CachedProvider, blocks: Sequence[Block]) -> Counts:
    """A unit ends with the user's input, and hits only as a whole; on disk, for longer than these tests."""
    tokens, hashes = weights(blocks)
    hit = max((at for at, key in enumerate(hashes) if provider.lives(key)), default=-1)
    provider.keep(hashes[-1], 7 * 86_400.0)
    read = tokens[hit] if hit >= 0 else 0
    return Counts(tokens[-1] - read, read)
