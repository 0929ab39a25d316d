"""`kimi-proxy sessions`: the newest sessions, read from the store; no server has to run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from kimi_proxy.cli.console import json_option, remark, write, write_json
from kimi_proxy.cli.pruning import with_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_proxy.services.store.protocols import SessionRecord

MAX_SESSIONS = 1_000
TITLE_CHARS = 48
COLUMNS = ("session", "name or title", "last used", "requests", "USD", "USD saved")


@click.command()
@click.option(
    "--limit", type=click.IntRange(1, MAX_SESSIONS), default=20, show_default=True, help="List at most this many."
)
@json_option
def sessions(limit: int, as_json: bool) -> None:
    """List the newest sessions, with the ids that `report --session` and `compress` take."""
    found = with_store(lambda store, who: store.sessions.newest(who, limit))
    if as_json:
        from kimi_proxy.services import serialize

        write_json({"sessions": [serialize.session(record) for record in found]})
    elif found:
        write(_as_text(found))
    else:
        remark("no sessions yet: connect an agent with kimi-proxy init CLIENT, or run kimi-proxy demo")


def _as_text(found: Sequence[SessionRecord]) -> str:
    from kimi_proxy.features.accounting import number, table

    rows = [
        (
            record.id,
            (record.name or record.title)[:TITLE_CHARS],
            datetime.fromtimestamp(record.last_used).astimezone().strftime("%Y-%m-%d %H:%M"),
            f"{record.requests:,}",
            number(record.cost_usd),
            number(record.net_saved_usd),
        )
        for record in found
    ]
    return "\n".join(table([COLUMNS, *rows], left=3)) + "\n"
