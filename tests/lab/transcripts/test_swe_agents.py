"""Trajectories of mini-swe-agent and SWE-agent."""

import json
from pathlib import Path

from kimi_proxy.lab.transcripts.places import find, load
from kimi_proxy.lab.transcripts.transcript import AgentCall, CallOutput, ProviderUsage


def test_a_run_of_mini_swe_agent_is_read_with_its_patch(tmp_path: Path):
    usage = {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 40}}
    extra = {"response": {"model": "gemini-3", "created": 1763510516, "usage": usage}}
    messages = [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "<pr_description>broken</pr_description>"},
        {"role": "assistant", "content": "THOUGHT: look\n\n```bash\nls -R\n```", "extra": extra},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\na.py\n</output>"},
        {"role": "assistant", "content": "Done."},
    ]
    run = {
        "info": {"submission": "-old line\n+new line"},
        "messages": messages,
        "trajectory_format": "mini-swe-agent-1",
    }
    (tmp_path / "astropy-1.traj.json").write_text(json.dumps(run))

    (place,) = find([("mini", tmp_path)])
    (transcript,) = load(place)

    first, second = transcript.requests
    assert (transcript.agent, transcript.id.split("/")[-1]) == ("mini-swe-agent", "astropy-1")
    assert (transcript.instructions, transcript.patch) == ("You are helpful.", "-old line\n+new line")
    assert first.calls == [AgentCall("1", "bash", "ls -R")]
    assert first.said.startswith("THOUGHT: look")
    assert (first.usage, first.model) == (ProviderUsage(60, 40, 0, 0, 9), "gemini-3")
    assert [output.call_id for output in second.outputs] == ["1"]


def test_a_run_of_swe_agent_is_read(tmp_path: Path):
    history = [{"role": "system", "content": "SETTING"}, {"role": "user", "content": "demo", "is_demo": True}]
    history.append({"role": "user", "content": "ISSUE: broken"})
    steps = [
        {"thought": "look", "action": "open a.py\n", "observation": "1:import os"},
        {"response": "edit it", "action": "submit", "observation": ""},
    ]
    (tmp_path / "x.traj").write_text(json.dumps({"history": history, "trajectory": steps, "info": {"submission": "p"}}))

    (place,) = find([("swe", tmp_path)])
    (transcript,) = load(place)

    first, second = transcript.requests
    assert (transcript.agent, transcript.instructions, first.user) == ("SWE-agent", "SETTING", ["ISSUE: broken"])
    assert (first.calls, second.outputs) == ([AgentCall("0", "open", "open a.py")], [CallOutput("0", "1:import os")])


def test_a_document_that_is_cut_off_holds_no_run(tmp_path: Path):
    (tmp_path / "x.traj").write_text('{"history": [{"role": "sys')
    (tmp_path / "y.traj.json").write_text("")

    places = find([("swe", tmp_path)])

    assert [list(load(place)) for place in places] == [[]]
