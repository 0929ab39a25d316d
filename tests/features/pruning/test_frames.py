from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kimi_proxy.core.prune import Options, Pruned, Question, SourceType
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.frames import Framing, framing
from kimi_proxy.features.pruning.select import Costs, Search, select
from kimi_proxy.features.pruning.structure.blocks import Outline, Span, nest

MARKER = 40
PRUNE_ID = "prn_0123456789abcdef"
RATIOS = (0.3, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def prune(text: str, goal: str, source_type: SourceType, ratio: float) -> Pruned:
    return engine.prune(Question(text, goal, source_type, Options(ratio, 1, 5000, False, True)), PRUNE_ID)


def kept_rows(pruned: Pruned) -> set[int]:
    gone = {n - 1 for a in pruned.annotations for n in range(a.cut.start, a.cut.end + 1)}
    return set(range(pruned.original_lines)) - gone


def module() -> str:
    """Classes of methods; what the goal asks for stands deep inside one of them."""
    out = ["import os", "import socket", ""]
    for c in range(8):
        out += [f"class Converter{c}(Base):", f'    """Converts unit {c}."""', ""]
        for m in range(6):
            out += [f"    def convert_{m}(", "        self,", "        value: float,", "    ) -> float:"]
            out += [f"        step_{k} = self.table[{k}] * value + {m}" for k in range(9)]
            if (c, m) == (5, 3):
                out += [
                    "        # the rounding of negative kelvin is deliberate",
                    "        step_3 = round_kelvin(step_3)",
                ]
            out += ["        return step_3", ""]
    return "\n".join(out) + "\n"


def manual() -> str:
    """A manual with fences and tables in its sections."""
    out = ["# Manual", "", "Read this first.", ""]
    for s in range(12):
        subject = "retries and backoff" if s == 7 else f"topic number {s}"
        out += [f"## About {subject}", "", f"This section speaks of {subject} at some length.", ""]
        out += ["```sh", *(f"tool --option-{k} value-{s} > /tmp/file-{k}" for k in range(10)), "```", ""]
        out += [
            "| name | meaning |",
            "|---|---|",
            *(f"| key {k} of {s} | what {subject} has {k} |" for k in range(8)),
            "",
        ]
        out += [f"### Details of {subject}", "", *(f"Sentence {k} about {subject} that goes on." for k in range(6)), ""]
    return "\n".join(out)


def frames_of(text: str, source_type: SourceType) -> Framing:
    lines = text.split("\n")
    return framing(lines, engine.outline(lines, source_type))


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize(
    ("text", "source_type", "goal"),
    [
        (module(), "code", "why is negative kelvin rounded?"),
        (manual(), "docs", "how do retries and backoff work?"),
        (manual(), "docs", "which option writes /tmp/file-3?"),
    ],
)
def test_every_kept_line_has_its_headers_and_no_fence_is_cut_inside(
    text: str, source_type: SourceType, goal: str, ratio: float
) -> None:
    pruned = prune(text, goal, source_type, ratio)
    kept, found = kept_rows(pruned), frames_of(text, source_type)

    assert pruned.annotations or ratio < 0.5
    for frame in found.frames:
        rows = set(range(frame.start, frame.end))
        if not frame.headers:
            assert rows <= kept or not rows & kept
        elif any(row in kept and not found.bare[row] for row in rows - set(frame.headers)):
            assert set(frame.headers) <= kept
        elif ratio > engine.GENEROUS_RATIO:
            assert not set(frame.headers) & kept


def test_beyond_sixty_percent_the_function_asked_for_stays_with_its_class() -> None:
    lines = prune(module(), "why is negative kelvin rounded?", "code", 0.95).text.split("\n")

    at = lines.index("        # the rounding of negative kelvin is deliberate")
    assert "    def convert_3(" in lines[:at]
    assert "class Converter5(Base):" in lines[:at]
    assert not any(line.startswith("class ") and "5" not in line for line in lines)


def test_the_marker_names_what_was_cut_in_place_of_its_headers() -> None:
    pruned = prune(module(), "why is negative kelvin rounded?", "code", 0.9)

    assert "Converter0" in pruned.annotations[0].cut.reason


def test_a_fence_of_more_than_sixty_lines_may_be_cut_inside() -> None:
    fence = [
        "```",
        *(f"number {i}" for i in range(200)),
        "the retry limit is 5",
        *(f"other {i}" for i in range(99)),
        "```",
    ]
    text = "\n".join(["# Output", "", *fence, ""])
    pruned = prune(text, "what is the retry limit?", "docs", 0.9)

    assert "the retry limit is 5" in pruned.text
    assert len(kept_rows(pruned)) < 60


@pytest.mark.parametrize(("source_type", "text"), [("code", module()), ("docs", manual())])
def test_what_is_kept_at_a_limit_is_never_more_than_at_a_lower_one(source_type: SourceType, text: str) -> None:
    saved = [
        p.tokens_before - p.tokens_after
        for p in (
            prune(text, "why is negative kelvin rounded, and backoff?", source_type, r / 20) for r in range(1, 20)
        )
    ]

    assert saved == sorted(saved)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Framing, list[float], list[int], list[bool]]:
    """Up to nine lines in random frames: kinds of blocks as texts have them."""
    n = draw(st.integers(1, 9))
    spans, protected = [], [""] * n
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, n - 1))
        end = draw(st.integers(start + 1, n))
        kind = draw(st.sampled_from(["function", "fence"]))
        spans.append(Span(start, end, min(end, start + 1), kind))
        if kind == "function":
            protected[start] = "signature"
    lines = draw(st.lists(st.sampled_from(["x = 1", "}", ""]), min_size=n, max_size=n))
    found = framing(lines, Outline(nest(spans, n), tuple(protected), ""))
    worth = draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    costs = draw(st.lists(st.integers(0, 60), min_size=n, max_size=n))
    return found, worth, costs, draw(st.lists(st.booleans(), min_size=n, max_size=n))


def is_allowed(keep: tuple[bool, ...], found: Framing, forced: list[bool]) -> bool:
    for frame in found.frames:
        rows = range(frame.start, frame.end)
        if not frame.headers:
            if len({keep[row] for row in rows}) == 2:
                return False
        elif any(keep[row] for row in rows):
            tells = any(keep[row] and not found.bare[row] and row not in frame.headers for row in rows)
            if not tells or not all(keep[row] for row in frame.headers):
                return False
    return all(stays or not must for stays, must in zip(keep, forced, strict=True))


# Below the header of a function a dear line goes though nothing that tells has stayed yet.
FUNCTION = framing(["x = 1"] * 6, Outline(nest([Span(0, 6, 1, "function")], 6), ("signature", *[""] * 5), ""))


# A bracket that has to stay tells nothing: what stays above it is still judged by what it costs.
BRACKET = framing(
    ["x = 1", "x = 1", "}", "x = 1"], Outline(nest([Span(0, 4, 1, "function")], 4), ("signature", "", "", ""), "")
)


# A function within a function: what goes with the inner one is judged by whether the outer one tells something yet.
NESTED = framing(
    ["x = 1"] * 5,
    Outline(
        nest([Span(1, 5, 2, "function"), Span(2, 4, 3, "function")], 5), ("", "signature", "signature", "", ""), ""
    ),
)


# A fence without words in it tells nothing either.
FENCE = framing(
    ["x = 1", "x = 1", "x = 1", "}", "}", "x = 1"],
    Outline(nest([Span(0, 5, 1, "function"), Span(3, 5, 4, "fence")], 6), ("signature", *[""] * 5), ""),
)


@example((FENCE, [0.0] * 6, [0, 1, 40, 0, 0, 0], [False] * 6), 0.0625)
@example((NESTED, [5.0, 1.0, 0.0, 0.0, 1.0], [50, 10, 0, 50, 10], [False, True, False, False, False]), 0.1)
@example((NESTED, [0.0, 0.0, 0.0, 1.0, 5.0], [60, 60, 10, 10, 50], [False, False, False, True, False]), 0.1)
@example((BRACKET, [0.0, 0.0, 0.0, 20.0], [0, 50, 60, 0], [False] * 4), 0.1)
@example((BRACKET, [0.0, 0.0, 0.0, 1.0], [0, 50, 60, 0], [False, False, True, False]), 0.1)
@example((FUNCTION, [0.0] * 6, [0, 1, 0, 0, 40, 0], [False] * 5 + [True]), 0.0625)
@given(problems(), st.floats(1e-4, 0.1))
def test_no_other_lines_within_the_frames_are_better_at_the_same_price(
    problem: tuple[Framing, list[float], list[int], list[bool]], price: float
) -> None:
    found, worth, line_costs, forced = problem
    costs = Costs(line_costs, MARKER)

    def value(keep: tuple[bool, ...]) -> float:
        return sum(w for w, stays in zip(worth, keep, strict=True) if stays) - price * costs.of(keep)

    allowed = [keep for keep in product((False, True), repeat=len(worth)) if is_allowed(keep, found, forced)]
    chosen = tuple(Search(worth, costs, forced, found).at(price))
    assert chosen in allowed
    assert value(chosen) >= max(map(value, allowed)) - 1e-9


@given(problems(), st.floats(1e-4, 0.1))
def test_without_frames_both_searches_find_the_same(
    problem: tuple[Framing, list[float], list[int], list[bool]], price: float
) -> None:
    _, worth, line_costs, forced = problem
    plain = framing(["x"] * len(worth), Outline((), ("",) * len(worth), ""))
    costs = Costs(line_costs, MARKER)

    assert Search(worth, costs, forced, plain).at(price) == Search(worth, costs, forced).at(price)


@given(problems(), st.integers(0, 9))
def test_the_floor_holds_within_frames(problem: tuple[Framing, list[float], list[int], list[bool]], floor: int) -> None:
    found, worth, costs, forced = problem
    keep = select(worth, Costs(costs, MARKER), forced, min(floor, len(worth)), framing=found)

    assert sum(keep) >= min(floor, len(worth))
    assert all(stays for stays, must in zip(keep, forced, strict=True) if must)
