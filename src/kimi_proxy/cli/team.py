"""`kimi-proxy team`: the people who share a server, their tokens and the audit log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import click

from kimi_proxy.cli.console import CommandGroup, json_option, log_errors_only, remark, server_config, write, write_json
from kimi_proxy.cli.report import moment_of
from kimi_proxy.core.counting import count_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kimi_proxy.core.caller import Caller
    from kimi_proxy.team.people import NewToken, Role
    from kimi_proxy.team.person_data import ErasedData
    from kimi_proxy.team.records import PersonRecord
    from kimi_proxy.team.team import Team

PRIVATE = 0o600

T = TypeVar("T")

PAGE = 1000
name_argument = click.argument("name", help="Lowercase letters, digits and . _ - + @.")


@click.group(cls=CommandGroup)
def team() -> None:
    """Manage the people who share this server, their tokens and the audit log."""


def operator() -> Caller:
    """Return the caller of a command on the server; the audit log shows the operating system's user name."""
    import getpass

    from kimi_proxy.core.caller import LOCAL_SCOPE, Caller

    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        name = "?"
    return Caller(LOCAL_SCOPE, f"os:{name}", is_admin=True)


def _with_team(job: Callable[[Team], Awaitable[T]]) -> T:
    """Return the result of `job` on the configured team. Anyone who can open the store may manage its people."""
    import asyncio

    from kimi_proxy.assembly.store import open_store, team_of

    log_errors_only()
    config = server_config()
    if not config.team.enabled:
        remark("team mode is off: the server requires no tokens until [team] enabled = true is set")

    async def open_and_run() -> T:
        store = await open_store(config)
        try:
            made = team_of(config, store)
            try:
                return await job(made)
            finally:
                await made.close()
        finally:
            await store.close()

    return asyncio.run(open_and_run())


@team.command()
@name_argument
@click.option(
    "--role",
    type=click.Choice(["member", "admin"]),
    default="member",
    show_default=True,
    help="Admins see everyone's figures.",
)
@click.option("--team", "of_team", default="", metavar="TEAM", help="The person's team, if any.")
@json_option
def add(name: str, role: Role, of_team: str, as_json: bool) -> None:
    """Add a person and print their token, which is shown only once."""

    async def job(team: Team) -> NewToken:
        made = await team.people.add(operator(), name, role, of_team)
        team.audit.add(operator(), "add_person", name, role)
        return made

    _print_token(_with_team(job), as_json)


@team.command()
@name_argument
@json_option
def rotate(name: str, as_json: bool) -> None:
    """Print a new token for a person; the old one stops working."""

    async def job(team: Team) -> NewToken:
        made = await team.people.rotate(operator(), name)
        team.audit.add(operator(), "rotate_token", name)
        return made

    _print_token(_with_team(job), as_json)


@team.command()
@name_argument
def revoke(name: str) -> None:
    """Revoke a person's token. Their data stays theirs; `rotate` restores access."""

    async def job(team: Team) -> None:
        await team.people.revoke(name)
        team.audit.add(operator(), "revoke_token", name)

    _with_team(job)
    remark(f"{name}'s token is revoked, on every server within 2 seconds")


@team.command()
@name_argument
def remove(name: str) -> None:
    """Remove a revoked name. Its data belongs to no one then, and stays until it expires; `erase` deletes it.

    The printed id is still good for `export` and `erase`.
    """

    async def job(team: Team) -> PersonRecord:
        removed = await team.people.remove(name)
        team.audit.add(operator(), "remove_person", name, removed.id)
        return removed

    remark(f"removed {name}; kimi-proxy team erase {_with_team(job).id} deletes the data")


@team.command()
@name_argument
@click.option("--output", "-o", type=click.File("wb"), default="-", help="The file to write.  [default: stdout]")
def export(name: str, output: BinaryIO) -> None:
    """Print all data stored for a person, as one JSON object per line.

    Sessions, requests, decisions, originals, compressions, recordings on this machine, days of use and the person's
    entries in the audit log.
    """
    from kimi_proxy.core import json

    if output.name != sys.stdout.buffer.name:  # a new file: only its owner may read people's texts
        Path(output.name).touch(PRIVATE)
        Path(output.name).chmod(PRIVATE)

    async def job(team: Team) -> int:
        lines = 0
        person = await team.person_data.find(name)
        async for line in team.person_data.export(operator(), person):
            output.write(json.encode(line) + b"\n")
            lines += 1
        return lines

    remark(f"{count_of(_with_team(job), 'line')} about {name}")


@team.command()
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def erase(name: str, yes: bool, as_json: bool) -> None:
    """Delete all data stored for a person, and the name. The ids of their originals stop working.

    Revokes their token first. Daily totals stay without the name, and audit log entries until they expire. Backups are
    not erased: see docs/team.md.
    """
    if not yes:
        click.confirm(f"Delete all data of {name}? This cannot be undone", abort=True, err=True)

    async def job(team: Team) -> ErasedData:
        import asyncio

        from kimi_proxy.team.people import CHECK_S

        person = await team.person_data.find(name)
        if person.revoked is None:
            person = await team.people.revoke(name)
            team.audit.add(operator(), "revoke_token", name)
            await asyncio.sleep(CHECK_S)  # by then every running server has noticed
        return await team.person_data.erase(operator(), person)

    erased = _with_team(job)
    if as_json:
        write_json({"name": name, "erased": erased})
    else:
        counts = (
            count_of(erased.sessions, "session"),
            count_of(erased.originals, "original"),
            count_of(erased.decisions, "decision"),
            count_of(erased.recordings, "recording"),
        )
        remark(f"erased {name}: {', '.join(counts)} on this machine")


@team.command("list")
@json_option
def list_people(as_json: bool) -> None:
    """Print everyone, with their role and team."""
    people = _with_team(lambda team: team.people.list())
    if as_json:
        write_json({"people": people})
    else:
        write("".join(_row(one) for one in people))


@team.command()
@click.option("--since", default="", metavar="WHEN", help="Only entries after this: 24h, 7d, 2026-11-01.")
def audit_log(since: str) -> None:
    """Print the audit log, newest first, as one JSON object per line."""
    from kimi_proxy.core import json
    from kimi_proxy.team.report import audit_line

    moment = moment_of(since)

    async def job(team: Team) -> None:
        async for entry in team.audit.entries(moment.timestamp() if moment else 0.0, PAGE):
            write(json.encode(audit_line(entry)).decode() + "\n")
        team.audit.add(operator(), "export_audit_log")

    _with_team(job)


def _print_token(made: NewToken, as_json: bool) -> None:
    if as_json:
        write_json({"person": made.person, "token": made.token})
        return
    remark(f"the token of {made.person.name} ({made.person.role}); it is shown only once, so copy it now:")
    write(made.token + "\n")


def _row(person: PersonRecord) -> str:
    state = "revoked" if person.revoked is not None else "active"
    return f"{person.name:<24} {person.role:<7} {person.team or '-':<16} {state}\n"
