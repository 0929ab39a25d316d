"""In a team, members see no secret and no address of the settings, and admins see no password."""

from pathlib import Path

import psycopg
from tests.api.people_world import TEAM, people_world
from tests.support.services.store import postgres_server

PASSWORD = "pass-of-the-database"
KEY = "key-of-the-tools"
HOST = "tools.internal.invalid"
TOOLS = f'[mcp.servers.hosted]\nurl = "http://ann:{KEY}@{HOST}:7/mcp/{KEY}?key={KEY}"\n'
COLLECTOR = f'[telemetry]\notlp_endpoint = "http://ann:{KEY}@127.0.0.1:9/{KEY}"\n'
PATHS = ("settings", "store", "providers", "mcp/servers", "memory/servers", "models", "rate-limit", "me")


def with_password(server: str, home: Path) -> str:
    """Return the address of a database whose user has a password, on a server that trusts everyone."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE ROLE billing SUPERUSER LOGIN")
    return postgres_server.url_of(server, home).replace("///", f"//billing:{PASSWORD}@/").replace("&user=kimi", "")


async def test_no_answer_holds_the_password_of_the_database_or_the_address_of_a_server(tmp_path: Path):
    with postgres_server.serving() as database:
        url = with_password(database, tmp_path)
        async with (
            people_world(tmp_path, TEAM + TOOLS + COLLECTOR, (url,)) as world,
            world.servers[0].person("ben") as member,
            world.servers[0].person("dee") as admin,
        ):
            of_member = "\n".join([(await member.get(f"/api/{path}")).text for path in PATHS])
            of_admin = "\n".join([(await admin.get(f"/api/{path}")).text for path in PATHS])

    assert [each for each in (PASSWORD, KEY, HOST, "billing", "127.0.0.1:") if each in of_member] == []
    assert [each for each in (PASSWORD, KEY) if each in of_admin] == []
    assert f"http://{HOST}:7" in of_admin
