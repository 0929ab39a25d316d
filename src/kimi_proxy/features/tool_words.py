"""The tools of MCP servers and of clients, and the words by which each is found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.pruning.goal import STOP_WORDS, WORD, parts

SEPARATOR = "__"  # between the names of a server and of its tool
# How much a word counts by where it stands: what a tool is called says most.
NAME_WEIGHT, DESCRIPTION_WEIGHT, SERVER_WEIGHT, ARGUMENT_WEIGHT = 4.0, 1.0, 1.5, 0.5
FIRST_CHARS = 300  # of a description: what follows are rules of use, which every tool of a server repeats
MAX_ARGUMENT_CHARS = 20_000
# Kept although goals ignore them: in a request they name what a tool does.
_ACTIONS = frozenset("show get make add find look give where which what know all who".split())


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a server behind the gateway, as that server lists it."""

    server: str
    listing: JsonObject

    @property
    def own_name(self) -> str:
        return str(self.listing.get("name", ""))

    @property
    def name(self) -> str:
        """Return its name with its server's, which no tool of another server has."""
        return f"{self.server}{SEPARATOR}{self.own_name}"

    @property
    def description(self) -> str:
        return str(self.listing.get("description", ""))

    @property
    def schema(self) -> JsonObject:
        given = self.listing.get("inputSchema")
        return given if isinstance(given, dict) else {"type": "object"}

    @property
    def is_read_only(self) -> bool:
        """Return whether the server says that calling it changes nothing; without a word it may."""
        hints = self.listing.get("annotations")
        return isinstance(hints, Mapping) and hints.get("readOnlyHint") is True


ToolTexts: TypeAlias = tuple[str, str, str, str, str]  # its name, title, server, description and arguments
ToolWords: TypeAlias = dict[str, float]  # its words, and how much each counts
_WEIGHTS = (NAME_WEIGHT, 1.0, SERVER_WEIGHT, DESCRIPTION_WEIGHT, ARGUMENT_WEIGHT)


def texts_of(tool: ListedTool) -> ToolTexts:
    """Return the texts by which a tool is found; no text of a listing is read further than a search needs."""
    return (
        tool.own_name[:FIRST_CHARS],
        str(tool.listing.get("title", ""))[:FIRST_CHARS],
        tool.server,
        tool.description[:FIRST_CHARS],
        " ".join(_argument_texts(tool.schema))[:MAX_ARGUMENT_CHARS],
    )


def weigh_words(texts: ToolTexts) -> ToolWords:
    words: ToolWords = {}
    for text, weight in zip(texts, _WEIGHTS, strict=True):
        for word in set(stems(text)):
            words[word] = words.get(word, 0.0) + weight
    return words


def _argument_texts(schema: JsonObject) -> Iterable[str]:
    properties = schema.get("properties")
    for name, about in properties.items() if isinstance(properties, Mapping) else ():
        yield name
        if isinstance(about, Mapping):
            yield str(about.get("description", ""))[:FIRST_CHARS]


def stems(text: str) -> list[str]:
    found = (piece for word in WORD.findall(text) for piece in parts(word))
    return [piece for piece in found if piece not in STOP_WORDS or piece in _ACTIONS]
