"""Sessions as Claude Code writes them."""

import json

from kimi_proxy.lab.transcripts.claude_code import read
from kimi_proxy.lab.transcripts.transcript import AgentCall, CallOutput, ProviderUsage, Transcript

USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 1000,
    "cache_creation_input_tokens": 300,
    "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
    "output_tokens": 5,
}


def entry(kind: str, content: object, **fields: object) -> bytes:
    message = {"role": kind, "content": content, **(fields.pop("message", {}))}
    told = {"type": kind, "sessionId": "s1", "isSidechain": False, "timestamp": "2026-02-03T03:49:43Z"}
    return json.dumps(told | {"message": message} | fields).encode()


def answer(content: list[object], name: str = "msg_1", output_tokens: int = 5, **fields: object) -> bytes:
    usage = USAGE | {"output_tokens": output_tokens}
    return entry("assistant", content, message={"id": name, "model": "claude-opus-4-5", "usage": usage}, **fields)


def call(name: str) -> dict[str, object]:
    return {"type": "tool_use", "id": name, "name": "Read", "input": {"file_path": f"{name}.py"}}


def result(name: str, text: object, failed: bool = False) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": name, "content": text, "is_error": failed}


def one(*lines: bytes) -> Transcript:
    (transcript,) = read(lines, "file")
    return transcript


def test_the_pieces_of_an_answer_are_one_request_though_results_come_between_them():
    transcript = one(
        entry("user", "fix it"),
        answer([{"type": "thinking", "thinking": "hm"}], output_tokens=1),
        answer([{"type": "text", "text": "I look."}]),
        answer([call("a")]),
        entry("user", [result("a", "text of a")]),
        answer([call("b")], output_tokens=40),
        entry("user", [result("b", [{"type": "text", "text": "text of b"}], failed=True)]),
        answer([{"type": "text", "text": "Done."}], "msg_2"),
    )

    first, second = transcript.requests
    assert (first.user, first.said, first.thinking) == (["fix it"], "I look.", "hm")
    assert first.calls == [
        AgentCall(name, "Read", json.dumps({"file_path": f"{name}.py"}, separators=(",", ":"))) for name in "ab"
    ]
    assert first.usage == ProviderUsage(10, 1000, 100, 200, 40)
    assert second.outputs == [CallOutput("a", "text of a"), CallOutput("b", "text of b", failed=True)]
    assert (second.said, second.model, transcript.id) == ("Done.", "claude-opus-4-5", "s1")


def test_agents_that_it_starts_are_transcripts_of_their_own():
    side = {"isSidechain": True, "agentId": "a1"}
    found = list(
        read(
            [
                entry("user", "do it"),
                answer([call("t")]),
                entry("user", "explore", **side),
                answer([{"type": "text", "text": "found"}], "msg_s", **side),
                entry("user", [result("t", "found")]),
                answer([{"type": "text", "text": "thanks"}], "msg_2"),
            ],
            "file",
        )
    )

    assert [(one.id, one.is_sidechain, len(one.requests)) for one in found] == [("s1", False, 2), ("s1/a1", True, 1)]


def progress(inner: bytes, agent: str = "a1", kind: str = "agent_progress") -> bytes:
    data = {"message": json.loads(inner), "normalizedMessages": [], "type": kind, "agentId": agent}
    told = {"sessionId": "s1", "version": "2.1.29", "type": "progress", "data": data, "toolUseID": "t"}
    return json.dumps(told, separators=(",", ":")).encode()


def test_agents_that_only_its_progress_entries_show_are_transcripts_too():
    found = list(
        read(
            [
                entry("user", "do it", version="2.1.29"),
                answer([call("t")]),
                progress(entry("user", [{"type": "text", "text": "explore"}])),
                progress(answer([call("u")], "msg_s")),
                progress(entry("user", [result("u", "text of u")])),
                progress(answer([{"type": "text", "text": "found"}], "msg_s2")),
                progress(entry("user", "no agent"), kind="bash_progress"),
                progress(progress(entry("user", "nested"))),
                entry("user", [result("t", "found")]),
                answer([{"type": "text", "text": "thanks"}], "msg_2"),
            ],
            "file",
        )
    )

    assert [(one.id, one.is_sidechain, len(one.requests), one.version) for one in found] == [
        ("s1", False, 2, "2.1.29"),
        ("s1/a1", True, 2, "2.1.29"),
    ]
    assert found[1].requests[1].outputs == [CallOutput("u", "text of u")]
    assert found[1].requests[0].usage == ProviderUsage(10, 1000, 100, 200, 5)


def test_sidechains_without_a_name_are_told_apart_by_where_they_begin():
    def side(uuid: str, parent: str | None) -> dict[str, object]:
        return {"isSidechain": True, "uuid": uuid, "parentUuid": parent}

    found = list(
        read(
            [
                entry("user", "one", **side("u1", None)),
                answer([{"type": "text", "text": "1"}], "m1", **side("u2", "u1")),
                entry("user", "two", **side("v1", None)),
                answer([{"type": "text", "text": "2"}], "m2", **side("v2", "v1")),
            ],
            "file",
        )
    )

    assert [[request.said for request in one.requests] for one in found] == [["1"], ["2"]]


def test_after_a_compaction_only_the_summary_is_left():
    transcript = one(
        entry("user", "long story"),
        answer([call("a")]),
        entry("user", [result("a", "never sent")]),
        b'{"type":"system","subtype":"compact_boundary","sessionId":"s1"}',
        entry("user", "summary of it", isCompactSummary=True),
        answer([{"type": "text", "text": "go on"}], "msg_2"),
    )

    last = transcript.requests[-1]
    assert (last.is_compacted, last.user, last.outputs, last.is_user_turn) == (True, ["summary of it"], [], False)


def test_what_the_program_itself_says_is_no_turn_of_the_user():
    transcript = one(
        entry("user", "<command-name>/model</command-name>"),
        entry("user", "noted", isMeta=True),
        answer([{"type": "text", "text": "hello"}]),
        entry("user", "now a person"),
        answer([{"type": "text", "text": "yes"}], "msg_2"),
    )

    assert [request.is_user_turn for request in transcript.requests] == [False, True]


def test_progress_truncated_lines_unknown_entries_and_notices_are_passed_over():
    transcript = one(
        b'{"type":"progress","data":{"type":"assistant"}}',
        b'{"type":"from-the-future","sessionId":"s1","x":{}}',
        entry("user", "go"),
        answer([{"type": "text", "text": "gone"}])[:-30],
        b"",
        b"[1, 2]",
        b"\xff\xfe",
        entry("assistant", [{"type": "text", "text": "limit"}], message={"model": "<synthetic>"}),
        answer([{"type": "text", "text": "here"}, {"type": "server_thing"}, "odd"], "msg_2"),
    )

    assert [request.said for request in transcript.requests] == ["here"]


def test_half_of_a_surrogate_pair_is_read():
    raw = entry("user", [result("a", "half")]).replace(b'"half"', b'"\\ud83d half"')
    transcript = one(raw, answer([{"type": "text", "text": "ok"}]))

    assert transcript.requests[0].outputs[0].text == "\ud83d half"


def test_a_file_without_an_answer_holds_no_session():
    assert list(read([entry("user", "hello?")], "file")) == []
    assert list(read([], "file")) == []
