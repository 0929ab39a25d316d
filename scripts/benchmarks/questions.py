"""What a question per call costs, and what it saves: the same recorded calls of Claude Code with and without one.

    scripts/bench questions FOLDER…

Of every recorded `Read`, `Bash` and `Grep` the output enters once as `read`, `bash` and `grep` print it without a
question (at most 8,000 tokens), and once pruned for the words that the agent said before the call. A question is paid
as output, and read again in every later request, as the pruned lines would have been; a used line that is gone costs an
extra turn. Questions of real agents may be longer or better than those words.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from timing import table

from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Options, Question
from kimi_proxy.features.pruning import engine, source_type
from kimi_proxy.lab.audit import name_source
from kimi_proxy.lab.measured import MeasuredRequest, MeasuredSession, measure
from kimi_proxy.lab.savings import CALL_TOKENS
from kimi_proxy.lab.transcripts.claude_code import AGENT as CLAUDE_CODE
from kimi_proxy.lab.transcripts.places import find, load
from kimi_proxy.lab.transcripts.transcript import Transcript
from kimi_proxy.lab.used_lines import bare_line

TOOLS = ("read", "bash", "grep")
QUESTION_CHARS = 200
WHOLE_TOKENS = 8_000  # of an answer without a question
OPTIONS = Options(max_prune_ratio=0.75, min_keep_lines=20, timeout_ms=60_000, annotate_lines=True, include_markers=True)
SIZES = (500, 1_000, 2_000, 4_000)
PARAMETER_TOKENS = 25  # of the parameter's description in each of three tools


@dataclass
class Pair:
    tool: str
    before: int
    after: int
    question: int
    saved_usd: float  # by the lines that are gone
    asked_usd: float  # for the question
    turn_usd: float  # for what had to be read back
    is_used: bool
    is_harmed: bool


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("scripts/bench questions")
    parser.add_argument("folders", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    pairs: list[Pair] = []
    cost = described = 0.0
    for folder in given.folders:
        for place in find([name_source(folder)]):
            for transcript in load(place):
                if transcript.agent == CLAUDE_CODE:
                    session = measure(transcript, place.source)
                    pairs += _pairs(transcript, session)
                    cost += sum(_cost(request) for request in session.requests)
                    described += sum(
                        3 * PARAMETER_TOKENS * request.price.read * request.price.usd for request in session.requests
                    )
    _show(pairs, cost, described)


def _cost(request: MeasuredRequest) -> float:
    price = request.price
    written = request.prompt - request.read
    return (price.read * request.read + price.write * written + price.output * request.output) * price.usd


def _pairs(transcript: Transcript, session: MeasuredSession) -> Iterator[Pair]:
    used: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for request in session.requests:
        for use in request.uses:
            used[use.output].append((use.request, use.line))
    asked = {
        call.id: (call, request.said)
        for request in transcript.requests
        for call in request.calls
        if call.name.lower() in TOOLS
    }
    for made, request in zip(session.requests, transcript.requests, strict=True):
        price = made.price
        rest = session.requests[made.index + 1 :]
        later = next((at for at, one in enumerate(rest) if one.is_reset), len(rest))
        lasting = (price.write + later * price.read) * price.usd
        for measured, output in zip(made.outputs, request.outputs, strict=True):
            call, said = asked.get(output.call_id, (None, ""))
            question = said.strip()[-QUESTION_CHARS:]
            if call is None or len(question) < 20 or len(output.text) < 400:
                continue
            kind = "logs" if call.name.lower() == "bash" else source_type.guess(measured.path, output.text)
            # The ratios of `[tools]`.
            options = replace(OPTIONS, max_prune_ratio=0.9) if kind == "logs" else OPTIONS
            pruned = engine.prune(Question(output.text, question, kind, options), "prn_0123456789abcdef")
            whole = tokens.count(output.text)
            before = min(whole, WHOLE_TOKENS)
            after = min(before, tokens.count(pruned.text))
            words = tokens.count(question)
            kept = {bare_line(line) for line in pruned.text.split("\n")}
            kept |= {line.partition("│ ")[2].strip() for line in pruned.text.split("\n")}
            lost = [at for at, line in used[measured.index] if line not in kept]
            turn = 0.0
            if lost and after < before:
                answer = session.requests[lost[0]]
                turn = (answer.price.read * answer.prompt + answer.price.output * CALL_TOKENS) * answer.price.usd
            yield Pair(
                tool=call.name,
                before=before,
                after=after,
                question=words,
                saved_usd=(before - after) * lasting,
                asked_usd=words * (price.output + later * price.read) * price.usd,
                turn_usd=turn,
                is_used=bool(used[measured.index]),
                is_harmed=bool(turn),
            )


def _show(pairs: list[Pair], cost: float, described: float) -> None:
    rows = []
    for low, high in zip((0, *SIZES), (*SIZES, 10**9), strict=True):
        some = [pair for pair in pairs if low <= pair.before < high]
        rows.append((f"{low:,} to {high:,} tokens" if high < 10**9 else f"{low:,} and more", *_cells(some, cost)))
    for tool in sorted({pair.tool for pair in pairs}):
        rows.append((tool, *_cells([pair for pair in pairs if pair.tool == tool], cost)))
    rows.append(("all", *_cells(pairs, cost)))
    head = ("output", "calls", "question, tokens", "lines gone", "questions", "extra turns", "net", "harmed")
    table(f"A question with each call, in {cost:,.0f} USD of sessions", head, rows)
    print(f"\nDescribing the parameter in three tools costs {described / cost:.2%}.")


def _cells(some: list[Pair], cost: float) -> tuple[str, ...]:
    saved, asked, turns = (sum(getattr(pair, name) for pair in some) for name in ("saved_usd", "asked_usd", "turn_usd"))
    used, harmed = sum(pair.is_used for pair in some), sum(pair.is_harmed for pair in some)
    words = sum(pair.question for pair in some) / max(1, len(some))
    share = f"{harmed} of {used}"
    return (
        f"{len(some):,}",
        f"{words:.0f}",
        f"{saved / cost:.2%}",
        f"-{asked / cost:.2%}",
        f"-{turns / cost:.2%}",
        f"{(saved - asked - turns) / cost:.2%}",
        share,
    )
