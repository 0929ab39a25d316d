"""A count in an agent's log, seen from outside: told live, and shown as the health of a session while it is fresh."""

import json
from pathlib import Path

from tests.support.api.watching import models, watching, world
from tests.support.processes import until

from kimi_proxy.core.json import JsonObject


def toml(folder: Path) -> str:
    """Paths in JSON are paths in TOML."""
    kimi, core = json.dumps(str(folder / "kimi.log")), json.dumps(str(folder / "core.log"))
    watched = f"kimi_log = {kimi}\ncontinue_log = {core}\nkimi_sessions = {json.dumps(str(folder))}"
    return f"{models()}\n[log_watcher]\nenabled = true\npoll_ms = 20\n{watched}\n"


async def test_a_fresh_count_of_a_log_is_the_health_of_the_session_that_talks(tmp_path: Path):
    log = tmp_path / "kimi.log"
    async with world(tmp_path / "home", toml(tmp_path)) as w, watching(w.proxy.port) as watcher:
        await w.ask("hello")
        (session,) = await w.sessions(requests=1)
        path = f"/api/session/{session['id']}/health"
        before = await w.get(path)

        def heard() -> bool:
            """Written again and again: the watcher may not have had its first look yet."""
            with log.open("a") as file:
                file.write("… - Updating token count in context: 950\n")
            return bool(watcher.said("log_count"))

        await until(heard)
        after = await w.get(path)

    assert (before["tokens"], before["counted_by"]) == (900, "provider")
    assert (after["tokens"], after["counted_by"], after["percent"], after["level"]) == (950, "log", 95.0, "critical")
    told: JsonObject = watcher.said("log_count")[0]
    assert (told["source"], told["session_id"], told["tokens"]) == ("kimi_log", session["id"], 950)
