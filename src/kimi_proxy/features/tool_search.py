"""Find the tool for a request among those of many MCP servers, and describe tools in fewer tokens."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.pruning.goal import STOP_WORDS, parts
from kimi_proxy.features.tool_words import ListedTool, ToolWords, stems, texts_of, weigh_words

MAX_HITS = 8
MAX_QUERY_CHARS = 1000

SYNONYM = 0.7  # what a word counts that means the same as one of the request
SMALL_WORD = 0.4  # what "show" or "which" counts: it hints at what a tool does
K1, B = 2.0, 0.75

_DROPPED = frozenset(
    {"$schema", "$id", "$comment", "title", "examples", "example", "deprecated", "readOnly", "writeOnly"}
)
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"default", "const", "enum", "required", "dependentRequired"})


MAX_DESCRIPTION_CHARS = 800


def describe_tool(tool: ListedTool) -> JsonObject:
    """Return what a model needs to call a tool."""
    thinned = thin_schema(tool.schema)
    about = tool.description[:MAX_DESCRIPTION_CHARS]
    return {
        "name": tool.name,
        "description": about,
        "inputSchema": thinned if isinstance(thinned, dict) else tool.schema,
    }


def rank_tools(
    tools: Sequence[ListedTool], request: str, limit: int = MAX_HITS, words: Sequence[ToolWords] | None = None
) -> list[ListedTool]:
    """Return the tools that fit a request best, best first; none that shares no word with it.

    `words` are those of each tool, if they are known: to find them takes most of the time.
    """
    wanted = _expand(stems(request[:MAX_QUERY_CHARS]))
    texts = [weigh_words(texts_of(tool)) for tool in tools] if words is None else words
    mean = sum(sum(each.values()) for each in texts) / max(1, len(texts)) or 1.0
    every = {word for meanings in wanted.values() for word in meanings}
    found_in = {word: sum(word in each for each in texts) for word in every}
    scores = [_score(each, wanted, found_in, len(texts), mean) for each in texts]
    ranked = sorted(range(len(tools)), key=lambda at: (-scores[at], at))
    return [tools[at] for at in ranked[:limit] if scores[at] > 0]


def _score(
    words: Mapping[str, float],
    wanted: Mapping[str, Mapping[str, float]],
    found_in: Mapping[str, int],
    count: int,
    mean: float,
) -> float:
    """Return BM25 scores in which each word of the request counts once: directly, or by the best of its synonyms."""
    norm = K1 * (1 - B + B * sum(words.values()) / mean)
    total = 0.0
    for meanings in wanted.values():
        best = 0.0
        for word, weight in meanings.items():
            if word in words:
                rarity = math.log(1 + (count - found_in[word] + 0.5) / (found_in[word] + 0.5))
                best = max(best, weight * rarity * words[word] * (K1 + 1) / (words[word] + norm))
        total += best
    return total


def _expand(stems: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return each word of a request with the words that may stand for it, and how much each counts."""
    groups = _synonyms()
    return {
        word: {
            other: weight * (1.0 if other == word else SYNONYM)
            for other in (word, *(each for group in groups.get(word, ()) for each in group))
        }
        for word in dict.fromkeys(stems)
        for weight in (SMALL_WORD if word in STOP_WORDS else 1.0,)
    }


@cache
def _synonyms() -> dict[str, tuple[frozenset[str], ...]]:
    """Return the groups of words that each word is in, as stems."""
    table = resources.files("kimi_proxy.features").joinpath("tool_words.txt").read_text("utf-8")
    groups: dict[str, tuple[frozenset[str], ...]] = {}
    for line in table.splitlines():
        if line.startswith("#"):
            continue
        group = frozenset(piece for word in line.split() for piece in parts(word))
        for word in group:
            groups[word] = (*groups.get(word, ()), group)
    return groups


def thin_schema(schema: JsonValue) -> JsonValue:
    """Return a JSON Schema without what only people read, such as titles and examples.

    A property that has such a name stays, and so do descriptions: they say to the model how to call.
    """
    if isinstance(schema, list):
        return [thin_schema(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    thinned: JsonObject = {}
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, Mapping):
            thinned[key] = {name: thin_schema(each) for name, each in value.items()}
        elif key in _DATA:
            thinned[key] = value
        elif key not in _DROPPED:
            thinned[key] = thin_schema(value)
    return thinned
