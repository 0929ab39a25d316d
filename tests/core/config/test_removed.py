"""A setting that no longer exists is one warning that says what to do instead, never a refusal to start."""

from pathlib import Path

import pytest

from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.config.removed import REMOVED_VARIABLES
from kimi_proxy.core.errors import ConfigError


def config(toml: str = "", **env: str) -> Config:
    return parse(toml, env, Path("/nowhere"))


@pytest.mark.parametrize(
    ("toml", "warning"),
    [
        (
            "[cache]\nkeep_warm = true\nkeep_warm_pings = 3\nmarks = false\n",
            "ignored: cache.keep_warm (line 2), cache.keep_warm_pings (line 3): kimi-proxy sends no requests of its "
            "own to keep a prompt cache warm; remove the setting",
        ),
        (
            "[proxy]\nresponses_websocket = true\n",
            "ignored: proxy.responses_websocket (line 2): clients of the Responses API send POST requests, Codex by "
            "itself; remove the setting",
        ),
        (
            '[store]\nobject_storage = "s3://b/x"\nobject_min_bytes = 1\n',
            "ignored: store.object_storage (line 2), store.object_min_bytes (line 3): originals are in the database; "
            "remove the setting (`kimi-proxy start` refuses a store with texts elsewhere)",
        ),
        (
            '[store]\nkey_command = "pass show kimi"\n',
            "ignored: store.key_command (line 2): texts are stored as they are: encrypt the disk or the database "
            "(docs/team-deployment.md); unset it",
        ),
        (
            '[team]\naudit_file = "a.jsonl"\naudit_syslog = "unix:///dev/log"\n',
            "ignored: team.audit_file (line 2), team.audit_syslog (line 3): the audit log is in the store; pipe "
            "`kimi-proxy team audit-log` to your log system; remove the setting",
        ),
        (
            "[upgrade]\ncheck = true\n",
            "ignored: upgrade (line 1): kimi-proxy asks no package index; use `pip index versions kimi-proxy`; remove "
            "the section",
        ),
        (
            '[store]\nreport_url = "postgresql://db/x"\n',
            "ignored: store.report_url (line 2): lists, reports and exports are read from the database itself; remove "
            "the setting",
        ),
    ],
)
def test_a_setting_that_is_gone_is_one_warning_with_what_to_do_instead(toml: str, warning: str):
    assert [each.warning for each in config(toml).ignored] == [warning]


def test_the_settings_beside_it_still_count():
    assert config("[cache]\nkeep_warm = true\nmarks = false\n").cache.marks is False


def test_a_backend_that_does_not_exist_is_the_local_one_with_a_warning():
    mistyped = config('[mcp_pruner]\nbackend = "deepinfra"\n', KIMI_PRUNING_BACKEND="deepinfa")

    assert mistyped.mcp_pruner.backend == "heuristic"
    assert [each.warning for each in mistyped.ignored] == [
        "ignored: KIMI_PRUNING_BACKEND = 'deepinfa': lines are scored on this machine; name heuristic, or deepinfra"
    ]
    assert [config(KIMI_PRUNING_BACKEND=name).ignored for name in ("Cloud", " heuristic ", "")] == [(), (), ()]


def test_a_variable_of_such_a_setting_is_named():
    (found,) = config(KIMI_PROXY__CACHE__KEEP_WARM="true").ignored

    assert found.names == "cache.keep_warm (KIMI_PROXY__CACHE__KEEP_WARM)"


@pytest.mark.parametrize("variable", sorted(REMOVED_VARIABLES))
def test_a_variable_of_its_own_that_is_gone_is_one_warning_without_its_value(variable: str):
    (found,) = config(**{variable: "postgresql://u:s3cret@db/x"}).ignored

    assert found.names == variable
    assert "s3cret" not in found.warning


def test_the_value_of_such_a_setting_is_not_shown():
    (found,) = config('[cache]\nkeep_warm_plans = ["a-name-of-mine"]\n').ignored

    assert "a-name-of-mine" not in found.warning


def test_a_misspelt_setting_is_still_refused():
    with pytest.raises(ConfigError, match=r"setting cache\.keep_warmer \(line 2\): there is no such setting"):
        config("[cache]\nkeep_warmer = true\n")


def test_settings_that_exist_are_no_warning():
    assert config("[cache]\nmarks = true\n").ignored == ()
