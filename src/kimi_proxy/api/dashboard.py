"""`/` and `/dashboard/…`: the static files of the dashboard, its modules and styles joined into one file each.

There is no build step: the first request joins the files, and changes are detected by their modification time. A
module becomes a function that runs on first use, so a view that is never opened does not run. Vendored modules stay
unchanged.
"""

import gzip
import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path, PurePosixPath

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.api.routing import Access, PageRoute, accepts_gzip, header_values

FOLDER = Path(__file__).parent.parent / "dashboard"
PAGE = "index.html"
GZIP_LEVEL = 9  # each file is compressed once

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}

# The page runs its own files, talks to its own server, and turns no text into markup.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # A browser revalidates its copy each time, so that an update is seen at once.
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}


@dataclass(frozen=True)
class Asset:
    """A file of the dashboard, plain and compressed."""

    media_type: str
    body: bytes

    @cached_property
    def as_gzip(self) -> bytes:
        return gzip.compress(self.body, GZIP_LEVEL, mtime=0)

    @cached_property
    def etag(self) -> str:
        # Weak, because the compressed body has the same one.
        return f'W/"{sha256(self.body).hexdigest()[:32]}"'


def routes() -> list[PageRoute]:
    return [
        PageRoute("/", _page, Access.VISITORS),
        PageRoute("/dashboard/{path:path}", _file, Access.EVERYONE),
    ]


# Not async: a worker thread reads the file.
def _page(request: Request) -> Response:
    return _answer(request, PAGE)


def _file(request: Request) -> Response:
    return _answer(request, request.path_params["path"])


def _answer(request: Request, path: str) -> Response:
    asset = _asset(path)
    headers = {**HEADERS, "etag": asset.etag}
    if asset.etag in header_values(request, "if-none-match"):
        return Response(status_code=304, headers=headers)
    if accepts_gzip(request):
        return Response(asset.as_gzip, headers={**headers, "content-encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.body, headers=headers, media_type=asset.media_type)


def _asset(path: str) -> Asset:
    """Return the file at `path` below the folder, or a bundle of files. Raise a 404 for anything else."""
    if path in (SCRIPT, STYLE):
        return _bundle(path, tuple(file.stat().st_mtime_ns for file in files(FOLDER)))
    file = FOLDER / path
    media_type = TYPES.get(file.suffix)
    try:
        is_ours = file.resolve().is_relative_to(FOLDER.resolve())
        if media_type is None or not is_ours or ".." in file.parts:
            raise HTTPException(404)
        return _read(file, media_type, file.stat().st_mtime_ns)
    except (OSError, ValueError):
        raise HTTPException(404) from None


@lru_cache(maxsize=4)
def _bundle(path: str, times: tuple[int, ...]) -> Asset:
    """Join files and cache them; their `times` are part of the key, so changed files are joined again."""
    is_script = path == SCRIPT
    body = join_modules(FOLDER) if is_script else join_styles(FOLDER)
    return Asset(TYPES[".js" if is_script else ".css"], body)


@lru_cache(maxsize=256)
def _read(file: Path, media_type: str, mtime_ns: int) -> Asset:
    """Read and cache a file; `mtime_ns` is part of the key, so a changed file is read again."""
    return Asset(media_type, file.read_bytes())


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
    """Return a module as the body of a function that returns its exports."""
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
    """Return the replacement of a dynamic import: a promise of one of our modules, or the vendored file."""
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
