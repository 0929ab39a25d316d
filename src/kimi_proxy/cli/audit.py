"""What one's own past sessions cost, and what could have been saved in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimi_proxy.cli.console import PATH, home, html_option, json_option, remark, write, write_json
from kimi_proxy.cli.progress import progress_bar

if TYPE_CHECKING:
    from kimi_proxy.lab.transcripts.places import TranscriptPlace


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    type=PATH,
    metavar="[PATH]...",
    help="Folders, files or git repositories with sessions, instead of the usual places.",
)
@html_option
@json_option
def audit(paths: tuple[Path, ...], html: Path | None, as_json: bool) -> None:
    """Show what your agents' past sessions cost, and what would have been saved in them, net.

    Reads what Claude Code, Codex, Kimi CLI, Kimi Code, opencode and mini-swe-agent keep on this machine, and recordings
    of kimi-proxy. Nothing is changed there, and nothing leaves the machine. docs/audit.md says how it counts.

    Example: kimi-proxy audit --html audit.html
    """
    from kimi_proxy.lab import audit_report
    from kimi_proxy.lab.audit import audit as run_audit

    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        raise click.BadParameter(f"cannot write {html}: there is no such folder, or it is one", param_hint="--html")
    places = _places(paths)
    with progress_bar("reading sessions") as progress:
        done = run_audit(places, lambda done, total: progress("", done, total))
    if not done.sessions:
        raise click.BadParameter("no session was found: name a folder that has some", param_hint="PATH")
    if html is not None:
        try:
            html.write_text(audit_report.as_html(done), "utf-8", "replace")
        except OSError as e:
            raise click.BadParameter(f"cannot write {html}: {e.strerror}", param_hint="--html") from e
        remark(f"the report is in {html}")
    write_json(audit_report.as_json(done)) if as_json else write(audit_report.as_text(done))


def _places(paths: tuple[Path, ...]) -> list[TranscriptPlace]:
    from kimi_proxy.lab.audit import sourced
    from kimi_proxy.lab.transcripts import recordings
    from kimi_proxy.lab.transcripts.places import find, usual_places

    for path in paths:
        if not path.exists():
            raise click.BadParameter(f"{path} does not exist", param_hint="PATH")
    if paths:
        return find(map(sourced, paths))
    return find([*usual_places(), (recordings.AGENT, home() / "recordings")])
