"""A strict reader of Prometheus' text format 0.0.4: it raises ValueError where Prometheus would refuse or guess."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
KINDS = ("counter", "gauge", "histogram", "summary", "untyped")
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Sample = tuple[str, dict[str, str], float]


@dataclass
class Family:
    name: str
    help: str
    kind: str = ""
    samples: list[Sample] = field(default_factory=list)


def parse(text: str) -> list[Family]:
    """Every metric with its samples, checked: names, order, doubles, and that histograms add up."""
    if text and not text.endswith("\n"):
        raise ValueError("the last line is not ended")
    families: list[Family] = []
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            name, _, help = line[7:].partition(" ")
            if name in {family.name for family in families}:
                raise ValueError(f"{name} comes twice")
            families.append(Family(name, _unescaped(help)))
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            if families[-1].name != name or families[-1].kind or families[-1].samples or kind not in KINDS:
                raise ValueError(f"out of place: {line}")
            families[-1].kind = kind
        else:
            families[-1].samples.append(_sample(line, families[-1]))
    for family in families:
        _check(family)
    return families


def _sample(line: str, family: Family) -> Sample:
    found = SAMPLE.fullmatch(line)
    if found is None:
        raise ValueError(f"not a sample: {line}")
    suffixes = ("_bucket", "_count", "_sum") if family.kind == "histogram" else ("",)
    if found[1] not in {family.name + suffix for suffix in suffixes}:
        raise ValueError(f"{found[1]} is not a sample of {family.name}")
    return found[1], dict(_labels(found[2] or "")), float(found[3])


def _labels(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = LABEL.match(text, at)
        if found is None:
            raise ValueError(f"not labels: {text[at:]}")
        yield found[1], _unescaped(found[2])
        at = found.end()


def _unescaped(text: str) -> str:
    return re.sub(r'\\[\\"n]', lambda found: ESCAPES[found[0]], text)


def _check(family: Family) -> None:
    keys = [(name, *sorted(labels.items())) for name, labels, _ in family.samples]
    if len(set(keys)) != len(keys) or not family.kind:
        raise ValueError(f"{family.name} has samples twice, or no type")
    if family.kind == "counter" and (
        not family.name.endswith("_total") or any(value < 0 for _, _, value in family.samples)
    ):
        raise ValueError(f"{family.name} is no counter")
    if family.kind == "histogram":
        _check_histogram(family)


def _check_histogram(family: Family) -> None:
    series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    counts: dict[tuple[tuple[str, str], ...], float] = {}
    for name, labels, value in family.samples:
        rest = tuple(sorted((key, text) for key, text in labels.items() if key != "le"))
        if name.endswith("_bucket"):
            series.setdefault(rest, []).append((float(labels["le"]), value))
        elif name.endswith("_count"):
            counts[rest] = value
    for rest, buckets in series.items():
        if buckets != sorted(buckets) or [n for _, n in buckets] != sorted(n for _, n in buckets):
            raise ValueError(f"buckets of {family.name}{rest} are not in order")
        if buckets[-1] != (float("inf"), counts.get(rest)):
            raise ValueError(f"the last bucket of {family.name}{rest} is not all of it")
