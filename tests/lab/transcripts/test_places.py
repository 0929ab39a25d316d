"""Where sessions are found, and that what lies there is read in bounds and never written."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

from kimi_proxy.lab.transcripts.places import MAX_LINE_BYTES, TranscriptPlace, bounded_lines, find, load, usual_places
from kimi_proxy.lab.transcripts.transcript import TranscriptBuilder

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CLAUDE = [
    b'{"type":"summary","summary":"x","leafUuid":"y"}',
    b'{"type":"user","sessionId":"s1","message":{"role":"user","content":"go"}}',
    b'{"type":"assistant","sessionId":"s1","message":{"id":"m","content":[{"type":"text","text":"ok"}]}}',
]
CODEX = [
    b'{"type":"session_meta","payload":{"id":"c1"}}',
    b'{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"text":"ok"}]}}',
]
KIMI = [b'{"role":"user","content":"go"}', b'{"role":"assistant","content":"ok"}']
KIMI_CODE = [
    b'{"type":"metadata","protocol_version":"1.4"}',
    b'{"type":"context.append_loop_event","event":{"type":"content.part","part":{"type":"text","text":"ok"}}}',
]


def put(file: Path, lines: list[bytes]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file


def ids(found: list[TranscriptPlace]) -> list[tuple[str, str]]:
    return [(one.agent, one.id) for place in found for one in load(place)]


def test_every_agent_is_found_where_it_usually_writes(tmp_path: Path):
    put(tmp_path / ".claude/projects/-home-me/s1.jsonl", CLAUDE)
    put(tmp_path / ".codex/sessions/2026/06/18/rollout-x.jsonl", CODEX)
    put(tmp_path / ".kimi/sessions/hash/k1/context.jsonl", KIMI)
    put(tmp_path / ".kimi/sessions/hash/k1/context_1.jsonl", KIMI)
    put(tmp_path / ".kimi/sessions/hash/k1/wire.jsonl", [b'{"timestamp":1,"message":{}}'])
    put(tmp_path / ".kimi-code/sessions/wd/session_1/agents/main/wire.jsonl", KIMI_CODE)
    put(tmp_path / ".kimi-code/sessions/wd/session_1/agents/agent-2/wire.jsonl", KIMI_CODE)

    found = find(usual_places({}, tmp_path))

    assert sorted(ids(found)) == [
        ("Claude Code", "s1"),
        ("Codex", "c1"),
        ("Kimi CLI", "k1"),
        ("Kimi CLI", "k1/context_1"),
        ("Kimi Code", "session_1"),
        ("Kimi Code", "session_1/agent-2"),
    ]
    assert {place.source for place in found} == {"Claude Code", "Codex", "Kimi CLI", "Kimi Code"}


def test_variables_say_where_agents_write(tmp_path: Path):
    put(tmp_path / "elsewhere/projects/p/s1.jsonl", CLAUDE)

    assert ids(find(usual_places({"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")}, tmp_path))) == [
        ("Claude Code", "s1")
    ]


def test_a_compressed_rollout_is_read(tmp_path: Path):
    (tmp_path / "rollout-x.jsonl.zst").write_bytes(zstd.compress(b"\n".join(CODEX)))
    (tmp_path / "rollout-y.jsonl.zst").write_bytes(zstd.compress(b"\n".join(CODEX))[:-9])

    found = find([("codex", tmp_path)])

    assert [ids([place]) for place in found] == [[("Codex", "c1")], []]


def test_empty_files_links_other_files_and_missing_folders_hold_nothing(tmp_path: Path):
    (tmp_path / "empty.jsonl").touch()
    put(tmp_path / "other.jsonl", [b"[]", b"not json", b'{"a": 1}'])
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "link.jsonl").symlink_to(put(tmp_path.parent / "outside.jsonl", CLAUDE))

    assert ids(find([("x", tmp_path), ("y", tmp_path / "missing")])) == []


def test_a_file_that_has_gone_holds_nothing(tmp_path: Path):
    file = put(tmp_path / "s1.jsonl", CLAUDE)
    found = find([("x", file)])
    file.unlink()

    assert ids(found) == []


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path):
    file = put(tmp_path / "s1.jsonl", CLAUDE)

    assert len(find([("x", tmp_path), ("y", file)])) == 1


def test_nothing_is_written_where_sessions_lie(tmp_path: Path):
    file = put(tmp_path / "s1.jsonl", CLAUDE)
    tmp_path.chmod(0o500)
    try:
        before = (file.read_bytes(), file.stat().st_mtime_ns, sorted(tmp_path.iterdir()))
        assert ids(find([("x", tmp_path)])) == [("Claude Code", "s1")]
        assert (file.read_bytes(), file.stat().st_mtime_ns, sorted(tmp_path.iterdir())) == before
    finally:
        tmp_path.chmod(0o700)


def test_a_line_of_a_hundred_megabytes_is_passed_over_without_being_held():
    class Endless(io.RawIOBase):
        """A short line, one of 100 MB that is made as it is read, and a short line."""

        def __init__(self) -> None:
            self.left = 100 * 1024**2
            self.largest = 0
            self.lines = [b"first\n", b"last"]

        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            if len(self.lines) == 2:
                return self.lines.pop(0)
            if not self.left:
                return self.lines.pop() if self.lines else b""
            taken = min(size, self.left)
            self.left -= taken
            self.largest = max(self.largest, taken)
            return b"x" * (taken - 1) + (b"x" if self.left else b"\n")

    file = Endless()

    assert list(bounded_lines(file)) == [b"first\n", b"last"]
    assert file.largest <= MAX_LINE_BYTES


def test_a_session_ends_where_it_would_not_fit_into_memory():
    builder = TranscriptBuilder("any", "x", max_chars=100)
    for at in range(9):
        builder.add_text("k" * 40, key=str(at))

    (transcript,) = builder.finish()

    assert [len(request.said) for request in transcript.requests] == [40, 40]


def git(repository: Path, *arguments: str, stdin: bytes = b"") -> str:
    env = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    command = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, check=True, env={**os.environ, **env})
    return done.stdout.decode().strip()


def branch(repository: Path, name: str, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        sha = git(repository, "hash-object", "-w", "--stdin", stdin=content)
        git(repository, "update-index", "--add", "--cacheinfo", f"100644,{sha},{path}")
    tree = git(repository, "write-tree")
    ref = name if name.startswith("refs/") else f"refs/heads/{name}"
    git(repository, "update-ref", ref, git(repository, "commit-tree", tree, "-m", "sessions"))
    git(repository, "read-tree", "--empty")


def test_sessions_of_a_repository_are_read_from_its_branch_the_longest_copy_of_each(tmp_path: Path):
    git(tmp_path, "init", "-q", "--bare")
    more = [*CLAUDE, CLAUDE[2].replace(b'"m"', b'"m2"')]
    export = {"info": {"id": "ses_1"}, "messages": [{"info": {"role": "assistant"}, "parts": []}]}
    branch(
        tmp_path,
        "entire/checkpoints/v1",
        {
            "00/aa/0/full.jsonl": b"\n".join(CLAUDE),
            "00/aa/0/metadata.json": b'{"session_id": "s1"}',
            "00/bb/0/full.jsonl": b"\n".join(more[:2]),
            "00/bb/0/full.001.jsonl": b"\n".join(more[2:]),
            "00/bb/0/metadata.json": b'{"session_id": "s1"}',
            "00/cc/0/full.jsonl": json.dumps(export, indent=1).encode(),
            "00/cc/0/prompt.txt": b"go",
        },
    )

    found = find([("repo", tmp_path)])

    assert [(one.id, len(one.requests)) for place in found for one in load(place)] == [("ses_1", 1), ("s1", 2)]


def test_checkpoints_that_are_kept_as_refs_are_read(tmp_path: Path):
    git(tmp_path, "init", "-q", "--bare")
    more = [*CLAUDE, CLAUDE[2].replace(b'"m"', b'"m2"')]
    branch(tmp_path, "refs/entire/checkpoints/v2/main", {"00/aa/0/metadata.json": b'{"session_id": "s1"}'})
    pieces = {"00/aa/0/raw_transcript": b"\n".join(more[:2]), "00/aa/0/raw_transcript.001": b"\n".join(more[2:])}
    branch(tmp_path, "refs/entire/checkpoints/v2/full/current", pieces)
    branch(tmp_path, "entire/checkpoints/v1", {"00/aa/0/full.jsonl": b"\n".join(CLAUDE)})

    found = find([("repo", tmp_path)])

    assert [(place.name, one.id, len(one.requests)) for place in found for one in load(place)] == [("s1", "s1", 2)]


def test_an_object_that_a_partial_clone_lacks_shifts_no_other(tmp_path: Path):
    git(tmp_path, "init", "-q", "--bare")
    files = {f"00/{name}/0/metadata.json": f'{{"session_id": "{name}"}}'.encode() for name in ("aa", "bb")}
    files |= {f"00/{name}/0/full.jsonl": b"\n".join([*CLAUDE, name.encode()]) for name in ("aa", "bb")}
    branch(tmp_path, "entire/checkpoints/v1", files)
    sha = git(tmp_path, "rev-parse", "entire/checkpoints/v1:00/aa/0/metadata.json")
    (tmp_path / "objects" / sha[:2] / sha[2:]).unlink()

    assert sorted(place.name for place in find([("repo", tmp_path)])) == ["00/aa/0", "bb"]


def test_trees_that_name_billions_of_files_hold_nothing(tmp_path: Path):
    git(tmp_path, "init", "-q", "--bare", "--initial-branch=main")
    entry = f"100644 blob {git(tmp_path, 'hash-object', '-w', '--stdin', stdin=b'x')}\t"
    for _ in range(10):
        tree = git(tmp_path, "mktree", stdin="".join(f"{entry}{at}.traj\n" for at in range(10)).encode())
        entry = f"040000 tree {tree}\t"
    git(tmp_path, "update-ref", "refs/heads/main", git(tmp_path, "commit-tree", tree, "-m", "bomb"))

    assert find([("repo", tmp_path)]) == []


def test_trajectories_of_a_repository_are_read_from_its_newest_commit(tmp_path: Path):
    git(tmp_path, "init", "-q", "--bare", "--initial-branch=main")
    run = {"messages": [{"role": "assistant", "content": "x"}], "trajectory_format": "mini-swe-agent-1"}
    branch(tmp_path, "main", {"runs/a.traj.json": json.dumps(run).encode(), "README.md": b"hello"})

    assert ids(find([("repo", tmp_path)])) == [("mini-swe-agent", "runs/a")]


def test_a_folder_that_only_looks_like_a_repository_is_read_like_any_other(tmp_path: Path):
    put(tmp_path / ".git/s0.jsonl", CLAUDE)
    assert find([("repo", tmp_path)]) == []

    put(tmp_path / "s1.jsonl", CLAUDE)
    assert ids(find([("repo", tmp_path)])) == [("Claude Code", "s1")]
