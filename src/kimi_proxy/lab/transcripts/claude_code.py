"""Claude Code: `~/.claude/projects/**/*.jsonl`, one line for each piece of a message.

The pieces of one answer share their message's id, and results of its first calls may come between them. Sub-agents
write lines with `isSidechain`, here or in separate files, or appear in `progress` entries; each of them is a separate
transcript.
"""

from collections.abc import Iterable, Iterator, Mapping

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts.transcript import (
    ProviderUsage,
    Transcript,
    TranscriptBuilder,
    entry,
    items,
    mapping,
    number,
    seconds,
    string,
)

AGENT = "Claude Code"

_KEYS = (
    *("type", "subtype", "message", "timestamp", "sessionId", "uuid", "parentUuid", "isSidechain", "agentId"),
    *("isMeta", "isCompactSummary", "attachment", "version", "data"),
)
_SUB_AGENT = b'"type":"agent_progress"'
# Text that the program itself writes as the user.
_NOT_A_PERSON = (
    "<command-",
    "<local-command",
    "<system-reminder",
    "<task-notification",
    "Caveat:",
    "[Request interrupted",
)


def read(lines: Iterable[bytes], name: str) -> Iterator[Transcript]:
    reader = _ClaudeReader(name)
    for line in lines:
        # Most lines of a file may be progress reports; only those of sub-agents are recorded nowhere else.
        if b'"type":"progress"' not in line[:600] or _SUB_AGENT in line:
            reader.take(entry(line, _KEYS))
    for builder in reader.builders.values():
        yield from builder.finish()


class _ClaudeReader:
    def __init__(self, name: str) -> None:
        self._name = name
        self.builders: dict[str, TranscriptBuilder] = {}
        self._chains: dict[str, str] = {}  # the sidechain that an entry belongs to, by the entry's uuid

    def take(self, record: Mapping[str, JsonValue]) -> None:
        kind = record.get("type")
        at = seconds(record.get("timestamp"))
        if kind == "system" and record.get("subtype") == "compact_boundary":
            self._builder(record).start_over()
        elif kind == "attachment":
            for part in items(mapping(record.get("attachment")).get("rendered")):
                self._builder(record).add_user(mapping(part).get("content"), at, is_person=False)
        elif kind == "user":
            self._user(self._builder(record), record, at)
        elif kind == "assistant" and mapping(record.get("message")).get("model") != "<synthetic>":
            self._assistant(self._builder(record), mapping(record.get("message")), at)
        elif kind == "progress":
            self._take_progress(record, mapping(record.get("data")))

    def _take_progress(self, record: Mapping[str, JsonValue], data: Mapping[str, JsonValue]) -> None:
        """Read the text or result of a sub-agent as an entry of its own sidechain."""
        inner = mapping(data.get("message"))
        if inner.get("type") in ("user", "assistant"):
            about = {name: record.get(name) for name in ("sessionId", "version")}
            self.take({**inner, **about, "isSidechain": True, "agentId": data.get("agentId")})

    def _builder(self, record: Mapping[str, JsonValue]) -> TranscriptBuilder:
        chain = self._chain(record) if record.get("isSidechain") is True else ""
        if chain not in self.builders:
            session = string(record.get("sessionId")) or self._name
            self.builders[chain] = TranscriptBuilder(AGENT, f"{session}/{chain}" if chain else session)
            self.builders[chain].transcript.is_sidechain = bool(chain)
        transcript = self.builders[chain].transcript
        transcript.version = transcript.version or string(record.get("version"))
        return self.builders[chain]

    def _chain(self, record: Mapping[str, JsonValue]) -> str:
        own = string(record.get("uuid"))
        parent = string(record.get("parentUuid"))
        chain = string(record.get("agentId")) or self._chains.get(parent) or own or "sidechain"
        self._chains[own] = chain
        return chain

    def _user(self, builder: TranscriptBuilder, record: Mapping[str, JsonValue], at: float) -> None:
        content = mapping(record.get("message")).get("content")
        is_person = not (record.get("isMeta") or record.get("isCompactSummary"))
        for part in [content] if isinstance(content, str) else items(content):
            if isinstance(part, str):
                builder.add_user(part, at, is_person and not part.startswith(_NOT_A_PERSON))
                continue
            piece = mapping(part)
            if piece.get("type") == "tool_result":
                builder.add_output(piece.get("tool_use_id"), piece.get("content"), piece.get("is_error") is True, at)
            elif text := string(piece.get("text")):
                builder.add_user(text, at, is_person and not text.startswith(_NOT_A_PERSON))

    def _assistant(self, builder: TranscriptBuilder, message: Mapping[str, JsonValue], at: float) -> None:
        key = string(message.get("id")) or None
        builder.model = string(message.get("model"))
        request = builder.answer(key, at)
        for piece in map(mapping, items(message.get("content"))):
            kind = piece.get("type")
            if kind == "text":
                builder.add_text(piece.get("text"), key, at)
            elif kind == "thinking":
                builder.add_thinking(piece.get("thinking"), key, at)
            elif kind == "tool_use":
                builder.add_call(piece.get("id"), piece.get("name"), piece.get("input"), key, at)
        if usage := mapping(message.get("usage")):
            request.usage = _usage(usage, request.usage)


def _usage(counted: Mapping[str, JsonValue], before: ProviderUsage | None) -> ProviderUsage:
    """Return the newest count; only that of the output grows while an answer is written."""
    written = number(counted.get("cache_creation_input_tokens"))
    kinds = mapping(counted.get("cache_creation"))
    for_an_hour = number(kinds.get("ephemeral_1h_input_tokens"))
    return ProviderUsage(
        number(counted.get("input_tokens")),
        number(counted.get("cache_read_input_tokens")),
        max(written - for_an_hour, 0),
        for_an_hour,
        max(number(counted.get("output_tokens")), before.output if before else 0),
    )
