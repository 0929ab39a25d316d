"""Cases recorded from real programs: a file of texts with questions, and the strings that answer them.

The file is JSON, packed with xz: `{"cases": [{"name", "fmt", "tool", "args", "source_type", "question", "needles",
"ask", "text"}], "texts": {key: text}}`. `tool` is `bash` with a `command`, or `read_file` with a `path`.
"""

import json
import lzma
from pathlib import Path, PurePath

from structured_texts import Form, Structured

FORMS: dict[str, Form] = {"json": "json", "csv": "csv", "xml": "xml", "tsv": "tsv", "yaml": "yaml", "ndjson": "ndjson"}


def texts(path: Path) -> list[Structured]:
    recorded = json.loads(lzma.decompress(path.read_bytes()))
    return [_structured(case, recorded["texts"][case["text"]]) for case in recorded["cases"]]


def _structured(case: dict, text: str) -> Structured:
    arguments = case["args"]
    path = str(arguments.get("path", ""))
    return Structured(
        name=str(case["name"]),
        form=FORMS.get(str(case["fmt"]), "plain"),
        text=text,
        goal=str(case["question"]),
        needles=tuple(case["needles"]),
        command=str(arguments.get("command", f"cat {path}")),
        path=path or f"{case['name']}.txt",
        is_file=bool(path),
        source_type=case["source_type"],
        ask=str(case.get("ask", "")),
    )


def file_name(text: Structured) -> str:
    """Return the last part of the path that the text was read from."""
    return PurePath(text.path).name
