"""Codex: `~/.codex/sessions/**/rollout-*.jsonl`, items of the Responses API with events between them.

A `token_count` event ends each answer. Results of an answer's first calls may come before it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts.transcript import (
    ProviderUsage,
    Transcript,
    TranscriptBuilder,
    arguments_of,
    entry,
    items,
    mapping,
    number,
    seconds,
    string,
    text_of,
)

AGENT = "Codex"

_KEYS = ("type", "payload", "timestamp")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "web_search_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_NOT_A_PERSON = ("<environment_context", "<user_instructions", "# AGENTS.md", "<permissions", "<turn_aborted")


def read(lines: Iterable[bytes], name: str) -> Iterator[Transcript]:
    reader = _CodexReader(name)
    for line in lines:
        record = entry(line, _KEYS)
        reader.take(string(record.get("type")), mapping(record.get("payload")), seconds(record.get("timestamp")))
    return reader.finish()


class _CodexReader:
    def __init__(self, name: str) -> None:
        self._builder = TranscriptBuilder(AGENT, name)
        self._held: list[Callable[[str | None], None]] = []  # entries since the end of the last answer
        self._answers = 0
        self._has_id = False

    def take(self, kind: str, payload: Mapping[str, JsonValue], at: float) -> None:
        if kind == "session_meta" and not self._has_id:
            self._has_id = True
            self._builder.transcript.id = string(payload.get("id")) or self._builder.transcript.id
            self._builder.transcript.version = string(payload.get("cli_version"))
            self._builder.transcript.instructions = text_of(payload.get("base_instructions"))
        elif kind == "turn_context":
            self._builder.model = string(payload.get("model"))
        elif kind == "compacted":
            self._flush(None)
            self._builder.start_over()
            for item in map(mapping, items(payload.get("replacement_history"))):
                self._builder.add_user(item.get("content"), at, is_person=False)
        elif kind == "response_item":
            self._item(payload, at)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            self._add_count(mapping(mapping(payload.get("info")).get("last_token_usage")))

    def finish(self) -> Iterator[Transcript]:
        self._flush(None)
        return self._builder.finish()

    def _item(self, item: Mapping[str, JsonValue], at: float) -> None:
        kind = item.get("type")
        if kind == "message" and item.get("role") == "assistant":
            self._held.append(partial(self._builder.add_text, item.get("content"), at=at))
        elif kind == "message":
            self._words(text_of(item.get("content")), item.get("role") == "user", at)
        elif kind == "reasoning":
            self._held.append(partial(self._builder.add_thinking, item.get("summary"), at=at))
        elif kind in _CALLS:
            name = string(item.get("name")) or kind.removesuffix("_call")
            given = item.get("arguments") or item.get("input") or item.get("action") or ""
            self._held.append(partial(self._builder.add_call, item.get("call_id"), name, given, at=at))
        elif kind in _OUTPUTS:
            tools = item.get("tools")
            text = arguments_of(tools) if tools else text_of(item.get("output"))  # images have no text
            self._held.append(lambda _: self._builder.add_output(item.get("call_id"), text, at=at))

    def _words(self, text: str, is_user: bool, at: float) -> None:
        is_person = is_user and not text.lstrip().startswith(_NOT_A_PERSON)
        self._held.append(lambda _: self._builder.add_user(text, at, is_person))

    def _add_count(self, usage: Mapping[str, JsonValue]) -> None:
        """Events that only repeat the last count hold no answer before them."""
        answers_before = len(self._builder.transcript.requests)
        self._answers += 1
        self._flush(str(self._answers))
        if len(self._builder.transcript.requests) > answers_before and usage:
            cached = number(usage.get("cached_input_tokens"))
            plain = max(number(usage.get("input_tokens")) - cached, 0)
            counted = ProviderUsage(plain, cached, 0, 0, number(usage.get("output_tokens")))
            self._builder.transcript.requests[-1].usage = counted

    def _flush(self, key: str | None) -> None:
        """Text and outputs before an answer's first piece are part of its prompt; later ones are not."""
        for action in self._held:
            action(key)
        self._held.clear()
