"""Shell commands as a document prints them, run with real curl and jq; only the ports are others."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kimi_proxy.core import json
from kimi_proxy.core.json import JsonValue

PATIENCE_S = 300

# For machines without jq: it prints JSON, or the one string that the examples want to read.
JQ = """#!{python}
import json, sys
value = json.load(sys.stdin)
raw = "-r" in sys.argv
print(value["result"]["content"][0]["text"] if raw else json.dumps(value, indent=2, ensure_ascii=False))
"""


@dataclass(frozen=True)
class Example:
    """A command, and what its answer shows: of an object the fields named, of a list some items."""

    name: str
    command: str
    shows: JsonValue = field(hash=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Shell:
    """A shell in which the ports of a document lead to the servers of a test."""

    ports: Mapping[int, int]
    programs: Path  # a folder of the test's own, before the others
    env: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path, ports: Mapping[int, int], **env: str) -> "Shell":
        programs = folder / "programs"
        programs.mkdir(exist_ok=True)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        if not any(Path(place, "jq").exists() for place in path.split(os.pathsep)):
            (programs / "jq").write_text(JQ.format(python=sys.executable))
            (programs / "jq").chmod(0o755)
        return cls(ports, programs, {"PATH": path, "no_proxy": "*", **env})

    def run(self, command: str, cwd: Path | None = None) -> bytes:
        """Return what the command prints; it must succeed, and say nothing else."""
        here = re.sub(r":(\d{4})(?=[/ ])", lambda found: f":{self._port(int(found[1]))}", command)
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail; {here}"],
            env=dict(self.env),
            cwd=cwd or self.programs,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode() or done.stdout.decode()
        return done.stdout

    def ask(self, command: str) -> JsonValue:
        """Return the JSON that the command prints."""
        return json.decode(self.run(command))

    def _port(self, port: int) -> int:
        return self.ports.get(port, port)


def problems(answers: Mapping[Example, JsonValue]) -> dict[str, list[str]]:
    """What each answer lacks of what its example shows, by the name of the example."""
    found = {example.name: list(missing(answer, example.shows)) for example, answer in answers.items()}
    return {name: lacks for name, lacks in found.items() if lacks}


def missing(answer: JsonValue, shown: JsonValue, place: str = "the answer") -> Iterator[str]:
    """What `shown` says and the answer does not."""
    match shown, answer:
        case dict(), dict():
            for key, value in shown.items():
                yield from missing(answer[key], value, f"{place}.{key}") if key in answer else [f"{place}.{key}"]
        case list(), list():
            for value in shown:
                if all(list(missing(each, value)) for each in answer):
                    yield f"{place}: {value!r}"
        case _:
            if shown != answer:
                yield f"{place}: {shown!r} and not {answer!r:.200}"
