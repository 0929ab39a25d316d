"""`python -m tests.recordings.make [FOLDER]` drives three agents through a proxy that records, and keeps what it wrote.

Times are those of the scripts, because nobody waits for a scripted model to think.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.recordings import scripts
from tests.recordings.agent import Model, Step, Tools, play
from tests.support.api.proxy_world import proxy
from tests.support.conversations import User
from tests.support.evil import evil

from kimi_proxy.core.chat import Wire

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass(frozen=True, slots=True)
class Part:
    """A conversation: who is asked, at whose prices, and what is said."""

    name: str
    wire: Wire
    model: str
    kind: str
    window: int
    prices: tuple[float, float, float, float]  # input, cached, cache write, output
    script: Sequence[User | Step]

    def toml(self, provider: str) -> str:
        names = ("input", "cached", "cache_write", "output")
        prices = [f"{name}_usd_per_million = {price:.4f}" for name, price in zip(names, self.prices, strict=True)]
        lines = [f'[models."{self.model}"]', f'provider = "{provider}"', f"max_context_size = {self.window}", *prices]
        return "\n".join([*lines, "[record]", "enabled = true", "[sanitizer]", "enabled = false", ""])


PARTS = (
    Part("debugging", Wire.MESSAGES, "claude-sonnet-4-5", "anthropic", 200_000, (3, 0.3, 3.75, 15), scripts.DEBUGGING),
    Part(
        "refactoring", Wire.CHAT, "kimi-k2-0905-preview", "openai", 32_768, (0.6, 0.15, 0.6, 2.5), scripts.REFACTORING
    ),
    Part("log-hunt", Wire.RESPONSES, "gpt-5", "openai", 32_768, (1.25, 0.125, 1.25, 10), scripts.LOG_HUNT),
)


async def made(part: Part, folder: Path) -> bytes:
    model, home = Model(part.wire), folder / "home"
    tools = Tools(_project(part, folder / "project"))
    script = _filled(part.script, folder / "project")
    async with evil(model.answer) as provider:
        toml = provider.toml(part.kind) + part.toml(f"{part.kind}-evil")
        async with proxy(home, toml) as p:
            times = await play(part.wire, part.model, script, tools, model, p.http)
    (written,) = (home / "recordings").glob("*.jsonl")
    head, *lines = written.read_bytes().splitlines()
    timed = [
        json.dumps(json.loads(line) | {"at": at}, ensure_ascii=False) for line, at in zip(lines, times, strict=True)
    ]
    return b"\n".join((head, *(line.encode() for line in timed))) + b"\n"


def _project(part: Part, folder: Path) -> Path:
    folder.mkdir(parents=True)
    if part.name == "log-hunt":
        (folder / "worker.py").write_text(scripts.WORKER, "utf-8")
        log = subprocess.run([sys.executable, "worker.py"], cwd=folder, capture_output=True, check=True)
        (folder / "worker.log").write_bytes(log.stdout)
        return folder
    archive = subprocess.run(
        ["git", "archive", "HEAD", "src", "tests", "pyproject.toml"], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    if part.name == "debugging":
        sse = folder / scripts.SSE
        assert scripts.SOUND in sse.read_text("utf-8")
        sse.write_text(sse.read_text("utf-8").replace(scripts.SOUND, scripts.FAULTY), "utf-8")
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "Read streams faster"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def _filled(script: Sequence[User | Step], project: Path) -> list[User | Step]:
    """The one answer that depends on what the log holds."""
    log = project / "worker.log"
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    given_up = [line.split("job=")[1][:8] for line in lines if "gave up" in line and "kind=invoice" in line]
    told = "These invoices failed for good: " + ", ".join(sorted(given_up)[:40]) + "."
    return [
        replace(step, say=step.say.replace("{invoices}", told)) if isinstance(step, Step) else step for step in script
    ]


async def main(where: Path) -> None:
    for part in PARTS:
        with TemporaryDirectory(prefix="recording-") as folder:
            recording = await made(part, Path(folder))
        (where / f"{part.name}.jsonl").write_bytes(recording)
        print(f"{part.name}: {recording.count(b'same_head')} requests, {len(recording):,} bytes")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
