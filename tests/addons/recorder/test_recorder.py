"""What is recorded of conversations: nothing unless somebody says so, then every byte, for its owner alone."""

import asyncio
import stat
from pathlib import Path

import pytest
from tests.support.conversations import Assistant, Item, User, request

from kimi_proxy.addons.recorder.recorder import MAX_KNOWN, Recorder
from kimi_proxy.addons.recorder.settings import RecordSettings
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.chat.reply import ReplyFacts, Usage
from kimi_proxy.core.config.providers import Model
from kimi_proxy.features.accounting import Prices
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.features.recording import Recording, RecordingHead, read
from kimi_proxy.services.chat.relay import Exchange

MODELS = {"kimi": Model(provider="p", max_context_size=1000, input_usd_per_million=1)}
ON = RecordSettings(enabled=True)


def sent(recorder: Recorder, asked: Request, session: str = "ses_a") -> None:
    draft = Draft(asked, Target("p", "m", "kimi"), Session(session), LOCAL)
    recorder.on_start(draft, draft)
    recorder.on_end(Exchange(draft, 200, "ok", ReplyFacts(usage=Usage(10, 2, 5)), 0.1, 0.2))


def conversation(turns: int, wire: Wire = Wire.CHAT) -> list[Request]:
    items: list[Item] = []
    requests = []
    for turn in range(turns):
        items.append(User(f"question {turn}: {'words ' * 50}"))
        requests.append(request(wire, items))
        items.append(Assistant(f"answer {turn}"))
    return requests


def recorded(path: Path) -> Recording:
    with path.open("rb") as lines:
        return read(lines)


async def test_a_conversation_is_written_as_it_came_with_what_the_settings_know(tmp_path: Path):
    recorder = Recorder(ON, tmp_path, Models({}, MODELS), now=lambda: 5.0)
    asked = conversation(4)
    for one in asked:
        sent(recorder, one)
    await recorder.close()

    recording = recorded(tmp_path / "recordings" / "ses_a.jsonl")
    assert recording.head == RecordingHead("kimi", 1000, Prices(1, 1, 1, 0))
    assert [taken.body.encode() for taken in recording.requests] == [one.body for one in asked]
    assert {(taken.at, taken.status, taken.usage) for taken in recording.requests} == {(5.0, 200, Usage(10, 2, 5))}


async def test_nobody_else_can_read_it(tmp_path: Path):
    recorder = Recorder(ON, tmp_path, Models({}, MODELS))
    sent(recorder, conversation(1)[0])
    await recorder.close()

    folder = tmp_path / "recordings"
    modes = await asyncio.to_thread(
        lambda: [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder / "ses_a.jsonl")]
    )
    assert modes == [0o700, 0o600]


async def test_conversations_go_to_files_of_their_own_and_many_are_no_trouble(tmp_path: Path):
    recorder = Recorder(RecordSettings(enabled=True, dir=str(tmp_path / "there")), tmp_path, Models({}, {}))
    asked = conversation(3)
    names = [f"ses_{n}" for n in range(MAX_KNOWN + 3)]
    for one in asked:
        for name in names:
            sent(recorder, one, name)
    await recorder.close()

    for name in names:
        bodies = [taken.body.encode() for taken in recorded(tmp_path / "there" / f"{name}.jsonl").requests]
        assert bodies == [one.body for one in asked]


async def test_a_restart_and_a_second_writer_leave_a_recording_that_can_be_read(tmp_path: Path):
    first, second = Recorder(ON, tmp_path, Models({}, {})), Recorder(ON, tmp_path, Models({}, {}))
    asked = conversation(6)
    for turn, one in enumerate(asked):
        recorder = (first, second)[turn % 2]
        sent(recorder, one)
        await asyncio.to_thread(_idle, recorder)
    await first.close()
    await second.close()

    bodies = [taken.body.encode() for taken in recorded(tmp_path / "recordings" / "ses_a.jsonl").requests]
    assert bodies == [one.body for one in asked]


def _idle(recorder: Recorder) -> None:
    """Whatever was given to its thread before this is done."""
    assert recorder._thread is not None
    recorder._thread.submit(int).result()


async def test_a_recording_ends_where_it_would_grow_too_long(tmp_path: Path):
    recorder = Recorder(RecordSettings(enabled=True, max_bytes=2000), tmp_path, Models({}, {}))
    for one in conversation(20):
        sent(recorder, one)
    await recorder.close()

    path = tmp_path / "recordings" / "ses_a.jsonl"
    assert path.stat().st_size <= 2000
    assert len(recorded(path).requests) >= 1


async def test_a_disk_that_takes_nothing_costs_nobody_anything(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "recordings").write_text("a file where the folder should be")
    recorder = Recorder(ON, tmp_path, Models({}, {}))
    sent(recorder, conversation(1)[0])
    await recorder.close()

    assert "a request was not recorded" in caplog.text
