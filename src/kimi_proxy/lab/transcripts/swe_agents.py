"""Trajectories of mini-swe-agent (`*.traj.json`) and SWE-agent (`*.traj`): one JSON document for each run."""

import re
from collections.abc import Iterator, Mapping

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts.transcript import (
    ProviderUsage,
    Transcript,
    TranscriptBuilder,
    items,
    mapping,
    number,
    seconds,
    string,
    text_of,
)

MINI = "mini-swe-agent"
SWE_AGENT = "SWE-agent"

_FENCE = re.compile(r"```\w*\n(.*?)```", re.S)
_TOOL = "bash"


def read_mini(run: Mapping[str, JsonValue], name: str) -> Iterator[Transcript]:
    builder = TranscriptBuilder(MINI, name)
    builder.transcript.patch = string(mapping(run.get("info")).get("submission"))
    for message in map(mapping, items(run.get("messages"))):
        role = message.get("role")
        text = text_of(message.get("content"))
        if role == "system":
            builder.transcript.instructions = text
        elif role == "assistant":
            _answer(builder, message, text)
        elif role == "tool":
            builder.add_output(message.get("tool_call_id"), text)
        elif role == "user" and builder.transcript.requests:
            builder.add_output(_last_call(builder), text)
        elif role == "user":
            builder.add_user(text)
    return builder.finish()


def _answer(builder: TranscriptBuilder, message: Mapping[str, JsonValue], text: str) -> None:
    response = mapping(mapping(message.get("extra")).get("response"))
    builder.model = string(response.get("model")) or builder.model
    request = builder.answer(at=seconds(response.get("created")))
    builder.add_text(text)
    request.usage = _usage(mapping(response.get("usage")))
    for call in map(mapping, items(message.get("tool_calls"))):
        function = mapping(call.get("function"))
        builder.add_call(call.get("id"), function.get("name"), function.get("arguments"))
    if not request.calls and (block := _FENCE.search(text)):
        # The command is part of the model's text: only its position among the calls is new.
        builder.add_call(str(len(builder.transcript.requests)), _TOOL, block[1].strip())
        builder.transcript.has_tools = False
        request.said = text[: block.start()] + text[block.end() :]


def _last_call(builder: TranscriptBuilder) -> str:
    calls = builder.transcript.requests[-1].calls
    return calls[-1].id if calls else ""


def _usage(counted: Mapping[str, JsonValue]) -> ProviderUsage | None:
    cached = number(mapping(counted.get("prompt_tokens_details")).get("cached_tokens"))
    prompt = number(counted.get("prompt_tokens"))
    output = number(counted.get("completion_tokens"))
    return ProviderUsage(max(prompt - cached, 0), cached, 0, 0, output) if prompt else None


def read_swe_agent(run: Mapping[str, JsonValue], name: str) -> Iterator[Transcript]:
    builder = TranscriptBuilder(SWE_AGENT, name)
    builder.transcript.has_tools = False
    builder.transcript.patch = string(mapping(run.get("info")).get("submission"))
    for message in map(mapping, items(run.get("history"))):
        if message.get("role") == "system":
            builder.transcript.instructions = text_of(message.get("content"))
        elif message.get("role") == "user" and not message.get("is_demo"):
            builder.add_user(message.get("content"))
            break
    for at, turn in enumerate(map(mapping, items(run.get("trajectory")))):
        action = string(turn.get("action")).strip()
        builder.answer(str(at))
        builder.add_text(turn.get("thought") or turn.get("response"), str(at))
        builder.add_call(str(at), action.split(maxsplit=1)[0] if action else "", action, str(at))
        builder.add_output(str(at), turn.get("observation"))
    return builder.finish()
