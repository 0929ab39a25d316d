"""`/` and `/dashboard/…`: the static files of the dashboard."""

import gzip
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.api import bundle
from kimi_proxy.api.answers import accepts_gzip, header_values
from kimi_proxy.api.routing import Access, PageRoute

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
    if path in (bundle.SCRIPT, bundle.STYLE):
        return _bundle(path, tuple(file.stat().st_mtime_ns for file in bundle.files(FOLDER)))
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
    is_script = path == bundle.SCRIPT
    body = bundle.join_modules(FOLDER) if is_script else bundle.join_styles(FOLDER)
    return Asset(TYPES[".js" if is_script else ".css"], body)


@lru_cache(maxsize=256)
def _read(file: Path, media_type: str, mtime_ns: int) -> Asset:
    """Read and cache a file; `mtime_ns` is part of the key, so a changed file is read again."""
    return Asset(media_type, file.read_bytes())
