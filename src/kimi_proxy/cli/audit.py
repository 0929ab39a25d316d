"""The audit command: the cost of your past sessions, and their possible savings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimi_proxy.cli.console import (
    PATH,
    home,
    html_option,
    json_option,
    remark,
    without_terminal_codes,
    write,
    write_json,
)
from kimi_proxy.cli.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    type=PATH,
    metavar="[PATH]...",
    help="Folders, files or git repositories with sessions, instead of the usual places.",
)
@click.option("--more", is_flag=True, help="Also show cache misses, tools, all policies, versions and lost lines.")
@html_option
@json_option
def audit(paths: tuple[Path, ...], more: bool, html: Path | None, as_json: bool) -> None:
    """Show what you would have saved in your agents' past sessions, and where their money went.

    Reads the sessions that Claude Code, Codex, Gemini CLI, Kimi CLI, Kimi Code, opencode, pi and mini-swe-agent store
    on this machine, and recordings of kimi-proxy. Changes nothing, and sends nothing anywhere. docs/audit.md explains
    the figures.

    Example: kimi-proxy audit --html audit.html
    """
    from kimi_proxy.lab import audit_report
    from kimi_proxy.lab.audit import audit as run_audit
    from kimi_proxy.lab.transcripts.places import find

    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        raise click.BadParameter(
            f"cannot write {html}: its folder does not exist, or it is a folder itself", param_hint="--html"
        )
    searched = _folders(paths)
    places = find(searched)
    with progress_bar("reading sessions") as progress:
        done = run_audit(places, lambda done, total: progress("", done, total))
    done = done.without(_read_shortened_sessions())
    if not done.sessions and not done.left_out:
        write_json({"sessions": 0, "searched": [str(folder) for _, folder in searched]}) if as_json else write(
            _list_searched(searched)
        )
        return
    if html is not None:
        try:
            html.write_text(audit_report.as_html(done), "utf-8", "replace")
        except OSError as e:
            raise click.BadParameter(f"cannot write {html}: {e.strerror}", param_hint="--html") from e
        remark(f"the report is in {html}")
    if as_json:
        write_json(audit_report.as_json(done))
    else:
        write(without_terminal_codes(audit_report.as_text(done, more)))


def _read_shortened_sessions() -> frozenset[str]:
    """Return the names of sessions that went through our own proxy, as its store knows them."""
    from kimi_proxy.services.store import shortened_sessions

    try:
        return shortened_sessions(str(home()))
    except OSError as e:
        remark(f"sessions that went through kimi-proxy are not left out: {e}")
        return frozenset()


def _folders(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return the folders to search, each with a display name."""
    from kimi_proxy.lab.audit import name_source
    from kimi_proxy.lab.transcripts import recordings
    from kimi_proxy.lab.transcripts.places import usual_places

    for path in paths:
        if not path.exists():
            raise click.BadParameter(f"{path} does not exist", param_hint="PATH")
    return [name_source(path) for path in paths] or [*usual_places(), (recordings.AGENT, home() / "recordings")]


def _list_searched(searched: Sequence[tuple[str, Path]]) -> str:
    width = max(len(name) for name, _ in searched)
    looked = "".join(f"  {name:<{width}}  {folder}\n" for name, folder in searched)
    return (
        f"No agent sessions found in:\n{looked}"
        "If your agent stores its sessions elsewhere: kimi-proxy audit PATH\n"
        "To see kimi-proxy at work without sessions: kimi-proxy demo\n"
    )
