"""A draft passes through its stages, and no fault of a stage stops it."""

from dataclasses import replace

from kimi_proxy.core.chat import Wire, edit, parse
from kimi_proxy.features.models import Target
from kimi_proxy.features.pipeline import Draft, Note, Stage, run_stages, run_steps
from kimi_proxy.features.sessions import Session

DRAFT = Draft(parse(b'{"model":"m"}', Wire.CHAT), Target("p", "m"), Session("s"))


def renames(draft: Draft) -> Draft:
    return replace(draft, request=edit.with_model(draft.request, "n"), notes=(*draft.notes, Note("renamed")))


def idle(draft: Draft) -> Draft:
    return draft


def broken(draft: Draft) -> Draft:
    raise KeyError("a secret of the inside")


def test_stages_run_in_their_order():
    draft = run_stages(DRAFT, (renames, idle), lambda stage, error: None)

    assert (draft.request.model, draft.notes) == ("n", (Note("renamed"),))


def test_with_nothing_to_do_the_same_draft_comes_out():
    assert run_stages(DRAFT, (idle, idle), lambda stage, error: None) is DRAFT


def test_a_stage_that_fails_has_done_nothing_and_the_others_go_on(caplog):
    faults: list[tuple[str, str]] = []

    draft = run_stages(DRAFT, (broken, renames, broken), lambda stage, e: faults.append((stage, type(e).__name__)))

    assert draft.request.model == "n"
    assert draft.reasons == ("broken_failed", "broken_failed")
    assert faults == [("broken", "KeyError")] * 2
    assert "secret" not in caplog.text


class Renames:
    async def stage(self, draft: Draft) -> Stage:
        return renames


class Broken:
    async def stage(self, draft: Draft) -> Stage:
        return broken if draft.request.model == "n" else idle


async def test_a_step_sees_what_those_before_it_did_and_a_broken_one_stops_nobody():
    draft = await run_steps(DRAFT, (Broken(), Renames(), Broken()), lambda step, error: None)

    assert (draft.request.model, draft.reasons) == ("n", ("broken_failed",))
