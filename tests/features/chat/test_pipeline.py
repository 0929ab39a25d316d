"""A draft passes through its stages, and no fault of a stage stops it."""

from dataclasses import replace

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, edit, parse
from kimi_proxy.features.chat.pipeline import Draft, Note, run_stages
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target

DRAFT = Draft(parse(b'{"model":"m"}', Wire.CHAT), Target("p", "m"), Session("s"), LOCAL)


async def renames(draft: Draft) -> Draft:
    return replace(draft, request=edit.with_model(draft.request, "n"), notes=(*draft.notes, Note("renamed")))


async def idle(draft: Draft) -> Draft:
    return draft


async def broken(draft: Draft) -> Draft:
    raise KeyError("a secret of the inside")


async def test_stages_run_in_their_order():
    draft = await run_stages(DRAFT, (renames, idle), lambda stage, error: None)

    assert (draft.request.model, draft.notes) == ("n", (Note("renamed"),))


async def test_with_nothing_to_do_the_same_draft_comes_out():
    assert await run_stages(DRAFT, (idle, idle), lambda stage, error: None) is DRAFT


async def test_a_stage_that_fails_has_done_nothing_and_the_others_go_on(caplog):
    faults: list[tuple[str, str]] = []

    draft = await run_stages(
        DRAFT, (broken, renames, broken), lambda stage, e: faults.append((stage, type(e).__name__))
    )

    assert draft.request.model == "n"
    assert draft.reasons == ("broken_failed", "broken_failed")
    assert faults == [("broken", "KeyError")] * 2
    assert "secret" not in caplog.text


class Broken:
    async def stage(self, draft: Draft) -> Draft:
        return await (broken if draft.request.model == "n" else idle)(draft)


async def test_a_stage_sees_what_those_before_it_did_and_is_named_by_its_class():
    stage = Broken().stage
    draft = await run_stages(DRAFT, (stage, renames, stage), lambda stage, error: None)

    assert (draft.request.model, draft.reasons) == ("n", ("broken_failed",))
