"""The dashboard's modules and styles as one file each, so that a page asks for a handful of files instead of a hundred.

There is no build step: the first request joins the files, and a changed file is seen by its time. A module becomes a
function that runs when it is first needed, so a view that is never opened does not run. Vendored modules stay as they
are.
"""

import json
import re
from pathlib import Path, PurePosixPath

SCRIPT, STYLE = "bundle.js", "bundle.css"
ENTRY = "app.js"
# Later files refine earlier ones.
STYLES = (
    *("base", "shell", "controls", "card", "notice", "bar", "table", "dialog", "tip"),
    *("live", "sessions", "map", "compression", "lines", "cuts", "playground", "settings"),
)

_IMPORT = re.compile(r'^import (\w{1,80}|\{[^}"]{1,2000}\}) from "([^"\n]+)";$', re.M)
_PASSED_ON = re.compile(r'^export \{([^}"]{1,2000})\}(?: from "([^"\n]+)")?;$', re.M)
_DECLARED = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.M)
_DEFAULT = re.compile(r"^export default ", re.M)
_LATER = re.compile(r'\bimport\("([^"]+)"\)')


def files(folder: Path) -> list[Path]:
    """Return the files that the bundles are made of."""
    scripts = (file for file in folder.rglob("*.js") if file.name != "early.js")
    return sorted([*scripts, *(folder / "vendor").iterdir(), *(folder / "style").glob("*.css")])


def join_styles(folder: Path) -> bytes:
    """Return all style sheets, one after the other."""
    sheets = [folder / "vendor" / "uplot.css", *(folder / "style" / f"{name}.css" for name in STYLES)]
    return "\n".join(sheet.read_text("utf-8") for sheet in sheets).encode()


def join_modules(folder: Path) -> bytes:
    """Return all modules of ours as one. Raise ValueError for an import or export that this cannot read."""
    names = [file.relative_to(folder).as_posix() for file in files(folder) if file.suffix == ".js"]
    vendored = [f"vendor/{file.name}" for file in sorted((folder / "vendor").glob("*.mjs")) if file.stem != "uplot"]
    heads = [f'import * as v{at} from "/dashboard/{name}";' for at, name in enumerate(vendored)]
    known = ", ".join(f"{json.dumps(name)}: v{at}" for at, name in enumerate(vendored))
    modules = (f"{json.dumps(name)}() {{\n{_wrap(name, (folder / name).read_text('utf-8'))}}}" for name in names)
    return "\n".join(
        (
            *heads,
            f"const made = {{ {known} }};",
            "const need = (name) => (made[name] ??= modules[name]());",
            "const modules = {",
            ",\n".join(modules) + ",",
            "};",
            "export { need };",
            f"need({json.dumps(ENTRY)});\n",
        )
    ).encode()


def _wrap(name: str, text: str) -> str:
    """Return a module as the body of a function that returns what it exports."""
    given: list[str] = []

    def pass_on(found: re.Match[str]) -> str:
        pairs = [_pair(each) for each in found[1].split(",") if each.strip()]
        source = f"need({_name(name, found[2])})." if found[2] else ""
        given.extend(f"{outer}: {source}{inner}" for inner, outer in pairs)
        return ""

    def declare(found: re.Match[str]) -> str:
        given.append(found[2])
        return f"{found[1]} {found[2]}"

    def name_default(found: re.Match[str]) -> str:
        given.append("default: byDefault")
        return "const byDefault = "

    text = _IMPORT.sub(lambda found: _declare_import(name, found[1], found[2]), text)
    text = _PASSED_ON.sub(pass_on, text)
    text = _DEFAULT.sub(name_default, _DECLARED.sub(declare, text))
    if found := re.search(r"^(?:import|export)\b.*", text, re.M):
        raise ValueError(f"{name}: cannot bundle {found[0]!r}")
    text = _LATER.sub(lambda found: _load_later(name, found[1]), text)
    return f"{text}return {{ {', '.join(given)} }};\n"


def _declare_import(name: str, clause: str, path: str) -> str:
    """Return an import as a declaration."""
    source = f"need({_name(name, path)})"
    if not clause.startswith("{"):
        return f"const {{ default: {clause} }} = {source};"
    pairs = [_pair(each) for each in clause.strip("{}").split(",") if each.strip()]
    return f"const {{ {', '.join(f'{inner}: {outer}' for inner, outer in pairs)} }} = {source};"


def _load_later(name: str, path: str) -> str:
    """Return what a dynamic import becomes: a promise of a module of ours, or the vendored file itself."""
    if path.endswith(".mjs"):
        return f'import("/dashboard/{json.loads(_name(name, path))}")'
    return f"new Promise((done) => done(need({_name(name, path)})))"


def _pair(each: str) -> tuple[str, str]:
    inner, _, outer = each.strip().partition(" as ")
    return inner.strip(), (outer or inner).strip()


def _name(importer: str, path: str) -> str:
    """Return the quoted name of a module, as seen from another."""
    parts: list[str] = []
    for part in (PurePosixPath(importer).parent / path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return json.dumps("/".join(parts))
