"""The locations of agents' sessions: the usual places, or given folders and files."""

import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, TypeAlias

from platformdirs import user_config_path

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts import (
    checkpoints,
    claude_code,
    codex,
    gemini_cli,
    kimi_cli,
    kimi_code,
    opencode,
    pi,
    recordings,
    swe_agents,
)
from kimi_proxy.lab.transcripts.transcript import (
    MAX_DOCUMENT_BYTES,
    Transcript,
    document,
    entry,
    mapping,
    open_regular,
    read_document,
    string,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_LINE_BYTES = 16 * 1024**2
MAX_READ_BYTES = 512 * 1024**2  # limit of one file after decompression; the rest is ignored

Form: TypeAlias = Literal["lines", "document", "opencode folder", "opencode database", "git"]

_READERS: dict[str, Callable[[Iterable[bytes], str], Iterator[Transcript]]] = {
    claude_code.AGENT: claude_code.read,
    codex.AGENT: codex.read,
    gemini_cli.AGENT: gemini_cli.read,
    kimi_cli.AGENT: kimi_cli.read,
    kimi_code.AGENT: kimi_code.read,
    pi.AGENT: pi.read,
    recordings.AGENT: recordings.read,
}
_SNIFFED_LINES = 20
# Members by which the agents' first lines differ.
_TELLING = (
    *("recording", "payload", "role", "protocol_version", "projectHash", "type", "cwd"),
    *("sessionId", "uuid", "leafUuid"),
)
_CHUNK = 1024**2
# Of a compressed file: sessions are packed up to some 30 times, a bomb thousands of times.
MAX_RATIO, MIN_UNPACKED_BYTES = 200, 16 * 1024**2
MAX_LINES = 1_000_000  # of one file; the longest sessions have some 10,000


@dataclass(frozen=True, slots=True)
class TranscriptPlace:
    """A file, or objects of a git repository, that hold sessions. `source` is what a person calls where it lies."""

    source: str
    form: Form
    path: str
    size: int
    objects: tuple[str, ...] = ()
    name: str = ""


def usual_places(env: Mapping[str, str] = os.environ, home: Path | None = None) -> list[tuple[str, Path]]:
    """Return where agents keep their sessions on this machine, whether or not they are there."""
    user = home or Path.home()
    mini = user_config_path("mini-swe-agent", appauthor=False) if home is None else home / ".config/mini-swe-agent"

    def at(variable: str, default: str) -> Path:
        return Path(env[variable]) if env.get(variable) else user / default

    return [
        (claude_code.AGENT, at("CLAUDE_CONFIG_DIR", ".claude") / "projects"),
        (codex.AGENT, at("CODEX_HOME", ".codex") / "sessions"),
        (codex.AGENT, at("CODEX_HOME", ".codex") / "archived_sessions"),
        (gemini_cli.AGENT, user / ".gemini/tmp"),
        (kimi_cli.AGENT, at("KIMI_SHARE_DIR", ".kimi") / "sessions"),
        (kimi_code.AGENT, at("KIMI_CODE_HOME", ".kimi-code") / "sessions"),
        (opencode.AGENT, at("XDG_DATA_HOME", ".local/share") / "opencode"),
        (pi.AGENT, at("PI_CODING_AGENT_DIR", ".pi/agent") / "sessions"),
        (swe_agents.MINI, mini),
    ]


def find(folders: Iterable[tuple[str, Path]]) -> list[TranscriptPlace]:
    """Return the places of sessions in files and folders, each with the name of its source; links are not followed."""
    found: dict[tuple[str, tuple[str, ...]], TranscriptPlace] = {}
    for source, folder in folders:
        for place in _places(source, folder):
            found.setdefault((place.path, place.objects), place)
    return list(found.values())


def load(place: TranscriptPlace) -> Iterator[Transcript]:
    """Yield the sessions of a place; none if it cannot be read, or no longer exists."""
    path = Path(place.path)
    try:
        if place.form == "opencode database":
            yield from opencode.read_database(path)
        elif place.form == "opencode folder":
            yield from opencode.read_folder(path)
        elif place.form == "git":
            yield from _load_stored(path, place)
        elif place.form == "document":
            yield from _load_document(read_document(path), "/".join(path.parts[-3:]))
        else:
            with _open_lines(path) as file:
                yield from read_lines(bounded_lines(file, _most_bytes(path)), _name(path))
    except (OSError, zstd.ZstdError, EOFError):
        return


def read_lines(lines: Iterable[bytes], name: str) -> Iterator[Transcript]:
    """Yield the sessions of JSON Lines, by whichever agent's reader knows the first of them."""
    held: list[bytes] = []
    rest = iter(lines)
    for line in rest:
        held.append(line)
        agent = _agent_of(line)
        if agent:
            return _READERS[agent](_chain(held, rest), name)
        if len(held) >= _SNIFFED_LINES:
            break
    return iter(())


def bounded_lines(file: IO[bytes], max_bytes: int = MAX_READ_BYTES) -> Iterator[bytes]:
    """Yield lines of up to MAX_LINE_BYTES, until MAX_LINES or `max_bytes` are read; never hold more than one."""
    for _ in range(MAX_LINES):
        line = file.readline(MAX_LINE_BYTES) if max_bytes > 0 else b""
        if not line:
            return
        max_bytes -= len(line)
        if line.endswith(b"\n") or len(line) < MAX_LINE_BYTES:
            yield line
            continue
        while max_bytes > 0 and (rest := file.readline(_CHUNK)) and not rest.endswith(b"\n"):
            max_bytes -= len(rest)


def _most_bytes(path: Path) -> int:
    """Return how much of a file is read, once it is unpacked."""
    if path.suffix != ".zst":
        return MAX_READ_BYTES
    return min(MAX_READ_BYTES, max(MIN_UNPACKED_BYTES, MAX_RATIO * path.stat().st_size))


def _chain(held: list[bytes], rest: Iterator[bytes]) -> Iterator[bytes]:
    yield from held
    held.clear()
    yield from rest


def _agent_of(line: bytes) -> str:
    record = entry(line, _TELLING)
    if "recording" in record:
        return recordings.AGENT
    if "payload" in record:
        return codex.AGENT
    if "role" in record and "type" not in record:
        return kimi_cli.AGENT
    if "protocol_version" in record:
        return kimi_code.AGENT
    if "projectHash" in record:
        return gemini_cli.AGENT
    if record.get("type") == "session" and "cwd" in record:
        return pi.AGENT
    return claude_code.AGENT if "type" in record and record.keys() & {"sessionId", "uuid", "leafUuid"} else ""


def _places(source: str, folder: Path) -> Iterator[TranscriptPlace]:
    if folder.is_file():
        yield from _file(source, folder)
    elif checkpoints.is_repository(folder) and (stored := checkpoints.sessions(folder)):
        for one in stored:
            yield TranscriptPlace(source, "git", str(folder), one.size, one.objects, one.name)
    else:
        for parent, names, files in os.walk(folder):
            names[:] = sorted(name for name in names if name != ".git")
            for name in sorted(files):
                yield from _file(source, Path(parent, name))


def _file(source: str, file: Path) -> Iterator[TranscriptPlace]:
    try:
        found = file.lstat()
    except OSError:
        return
    form = _form(file) if stat.S_ISREG(found.st_mode) and found.st_size else None
    if form is not None and (form != "document" or found.st_size <= MAX_DOCUMENT_BYTES):
        yield TranscriptPlace(source, form, str(file), found.st_size)


def _form(file: Path) -> Form | None:
    name = file.name
    if name.startswith("opencode") and file.suffix == ".db":
        return "opencode database"
    if file.parent.parent.name == "session" and name.startswith("ses_") and file.suffix == ".json":
        return "opencode folder"
    if name.endswith((".traj", ".traj.json")):
        return "document"
    if file.suffix == ".json" and file.parent.name not in ("message", "part") and not name.startswith(("msg_", "prt_")):
        return "document" if _is_session(file) else None
    # Kimi CLI's wire.jsonl only repeats the context.jsonl next to it.
    if name == "wire.jsonl" and (file.parent / "context.jsonl").exists():
        return None
    return "lines" if name.endswith((".jsonl", ".jsonl.zst")) else None


def _is_session(file: Path) -> bool:
    """Return whether a JSON file begins as `opencode export` or Gemini CLI write theirs; other JSON files are many."""
    try:
        with open_regular(file) as opened:
            head = opened.read(2000)
    except OSError:
        return False
    is_export = b'"info"' in head and b'"ses_' in head
    is_chat = b'"projectHash"' in head and b'"sessionId"' in head
    return head.lstrip().startswith(b"{") and (is_export or is_chat)


@contextmanager
def _open_lines(path: Path) -> Iterator[IO[bytes]]:
    with open_regular(path) as file:
        if path.suffix != ".zst":
            yield file
            return
        with io.BufferedReader(zstd.ZstdFile(file, "rb")) as unpacked:
            yield unpacked


def _name(path: Path) -> str:
    """Return a name for a session whose file has no id in it; some agents call all files the same."""
    if path.parent.parent.name == "agents":
        session = path.parent.parent.parent.name
        agent = path.parent.name
        return session if agent == "main" else f"{session}/{agent}"
    if path.stem.startswith("context"):  # context_1.jsonl is the history before a compaction
        return path.parent.name if path.stem == "context" else f"{path.parent.name}/{path.stem}"
    return path.name.split(".jsonl")[0]


def _load_stored(repository: Path, place: TranscriptPlace) -> Iterator[Transcript]:
    pieces = checkpoints.blobs(repository, place.objects)
    first = next(pieces, b"")
    if first.lstrip()[:2] in (b"{\n", b"{\r") or place.name.endswith((".traj", ".traj.json")):
        whole = first + b"".join(pieces)
        yield from _load_document(document(whole), place.name)
        return
    yield from read_lines(_lines_of(first, pieces), place.name)


def _lines_of(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield from first.splitlines()
    for piece in pieces:
        yield from piece.splitlines()


def _load_document(record: Mapping[str, JsonValue], name: str) -> Iterator[Transcript]:
    if "trajectory" in record:
        return swe_agents.read_swe_agent(record, name.removesuffix(".traj"))
    if string(record.get("trajectory_format")).startswith("mini") or name.endswith(".traj.json"):
        return swe_agents.read_mini(record, name.removesuffix(".traj.json"))
    if mapping(record.get("info")) and "messages" in record:
        return opencode.read_export(record, name)
    if "projectHash" in record:
        return gemini_cli.read_chat(record, name)
    return iter(())
