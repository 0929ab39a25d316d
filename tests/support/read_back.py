"""Originals read back as a way in reads them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from tests.support.fakes import MemoryOriginals
from tests.support.texts import lines_of

from kimi_proxy.core import markers
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.lines import encode_text
from kimi_proxy.core.markers import PruneMarker
from kimi_proxy.features.recovery import LineRange, Recover, selection_of
from kimi_proxy.features.tool import validate
from kimi_proxy.services.originals import Keeper, keep_parts
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.store.protocols import Original, Originals

ID = "prn_0123456789abcdef"


async def read_lines(
    originals: Originals,
    id: str | None,
    ranges: Sequence[LineRange],
    with_numbers: bool = False,
    who: Caller = LOCAL,
) -> str:
    return await read(originals, lines_of(id, ranges, with_numbers), who)


async def read(originals: Originals, asked: Recover, who: Caller = LOCAL) -> str:
    return (await Recovery(originals).read(who, asked.id, selection_of(asked))).text


def read_from(text: str, arguments: Mapping[str, object]) -> str:
    """What a model gets of a text that is kept under the id that it names."""
    asked = validate(Recover, dict(arguments))  # type: ignore[arg-type]
    originals = MemoryOriginals()
    id = asked.id.replace("_1", "_0123456789abcdef")

    async def keep_and_read() -> str:
        await originals.keep(Original(id, LOCAL.scope, bytes(32), encode_text(text), b"{}"))
        return await read(originals, asked.model_copy(update={"id": id}))

    return asyncio.run(keep_and_read())


async def keep_in_parts(originals: Originals, parts: Sequence[bytes], first_line: int = 1) -> PruneMarker:
    """Keep an output in these parts, and return its marker."""

    async def given() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    found = markers.read(await keep_parts(LOCAL, Keeper(originals), given(), first_line) or "")
    assert found is not None
    return found
