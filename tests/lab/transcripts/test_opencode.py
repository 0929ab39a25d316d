"""Sessions of opencode: exported, in folders, and in its database."""

import json
import sqlite3
from pathlib import Path

from kimi_proxy.lab.transcripts.places import find, load
from kimi_proxy.lab.transcripts.transcript import AgentCall, CallOutput, ProviderUsage, Transcript

TOKENS = {"input": 187, "output": 200, "reasoning": 38, "cache": {"read": 9472, "write": 0}}
TOOL = {
    "id": "prt_2",
    "type": "tool",
    "callID": "REDACTED",
    "tool": "read",
    "state": {"status": "completed", "input": {"filePath": "a"}, "output": "text", "time": {"end": 1772900077584}},
}
USER = {"id": "msg_1", "role": "user", "time": {"created": 1772900065047}}
ASSISTANT = {
    "id": "msg_2",
    "role": "assistant",
    "time": {"created": 1772900072111},
    "modelID": "gpt-5.3",
    "tokens": TOKENS,
}
LAST = {**ASSISTANT, "id": "msg_3"}
PARTS: dict[str, list[dict[str, object]]] = {
    "msg_1": [{"id": "prt_1", "type": "text", "text": "explore"}],
    "msg_2": [{"id": "prt_1b", "type": "step-start"}, TOOL],
    "msg_3": [{"id": "prt_3", "type": "text", "text": "Done."}],
}


def check(transcript: Transcript) -> None:
    first, second = transcript.requests
    assert transcript.id == "ses_1"
    assert (first.user, first.model, first.usage) == (["explore"], "gpt-5.3", ProviderUsage(187, 9472, 0, 0, 200))
    assert [(call.name, call.arguments) for call in first.calls] == [("read", '{"filePath":"a"}')]
    assert [output.text for output in second.outputs] == ["text"]
    assert second.outputs[0].call_id == first.calls[0].id
    assert second.said == "Done."


def test_an_export_is_read(tmp_path: Path):
    messages = [{"info": info, "parts": PARTS[str(info["id"])]} for info in (USER, ASSISTANT, LAST)]
    (tmp_path / "mine.json").write_text(json.dumps({"info": {"id": "ses_1"}, "messages": messages}))
    (tmp_path / "other.json").write_text('{"name": "a package"}')

    (place,) = find([("opencode", tmp_path)])
    (transcript,) = load(place)

    check(transcript)
    assert transcript.requests[0].calls == [AgentCall("REDACTED/prt_2", "read", '{"filePath":"a"}')]
    assert transcript.requests[1].outputs == [CallOutput("REDACTED/prt_2", "text")]


def test_folders_of_json_files_are_read(tmp_path: Path):
    storage = tmp_path / "storage"
    files = {"session/project/ses_1.json": {"id": "ses_1"}}
    for info in (USER, ASSISTANT, LAST):
        files[f"message/ses_1/{info['id']}.json"] = info
        files |= {f"part/{info['id']}/{part['id']}.json": part for part in PARTS[str(info["id"])]}
    for name, told in files.items():
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).write_text(json.dumps(told))

    (place,) = find([("opencode", tmp_path)])
    (transcript,) = load(place)

    check(transcript)


def test_the_database_is_read_and_nothing_is_written_beside_it(tmp_path: Path):
    file = tmp_path / "opencode.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE session (id TEXT)")
        database.execute("CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT)")
        database.execute("CREATE TABLE part (id TEXT, message_id TEXT, data TEXT)")
        database.execute("INSERT INTO session VALUES ('ses_1')")
        for at, info in enumerate((USER, ASSISTANT, LAST)):
            bare = {key: value for key, value in info.items() if key != "id"}
            database.execute("INSERT INTO message VALUES (?, 'ses_1', ?, ?)", (info["id"], at, json.dumps(bare)))
            for part in PARTS[str(info["id"])]:
                database.execute("INSERT INTO part VALUES (?, ?, ?)", (part["id"], info["id"], json.dumps(part)))
    database.close()
    before = file.read_bytes()

    (place,) = find([("opencode", tmp_path)])
    (transcript,) = load(place)

    check(transcript)
    assert ([path.name for path in tmp_path.iterdir()], file.read_bytes()) == (["opencode.db"], before)


def test_a_database_of_another_shape_holds_no_session(tmp_path: Path):
    (tmp_path / "opencode.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 200)

    (place,) = find([("opencode", tmp_path)])

    assert list(load(place)) == []
