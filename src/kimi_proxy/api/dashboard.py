"""`/` and `/dashboard/…`: the static files of the dashboard, its style sheets joined into one.

There is no build step: the browser loads the modules as they are, and the page lists those that it needs at first.
Changes are detected by the modification times of the files.
"""

import gzip
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from os.path import normpath
from pathlib import Path

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
    """Return the page, the style sheets in one, or the file at `path` below the folder. Raise a 404 for others."""
    if path in (PAGE, STYLE):
        return _join(path, tuple(file.stat().st_mtime_ns for file in _sources(FOLDER)))
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
def _join(path: str, times: tuple[int, ...]) -> Asset:
    """Make a file out of others and cache it; their `times` are part of the key, so changed files are read again."""
    if path == STYLE:
        return Asset(TYPES[".css"], join_styles(FOLDER))
    return Asset(TYPES[".html"], page_with_preloads(FOLDER))


@lru_cache(maxsize=256)
def _read(file: Path, media_type: str, mtime_ns: int) -> Asset:
    """Read and cache a file; `mtime_ns` is part of the key, so a changed file is read again."""
    return Asset(media_type, file.read_bytes())


def _sources(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix in TYPES)


STYLE = "bundle.css"
# Later files refine earlier ones.
STYLES = (
    *("base", "shell", "controls", "card", "notice", "bar", "table", "dialog", "tip"),
    *("live", "sessions", "map", "compression", "lines", "cuts", "playground", "settings"),
)


def join_styles(folder: Path) -> bytes:
    """Return all style sheets, one after the other."""
    sheets = [folder / "vendor" / "uplot.css", *(folder / "style" / f"{name}.css" for name in STYLES)]
    return "\n".join(sheet.read_text("utf-8") for sheet in sheets).encode()


ENTRIES = ("app.js", "views/live.js")  # what each page loads first; other views are loaded when they are opened
_IMPORTED = re.compile(r'^(?:import|export) [^"]{1,2000} from "(\.[^"\n]+)";$', re.M)


def page_with_preloads(folder: Path) -> bytes:
    """Return the page with the modules that it needs at first: a browser would find them one import after another."""
    links = "".join(f'    <link rel="modulepreload" href="/dashboard/{name}">\n' for name in preloads(folder))
    return (folder / PAGE).read_text("utf-8").replace("  </head>", f"{links}  </head>").encode()


def preloads(folder: Path) -> list[str]:
    """Return the modules that the page needs at first, each after those that import it."""
    found: dict[Path, None] = {}
    waiting = [folder / name for name in ENTRIES]
    while waiting:
        module = waiting.pop(0)
        if module not in found:
            found[module] = None
            imported = _IMPORTED.findall(module.read_text("utf-8"))
            waiting += [Path(normpath(module.parent / path)) for path in imported]
    return [module.relative_to(folder).as_posix() for module in found]
