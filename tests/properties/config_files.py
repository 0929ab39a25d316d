"""Configuration files as people and programs write them, for properties that must hold for all of them."""

import json
from random import Random

from hypothesis import strategies as st

from kimi_proxy.connect.client_files import SharedFile
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.editing import jsonc, toml

STDIO: JsonObject = {"type": "stdio", "command": "/opt/kimi proxy", "args": ["tools", "--stdio"]}
HTTP: JsonObject = {"type": "http", "url": "http://127.0.0.1:8006/mcp"}
ENTRIES = st.sampled_from([STDIO, HTTP])

JSON = SharedFile(jsonc, "mcpServers", "pruner")
TOML = SharedFile(toml, "mcp_servers", "pruner")

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | NAMES
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
# Entries of ours from earlier times, with keys of the user.
OURS = st.none() | st.sampled_from(
    [{**STDIO, "env": {"A": "1"}, "disabled": True}, {**HTTP, "headers": {"X": "y"}, "timeout": 60}, {"url": "old"}]
)


class JsonWriter:
    """Writes JSON as people do: any style, comments, trailing commas."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._unit = random.choice(["  ", "    ", "\t", ""])
        self._spread = random.choice([0.0, 0.5, 1.0])
        self._comments = random.choice([0.0, 0.3])
        self._trailing = random.choice([0.0, 0.5])
        self._notes = 0
        self._word = "note"

    def document(self, value: JsonValue) -> str:
        text = f"{self._note()}{self._value(value, '')}{self._note()}{self._random.choice(['', chr(10)])}"
        text = text.replace("\n", "\r\n") if self._random.random() < 0.2 else text
        return "\ufeff" + text if self._random.random() < 0.1 else text

    def _value(self, value: JsonValue, indent: str) -> str:
        if isinstance(value, dict):
            members = [f"{json.dumps(k)}{self._space()}:{self._space()}{{}}" for k in value]
            inner = list(value.values())
            return self._bracketed("{", "}", members, inner, indent)
        if isinstance(value, list):
            return self._bracketed("[", "]", ["{}"] * len(value), value, indent)
        return json.dumps(value, ensure_ascii=self._random.random() < 0.5)

    def _bracketed(self, opening: str, closing: str, shells: list[str], values: list[JsonValue], indent: str) -> str:
        spread = self._random.random() < self._spread
        inside = indent + self._unit
        gap, last = ("\n" + inside, "\n" + indent) if spread else (self._space(), self._space())
        parts = [self._part(shell, value, inside) for shell, value in zip(shells, values, strict=True)]
        text = opening + self._note()
        for n, part in enumerate(parts):
            comma = "," if n < len(parts) - 1 or self._random.random() < self._trailing else ""
            text += gap + part + self._note() + comma + self._note(spread)
        return text + last + closing

    def _part(self, shell: str, value: JsonValue, indent: str) -> str:
        """What is written inside an entry of ours goes with what it is about."""
        before, self._word = self._word, "ours" if shell.startswith('"pruner"') else self._word
        part = shell[:-2] + self._value(value, indent)
        self._word = before
        return part

    def _space(self) -> str:
        return self._random.choice(["", " "])

    def _note(self, end_of_line: bool = False) -> str:
        if self._random.random() >= self._comments:
            return ""
        self._notes += 1
        if end_of_line or self._random.random() < 0.2:
            return f' // {self._word}{self._notes}, "x": {{\n'
        return f" /* {self._word}{self._notes} }} */"


@st.composite
def json_files(draw: st.DrawFn) -> str:
    random = draw(st.randoms())
    others = draw(st.dictionaries(NAMES.filter(lambda name: name != "pruner"), VALUES, max_size=3))
    ours = draw(OURS)
    listed: dict[str, JsonValue] = {**others, **({"pruner": ours} if ours else {})}
    root: dict[str, JsonValue] = dict(draw(st.dictionaries(NAMES, VALUES, max_size=3)))
    if listed or random.random() < 0.5:
        root["mcpServers"] = listed
    items = list(root.items())
    random.shuffle(items)
    return JsonWriter(random).document(dict(items))


TOML_PARTS = (
    'model = "gpt-5" # note{n}\n',
    "# note{n}\n\n",
    '"quoted.key" = 1\n',
    "a.b.c = [1, 2, # note{n}\n  3]\n",
    'text = """\n[mcp_servers.pruner]\nurl = "x" # not a comment\n"""\n',
    "raw = '''\n# [mcp_servers.pruner]'''\n",
    "when = 2026-01-01T00:00:00Z\n",
    "f = nan\n",
    "inline = {{ x = 1, y = {{ z = [1] }} }}\n",
)
TOML_TABLES = (
    '[table{n}]\nx = "# no comment" # note{n}\n\n',
    '  [table{n}.sub]\n  y = """a\n  b"""\n',
    "[[array{n}]]\nz = 1\n[[array{n}]]\nz = 2\n",
    '[mcp_servers.other{n}]\ncommand = "npx"\nargs = [\n  "-y", # note{n}\n  "x",\n]\n\n'
    '[mcp_servers.other{n}.env]\nA = "1"\n',
    '["mcp_servers" . "dotted{n}"]\nurl = "http://x"\n',
    "# note{n}\n",
)
TOML_OURS = (
    "",
    '[mcp_servers.pruner]\nurl = "http://old" # goes with it\n# note91\nstartup_timeout_sec = 60\n',
    '[mcp_servers.pruner]\ncommand = "old"\nargs = [\n  "a", # noteless\n]\n\n[mcp_servers.pruner.env]\nA = "1"\n',
    "[mcp_servers.pruner]\n",
    '[ mcp_servers . "pruner" ]\nenabled = false',
)


@st.composite
def toml_files(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.sampled_from(TOML_PARTS), max_size=4, unique=True))
    tables = draw(st.lists(st.sampled_from(TOML_TABLES), max_size=4))
    ours = draw(st.sampled_from(TOML_OURS))
    tables.insert(draw(st.integers(0, len(tables))), ours if ours.endswith("\n") or not ours else ours + "\n")
    text = "".join(part.format(n=n) for n, part in enumerate((*parts, *tables)))
    text = text.rstrip("\n") if draw(st.booleans()) else text
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text
