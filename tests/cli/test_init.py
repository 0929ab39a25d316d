"""`kimi-proxy init`, as a person connects a client with it."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from kimi_proxy.features.agent_hooks import TIMEOUT_S

from .conftest import COMMAND, PATIENCE_S, Cli

# client, the file it is connected in, and the way to our entry
PLACES = [
    ("claude", "here/.mcp.json", ("mcpServers", "pruner")),
    ("codex", "home/.codex/config.toml", ("mcp_servers", "pruner")),
    ("cline", "home/.cline/data/settings/cline_mcp_settings.json", ("mcpServers", "pruner")),
    ("cursor", "here/.cursor/mcp.json", ("mcpServers", "pruner")),
    ("vscode", "here/.vscode/mcp.json", ("servers", "pruner")),
    ("kimi", "here/.kimi-code/mcp.json", ("mcpServers", "pruner")),
    ("qwen", "here/.qwen/settings.json", ("mcpServers", "pruner")),
    ("gemini", "here/.gemini/settings.json", ("mcpServers", "pruner")),
    ("copilot", "home/.copilot/mcp-config.json", ("mcpServers", "pruner")),
]
RULES = {
    "claude": "here/CLAUDE.md",
    "codex": "home/.codex/AGENTS.md",
    "cline": "here/.clinerules/kimi-proxy.md",
    "continue": "here/.continue/rules/kimi-proxy.md",
    "cursor": "here/.cursor/rules/kimi-proxy.mdc",
    "vscode": "here/AGENTS.md",
    "kimi": "here/AGENTS.md",
    "qwen": "here/QWEN.md",
    "gemini": "here/GEMINI.md",
    "copilot": "home/.copilot/copilot-instructions.md",
}


@pytest.fixture
def world(cli: Cli, tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path


def read(file: Path) -> dict[str, object]:
    text = file.read_text()
    match file.suffix:
        case ".toml":
            return tomllib.loads(text)
    parsed: dict[str, object] = json.loads(text)
    return parsed


def files(world: Path) -> dict[str, str]:
    """Every file but our own state."""
    found = [path for top in ("home", "here") for path in (world / top).rglob("*")]
    return {str(path.relative_to(world)): path.read_text() if path.is_file() else "" for path in found}


@pytest.mark.parametrize(("client", "file", "way"), PLACES)
def test_each_client_is_connected_in_its_own_file_and_disconnected_without_a_trace(
    client: str, file: str, way: tuple[str, ...], cli: Cli, world: Path
):
    before = files(world)
    done = cli("init", client, "--tools", "--with-guidance", "--yes")
    assert done.returncode == 0, done.stderr
    entry: object = read(world / file)
    for key in way:
        entry = entry[key]  # type: ignore[index]
    assert isinstance(entry, dict)
    assert entry["command"].endswith("kimi-proxy")
    assert entry["args"][:2] == ["tools", "--stdio"]
    assert "context_focus_question" in (world / RULES[client]).read_text()
    assert set(files(world)) - set(before) >= {file, RULES[client]}

    again = cli("init", client, "--tools", "--with-guidance", "--yes")
    assert (again.returncode, again.stdout) == (0, b"")
    assert b"already set up" in again.stderr

    assert cli("init", client, "--undo", "--yes").returncode == 0
    assert files(world) == before


def test_continue_gets_a_file_that_is_ours_alone(cli: Cli, world: Path):
    before = files(world)
    done = cli("init", "continue", "--project", "--tools", "--with-guidance", "--yes")
    assert done.returncode == 0
    assert b"`cn` reads ~/.continue/config.yaml alone" in done.stderr
    file = cli.here / ".continue" / "mcpServers" / "pruner.yaml"
    head, command, args = file.read_text().rsplit("\n", 3)[:3]
    assert head == "name: pruner\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: pruner\n    type: stdio"
    assert command.startswith("    command: ") and command.endswith("kimi-proxy")
    assert args == '    args: [tools, "--stdio"]'
    assert "context_focus_question" in (world / RULES["continue"]).read_text()

    again = cli("init", "continue", "--project", "--tools", "--with-guidance", "--yes")
    assert b"already set up" in again.stderr
    assert cli("init", "continue", "--undo", "--yes").returncode == 0
    assert files(world) == before


def test_a_file_of_continue_that_others_have_written_is_left_alone(cli: Cli):
    file = cli.here / ".continue" / "mcpServers" / "pruner.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("name: mine\nmcpServers: []\n")
    done = cli("init", "continue", "--project", "--yes")

    assert done.returncode == 2
    assert b"pruner.yaml was not changed: it contains more than our entry" in done.stderr
    assert file.read_text() == "name: mine\nmcpServers: []\n"


def test_continue_gets_an_item_in_the_file_that_its_command_line_reads(cli: Cli, world: Path):
    file = world / "home" / ".continue" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("name: mine\nmodels:\n  - name: kimi # cheap\nmcpServers:\n  - name: git\n    command: git-mcp\n")
    before = files(world)
    done = cli("init", "continue", "--yes")

    assert done.returncode == 0 and b"`cn`" not in done.stderr
    lines = file.read_text().split("\n")
    assert lines[3:6] == ["mcpServers:", "  - name: pruner", "    type: stdio"]
    assert lines[7:] == ['    args: [pruner, "--stdio"]', "  - name: git", "    command: git-mcp", ""]
    assert not (file.parent / "mcpServers").exists()
    assert cli("init", "continue", "--undo", "--yes").returncode == 0
    assert files(world) == before


MEMORY_ITEM = """\
  - name: memory
    type: stdio
    command: npx
    args: ["-y", "@modelcontextprotocol/server-memory"]
    env: {"MEMORY_FILE_PATH": "%s"}
"""


@pytest.mark.parametrize("config", ["", "name: mine\nmodels:\n  - name: kimi # cheap\n"])
@pytest.mark.parametrize("way_back", [("init", "continue", "--undo"), ("uninstall",)])
def test_continue_gets_a_memory_server_on_request_and_loses_it_without_a_trace(
    config: str, way_back: tuple[str, ...], cli: Cli, world: Path
):
    file = world / "home" / ".continue" / "config.yaml"
    if config:
        file.parent.mkdir(parents=True)
        file.write_text(config)
    before = files(world)
    done = cli("init", "continue", "--memory", "--yes")

    assert done.returncode == 0, done.stderr
    memory = world / "home" / ".kimi-proxy" / "mcp-memory.json"
    written = file if config else file.parent / "mcpServers" / "memory.yaml"
    assert MEMORY_ITEM % memory in written.read_text()
    assert (memory.read_bytes(), memory.stat().st_mode & 0o777) == (b"", 0o600)
    assert f"+++ {memory}" in done.stdout.decode()
    again = cli("init", "continue", "--memory", "--yes")
    assert (again.returncode, again.stdout) == (0, b"")

    assert cli(*way_back, "--yes").returncode == 0
    assert files(world) == before
    assert not memory.parent.exists()


def test_memories_stay_when_their_server_is_taken_back_alone(cli: Cli, world: Path):
    assert cli("init", "continue", "--memory", "--yes").returncode == 0
    memory = world / "home" / ".kimi-proxy" / "mcp-memory.json"
    memory.write_text('{"type":"entity","name":"port","entityType":"fact","observations":["8000"]}\n')
    kept = memory.read_bytes()
    assert cli("init", "continue", "--memory", "--yes").stdout == b""
    assert cli("init", "continue", "--memory", "--undo", "--yes").returncode == 0

    assert memory.read_bytes() == kept
    servers = world / "home" / ".continue" / "mcpServers"
    assert [each.name for each in servers.iterdir()] == ["pruner.yaml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cursor", "--memory"), b"--memory is for Continue"),
        (("continue", "--memory", "--project"), b"use --user"),
        (("continue", "--memory", "--hooks"), b"--memory cannot be combined with these options"),
    ],
)
def test_a_memory_server_that_cannot_be_added_is_refused_with_the_reason(
    arguments: tuple[str, ...], said: bytes, cli: Cli, world: Path
):
    before = files(world)
    done = cli("init", *arguments, "--yes")

    assert (done.returncode, files(world)) == (2, before)
    assert said in done.stderr


def test_over_http_the_address_of_the_settings_is_written(cli: Cli):
    cli("init", "claude", "--http", "--yes", env={"MCP_PRUNER_PORT": "8016", "KIMI_PROXY_TOKEN": "x" * 32})
    written = (cli.here / ".mcp.json").read_text()

    assert json.loads(written)["mcpServers"]["pruner"] == {
        "type": "http",
        "url": "http://127.0.0.1:8016/mcp",
        "headers": {"Authorization": "Bearer ${KIMI_PROXY_TOKEN}"},
    }


def test_a_port_that_changes_at_every_start_is_refused(cli: Cli):
    assert cli("init", "claude", "--http", "--yes").returncode == 78


def test_the_change_is_shown_and_a_dry_run_makes_none(cli: Cli, world: Path):
    (cli.here / ".mcp.json").write_text('{"mcpServers": {"a": {}}}\n')
    before = files(world)
    done = cli("init", "claude", "--dry-run")

    assert done.returncode == 0
    assert b'-{"mcpServers": {"a": {}}}\n+{"mcpServers": {"a": {}, "pruner": ' in done.stdout
    assert files(world) == before


def test_without_a_person_there_must_be_a_yes(cli: Cli, world: Path):
    done = cli("init", "claude")

    assert done.returncode == 2
    assert b"--yes" in done.stderr
    assert files(world) == {}


@pytest.mark.parametrize(("answer", "code", "exists"), [(b"y\n", 0, True), (b"n\n", 1, False)])
def test_a_person_is_asked(cli: Cli, world: Path, answer: bytes, code: int, exists: bool):
    keyboard, terminal = pytest.importorskip("pty").openpty()  # not on Windows
    os.write(keyboard, answer)
    done = subprocess.run(
        [*COMMAND, "init", "claude"], stdin=terminal, capture_output=True, cwd=cli.here, env=cli.env, timeout=PATIENCE_S
    )
    os.close(keyboard)
    os.close(terminal)

    assert done.returncode == code
    assert b"Make this change?" in done.stderr
    assert (cli.here / ".mcp.json").exists() is exists


def test_a_file_that_cannot_be_read_is_left_alone_with_the_reason(cli: Cli):
    (cli.here / ".mcp.json").write_text('{"mcpServers": ')
    done = cli("init", "claude", "--yes")

    assert done.returncode == 2
    assert b".mcp.json was not changed: line 1 is not JSON" in done.stderr
    assert b"Traceback" not in done.stderr
    assert (cli.here / ".mcp.json").read_text() == '{"mcpServers": '


def test_comments_and_foreign_entries_stay(cli: Cli):
    theirs = '{\n\t// my servers\n\t"servers": {\n\t\t"a": {"url": "x"}, // first\n\t},\n}\n'
    file = cli.here / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text(theirs)
    cli("init", "vscode", "--yes")

    head, ours, tail = file.read_text().partition('\t\t"pruner": {\n')
    assert head == '{\n\t// my servers\n\t"servers": {\n\t\t"a": {"url": "x"}, // first\n'
    assert ours
    assert tail.endswith("\n\t\t},\n\t},\n}\n")
    cli("init", "vscode", "--undo", "--yes")
    assert file.read_text() == theirs


def test_nothing_to_take_back_is_no_error(cli: Cli, world: Path):
    done = cli("init", "claude", "--undo", "--yes")

    assert (done.returncode, done.stderr) == (0, b"kimi-proxy: there is nothing to undo\n")
    assert files(world) == {}


def test_all_settings_of_cline_that_exist_are_changed(cli: Cli, world: Path):
    extension = "home/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
    for file in (extension, "home/.cline/data/settings/cline_mcp_settings.json"):
        (world / file).parent.mkdir(parents=True)
        (world / file).write_text('{"mcpServers": {}}')
    before = files(world)
    cli("init", "cline", "--yes")

    changed = {name for name, text in files(world).items() if "kimi-proxy" in text}
    assert changed == {extension, "home/.cline/data/settings/cline_mcp_settings.json"}
    cli("init", "cline", "--undo", "--yes")
    assert files(world) == before


@pytest.mark.parametrize(
    ("client", "variable", "value", "file"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", "elsewhere", "elsewhere/.claude.json"),
        ("codex", "CODEX_HOME", "elsewhere", "elsewhere/config.toml"),
        ("cline", "CLINE_MCP_SETTINGS_PATH", "elsewhere/x.json", "elsewhere/x.json"),
    ],
)
def test_variables_of_the_clients_move_their_files(
    cli: Cli, tmp_path: Path, client: str, variable: str, value: str, file: str
):
    cli("init", client, "--user", "--yes", env={variable: str(tmp_path / value)})

    assert "kimi-proxy" in (tmp_path / file).read_text()


def test_a_client_without_files_of_a_project_says_so(cli: Cli):
    done = cli("init", "cline", "--project", "--yes")

    assert done.returncode == 2
    assert b"use --user" in done.stderr


def test_rules_that_are_kept_in_settings_are_not_written(cli: Cli, world: Path):
    done = cli("init", "cursor", "--user", "--tools", "--with-guidance", "--yes")

    assert done.returncode == 2
    assert b"paste them there" in done.stderr
    assert files(world) == {}


def test_guidance_is_about_the_tools(cli: Cli):
    done = cli("init", "claude", "--with-guidance", "--yes")

    assert done.returncode == 2
    assert b"--tools" in done.stderr


def test_a_file_of_rules_for_cline_gets_our_block(cli: Cli):
    (cli.here / ".clinerules").write_text("be kind\n")
    cli("init", "cline", "--tools", "--with-guidance", "--yes")

    assert (cli.here / ".clinerules").read_text().startswith("be kind\n\n<!-- kimi-proxy: begin -->\n")
    cli("init", "cline", "--undo", "--yes")
    assert (cli.here / ".clinerules").read_text() == "be kind\n"


def test_without_a_place_for_the_way_back_nothing_is_changed(cli: Cli, tmp_path: Path):
    (tmp_path / "state").write_text("a file where the directory should be")

    done = cli("init", "claude", "--yes")

    assert done.returncode == 2
    assert done.stderr.startswith(b"kimi-proxy: ")
    assert b"Traceback" not in done.stderr
    assert not (cli.here / ".mcp.json").exists()


PROXY = {"KIMI_PROXY_PORT": "8010"}
SEARCHES = {"ENABLE_TOOL_SEARCH": "true"}
KEYED = {"ANTHROPIC_API_KEY": "sk-ant-api03-x"}
ANTHROPIC = '[providers.anthropic]\napi_key = ""\n[providers.openai]\napi_key = ""\n'


@pytest.mark.parametrize(
    ("client", "file", "said"),
    [
        (
            "claude",
            "home/.claude/settings.json",
            {"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8010"} | SEARCHES},
        ),
        ("codex", "home/.codex/config.toml", {"openai_base_url": "http://127.0.0.1:8010/v1"}),
        (
            "opencode",
            "home/.config/opencode/opencode.json",
            {
                "provider": {
                    "anthropic": {"options": {"baseURL": "http://127.0.0.1:8010/v1"}},
                    "openai": {"options": {"baseURL": "http://127.0.0.1:8010/v1"}},
                }
            },
        ),
        (
            "kilo",
            "home/.config/kilo/kilo.json",
            {
                "provider": {
                    "anthropic": {"options": {"baseURL": "http://127.0.0.1:8010/v1"}},
                    "openai": {"options": {"baseURL": "http://127.0.0.1:8010/v1"}},
                }
            },
        ),
        (
            "pi",
            "home/.pi/agent/models.json",
            {
                "providers": {
                    "anthropic": {"baseUrl": "http://127.0.0.1:8010"},
                    "openai": {"baseUrl": "http://127.0.0.1:8010/v1"},
                }
            },
        ),
        (
            "qwen",
            "home/.qwen/settings.json",
            {
                "env": {
                    "OPENAI_BASE_URL": "http://127.0.0.1:8010/v1",
                    "ANTHROPIC_BASE_URL": "http://127.0.0.1:8010",
                }
            },
        ),
    ],
)
def test_a_client_is_pointed_to_the_proxy_and_back(client: str, file: str, said: object, cli: Cli, world: Path):
    (world / "config.toml").write_text(ANTHROPIC)
    env = {**PROXY, "KIMI_PROXY_CONFIG": str(world / "config.toml"), "ANTHROPIC_API_KEY": "sk-ant-api03-x"}
    before = files(world)
    done = cli("init", client, "--proxy", "--yes", env=env)
    assert done.returncode == 0, done.stderr
    assert read(world / file) == said
    assert cli("init", client, "--undo", "--yes", env=env).returncode == 0

    assert files(world) == before


def test_behind_translation_claude_code_compacts_by_the_window_of_the_smallest_model(cli: Cli, world: Path):
    """It takes a model that it does not know for one that reads a million tokens."""
    toml = '[providers.kimi]\napi_key = ""\n[models.small]\nprovider = "kimi"\nmax_context_size = 128000\n'
    (world / "config.toml").write_text(toml + '[models.large]\nprovider = "kimi"\nmax_context_size = 262144\n')
    env = {**PROXY, "KIMI_PROXY_CONFIG": str(world / "config.toml")}
    cli("init", "claude", "--proxy", "--yes", env=env)

    said = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8010", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "128000"}
    assert read(world / "home/.claude/settings.json") == {"env": said | CHECKS_ITSELF}


CHECKS_ITSELF = {"CLAUDE_CODE_AUTO_MODE_SERVER": "0"}
KIMI = '[providers.kimi]\napi_key = ""\n'
MOONSHOT = '[providers.moonshot]\ntype = "anthropic"\nbase_url = "https://api.moonshot.ai/anthropic"\napi_key = ""\n'
ONLY_ANTHROPIC = '[providers.anthropic]\napi_key = ""\n'


@pytest.mark.parametrize(
    ("toml", "mine", "expected", "says"),
    [
        (KIMI, {}, CHECKS_ITSELF, b"about 35,000 tokens for each checked action"),
        (MOONSHOT, {}, CHECKS_ITSELF, b"about 35,000 tokens for each checked action"),
        (ONLY_ANTHROPIC, {}, SEARCHES, b""),
        (ONLY_ANTHROPIC, CHECKS_ITSELF, SEARCHES, b""),  # an earlier run has set it for another provider
        (ONLY_ANTHROPIC, {"ENABLE_TOOL_SEARCH": "auto:5"}, {"ENABLE_TOOL_SEARCH": "auto:5"}, b""),
        ("", {}, SEARCHES, b""),  # Anthropic answers a client that brings its own key
        (f"{ONLY_ANTHROPIC}{KIMI}", {}, SEARCHES, b"for a model that is not Anthropic's"),
        (f"{ONLY_ANTHROPIC}{MOONSHOT}", CHECKS_ITSELF, CHECKS_ITSELF, b"for a model that is not Anthropic's"),
    ],
    ids=[
        "Kimi",
        "Moonshot's Anthropic API",
        "Anthropic",
        "no longer Kimi",
        "tool search as the user set it",
        "nothing",
        "both",
        "both, set by the user",
    ],
)
def test_claude_code_checks_actions_by_itself_where_anthropic_does_not(
    toml: str, mine: dict[str, str], expected: dict[str, str], says: bytes, cli: Cli, world: Path
):
    (world / "config.toml").write_text(toml)
    settings = world / "home" / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"env": {"MINE": "1", **mine}}))
    before = settings.read_bytes()
    env = {**PROXY, "KIMI_PROXY_CONFIG": str(world / "config.toml")}

    done = cli("init", "claude", "--proxy", "--yes", env=env)

    found = read(settings)
    assert isinstance(found, dict)
    assert found["env"] == {"MINE": "1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:8010"} | expected
    assert says in done.stderr
    assert (b"AUTO_MODE" in done.stderr) is bool(says)
    assert cli("init", "claude", "--proxy", "--undo", "--yes", env=env).returncode == 0
    assert settings.read_bytes() == before


@pytest.mark.parametrize(
    ("risk", "key", "signs"),
    [("true", "sk-ant-api03-x", True), ("false", "sk-ant-api03-x", False), ("true", "", False)],
)
def test_claude_code_is_made_to_sign_requests_only_if_a_key_pays_and_they_may_be_changed(
    risk: str, key: str, signs: bool, cli: Cli, world: Path
):
    (world / "config.toml").write_text(f"{ANTHROPIC}[sanitizer]\nchange_attested = {risk}\n")
    env = {**PROXY, "KIMI_PROXY_CONFIG": str(world / "config.toml"), "ANTHROPIC_API_KEY": key}
    cli("init", "claude", "--proxy", "--yes", env=env)

    said = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8010"}
    claim = {"_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1"} if signs else {}
    assert read(world / "home/.claude/settings.json") == {"env": said | SEARCHES | claim}


def test_first_party_behaviour_is_asserted_only_where_anthropic_answers(cli: Cli, world: Path):
    settings = world / "home" / ".claude" / "settings.json"
    elsewhere = world / "elsewhere.toml"
    elsewhere.write_text('[providers.mine]\ntype = "anthropic"\nbase_url = "https://llm.example.org"\n')
    theirs = world / "anthropic.toml"
    theirs.write_text(f"{ANTHROPIC}[sanitizer]\nchange_attested = true\n")
    for config in (theirs, elsewhere):  # the second run takes the claim of the first one back
        assert (
            cli(
                "init", "claude", "--proxy", "--yes", env={**PROXY, **KEYED, "KIMI_PROXY_CONFIG": str(config)}
            ).returncode
            == 0
        )

    said = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8010"} | SEARCHES  # it may be the user's own by now, so it stays
    assert read(settings) == {"env": said | CHECKS_ITSELF}


def test_the_proxy_and_the_server_of_one_file_are_taken_back_apart_or_together(cli: Cli, world: Path):
    file = world / "home" / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('# mine\n[tui]\ntheme = "dark"\n')
    before = files(world)
    for options in ([], ["--proxy"]):
        assert cli("init", "codex", *options, "--yes", env=PROXY).returncode == 0
    assert set(read(file)) == {"openai_base_url", "tui", "mcp_servers"}
    assert cli("init", "codex", "--proxy", "--undo", "--yes", env=PROXY).returncode == 0
    assert set(read(file)) == {"tui", "mcp_servers"}
    assert cli("init", "codex", "--undo", "--yes", env=PROXY).returncode == 0

    assert files(world) == before


def test_a_client_without_mcp_says_what_it_can_be_connected_by(cli: Cli, world: Path):
    done = cli("init", "pi", "--yes")

    assert (done.returncode, files(world)) == (2, {})
    assert b"pi does not support MCP servers: use --proxy" in done.stderr


@pytest.mark.parametrize("client", ["cline", "continue", "cursor", "vscode", "gemini", "kimi", "copilot"])
def test_a_client_that_cannot_be_pointed_to_the_proxy_is_left_alone_with_what_to_do(client: str, cli: Cli, world: Path):
    done = cli("init", client, "--proxy", "--yes", env=PROXY)

    assert done.returncode == 2
    assert b"cannot be connected to the proxy by this command: " in done.stderr
    assert files(world) == {}


def test_on_a_clean_machine_the_clients_own_key_is_enough(cli: Cli, world: Path):
    """It asked for a provider in the settings, although none is needed."""
    done = [cli("init", client, "--proxy", "--yes", env=PROXY) for client in ("claude", "opencode")]

    assert [each.returncode for each in done] == [0, 0]
    assert all(b"provider" not in each.stderr for each in done)
    assert read(world / "home/.claude/settings.json") == {
        "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8010"} | SEARCHES
    }
    assert b"http://127.0.0.1:8010/v1" in (world / "home/.config/opencode/opencode.json").read_bytes()


def test_a_provider_that_is_switched_off_is_remarked_upon(cli: Cli, world: Path):
    (world / "config.toml").write_text("[providers.anthropic]\nenabled = false\n")
    done = cli("init", "claude", "--proxy", "--yes", env={**PROXY, "KIMI_PROXY_CONFIG": str(world / "config.toml")})

    assert done.returncode == 0
    assert b"the provider anthropic is turned off: set enabled = true in [providers.anthropic]" in done.stderr


def test_hooks_are_installed_with_the_server_that_reads_their_cuts_back(cli: Cli, world: Path):
    settings = world / "home" / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{\n  "hooks": {"PostToolUse": [{"matcher": "Edit", "hooks": []}]} // mine\n}\n')
    before = files(world)
    env = {**PROXY, "MCP_PRUNER_PORT": "8016"}
    assert cli("init", "claude", "--hooks", "--yes", env=env).returncode == 0
    written = settings.read_text().replace("// mine", "")
    hook = {"type": "http", "url": "http://127.0.0.1:8010/api/hooks/claude", "timeout": TIMEOUT_S}
    hooks = json.loads(written)["hooks"]
    assert [entry["hooks"] for entry in hooks["PostToolUse"]] == [[], [hook]]
    assert "Read" not in hooks["PostToolUse"][1]["matcher"]
    assert hooks["UserPromptSubmit"] == [{"hooks": [hook]}]
    (asked,) = hooks["PermissionRequest"]
    assert asked == {"matcher": asked["matcher"], "hooks": [{**hook, "timeout": 5}]}
    assert hooks["PermissionDenied"] == [asked] and "mcp__pruner__recover_text" in asked["matcher"]
    server = read(world / "home" / ".claude.json")["mcpServers"]["pruner"]  # type: ignore[index]
    assert server == {"type": "http", "url": "http://127.0.0.1:8016/mcp", "alwaysLoad": True}

    assert cli("init", "claude", "--hooks", "--yes", env=env).stdout == b""
    assert cli("init", "claude", "--proxy", "--yes", env=env).returncode == 0
    assert cli("init", "claude", "--hooks", "--undo", "--yes", env=env).returncode == 0
    assert "/api/hooks/" not in settings.read_text()
    assert "ANTHROPIC_BASE_URL" in settings.read_text()
    assert cli("init", "claude", "--undo", "--yes", env=env).returncode == 0
    assert files(world) == before


OWN_RULES = (
    "",
    '{"model": "opus"}',
    '{\n  "permissions": {\n    "allow": [\n      "Bash(ls:*)" // mine\n    ],\n    "deny": ["Read(.env)"]\n  }\n}\n',
    '{\n\t"permissions": {"allow": ["mcp__pruner__recover_text", "mcp__other__read"]}\n}\n',
)


@pytest.mark.parametrize("own", OWN_RULES)
@pytest.mark.parametrize("options", [(), ("--tools",), ("--hooks",), ("--user", "--tools", "--with-guidance")])
def test_claude_code_is_granted_recover_text_alone_and_the_grant_is_taken_back_byte_for_byte(
    cli: Cli, world: Path, options: tuple[str, ...], own: str
):
    is_personal = "--hooks" in options or "--user" in options
    place = world / ("home/.claude/settings.json" if is_personal else "here/.claude/settings.local.json")
    if own:
        place.parent.mkdir()
        place.write_text(own)
    before = files(world)
    env = {**PROXY, "MCP_PRUNER_PORT": "8016"}
    shown = cli("init", "claude", *options, "--dry-run", env=env)
    assert files(world) == before
    assert cli("init", "claude", *options, "--yes", env=env).returncode == 0

    assert (b'"mcp__pruner__recover_text"' in shown.stdout) or "recover_text" in own
    had = json.loads(own.replace("// mine", ""))["permissions"] if "permissions" in own else {}
    rules = json.loads(place.read_text().replace("// mine", ""))["permissions"]
    assert rules.get("deny") == had.get("deny")
    assert set(rules["allow"]) - set(had.get("allow", ())) <= {"mcp__pruner__recover_text"}
    assert rules["allow"].count("mcp__pruner__recover_text") == 1

    assert cli("init", "claude", *options, "--yes", env=env).stdout == b""
    assert cli("init", "claude", "--undo", "--yes", env=env).returncode == 0
    assert files(world) == before


@pytest.mark.parametrize("options", [("--project",), ("--project", "--tools"), ("--user", "--tools")])
def test_qwen_code_is_granted_recover_text_alone_beside_its_server(cli: Cli, world: Path, options: tuple[str, ...]):
    place = world / ("home" if "--user" in options else "here") / ".qwen" / "settings.json"
    place.parent.mkdir()
    place.write_text('{\n  "permissions": {"deny": ["Read(.env)"]}\n}\n')
    before = files(world)
    shown = cli("init", "qwen", *options, "--yes")

    assert b"mcp__pruner__recover_text" in shown.stdout
    assert read(place)["permissions"] == {"deny": ["Read(.env)"], "allow": ["mcp__pruner__recover_text"]}
    assert cli("init", "qwen", "--undo", "--yes").returncode == 0
    assert files(world) == before


@pytest.mark.parametrize("options", [("--project",), ("--user", "--tools")])
def test_gemini_cli_gets_a_rule_that_allows_recover_text_alone(cli: Cli, world: Path, options: tuple[str, ...]):
    """It reads such rules in the user's folder only, and hides what it would have to ask about without a terminal."""
    before = files(world)
    shown = cli("init", "gemini", *options, "--yes")

    rule = {"mcpName": "pruner", "toolName": "recover_text", "decision": "allow", "priority": 100}
    assert b"+toolName" in shown.stdout
    assert read(world / "home" / ".gemini" / "policies" / "kimi-proxy.toml") == {"rule": [rule]}
    assert cli("init", "gemini", "--undo", "--yes").returncode == 0
    assert files(world) == before


@pytest.mark.parametrize(
    ("client", "scope", "step"),
    [
        ("qwen", "--project", b"qwen mcp approve pruner"),
        ("kimi", "--project", b"Trust this folder"),
        ("gemini", "--project", b"trust this folder"),
        ("gemini", "--user", b"trust this folder"),
        ("qwen", "--user", b""),
        ("kimi", "--user", b"Approve for this session"),
        ("opencode", "--project", b""),
    ],
)
def test_where_a_client_hides_the_server_for_now_the_step_that_is_left_is_named(
    client: str, scope: str, step: bytes, cli: Cli, world: Path
):
    made, dry_run = cli("init", client, scope, "--yes"), cli("init", client, scope, "--dry-run")
    undone = cli("init", client, "--undo", "--yes")

    assert (b"one step is left: " in made.stderr) is bool(step) and step in made.stderr
    assert b"step is left" not in dry_run.stderr + undone.stderr


@pytest.mark.parametrize(
    ("client", "asked"),
    [
        ("claude", b"asks before read, grep and bash; `claude -p` cannot ask, and refuses them"),
        ("codex", b"asks before bash; `codex exec` cannot ask, and refuses it"),
        ("copilot", b"asks before bash; `copilot -p` cannot ask, and refuses it"),
        ("qwen", b"asks before read, grep and bash; `qwen -p` cannot ask, and refuses them"),
        ("gemini", b"asks before read, grep and bash; `gemini -p` cannot ask, and refuses them"),
    ],
)
def test_tools_that_a_client_asks_about_are_named_with_where_it_refuses_them(
    client: str, asked: bytes, cli: Cli, world: Path
):
    assert asked in cli("init", client, "--tools", "--yes").stderr
    assert cli("init", client, "--undo", "--yes").returncode == 0
    assert b"cannot ask" not in cli("init", client, "--yes").stderr, "it gets none of these tools"


def test_a_rule_that_the_user_adds_later_stays_when_ours_is_taken_back(cli: Cli, world: Path):
    assert cli("init", "claude", "--user", "--yes").returncode == 0
    settings = world / "home" / ".claude" / "settings.json"
    written = settings.read_text()
    settings.write_text(written.replace('"mcp__pruner__recover_text"', '"mcp__pruner__recover_text", "Bash(ls:*)"'))
    assert cli("init", "claude", "--undo", "--yes").returncode == 0

    assert json.loads(settings.read_text()) == {"permissions": {"allow": ["Bash(ls:*)"]}}


@pytest.mark.parametrize(
    "own", ['{\n  "model": "opus" // mine\n}\n', '{"statusLine": {"type": "command", "command": "date"}}']
)
def test_the_status_line_is_set_up_and_taken_back_byte_for_byte(cli: Cli, world: Path, own: str):
    settings = world / "home" / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(own)
    before = files(world)
    assert cli("init", "claude", "--statusline", "--yes").returncode == 0
    line = json.loads(settings.read_text().replace("// mine", ""))["statusLine"]
    assert line["type"] == "command"
    assert line["command"].endswith(" statusline")
    assert cli("init", "claude", "--statusline", "--yes").stdout == b""
    assert cli("init", "claude", "--proxy", "--yes", env=PROXY).returncode == 0
    assert cli("init", "claude", "--statusline", "--undo", "--yes").returncode == 0
    assert " statusline" not in settings.read_text()
    assert "ANTHROPIC_BASE_URL" in settings.read_text()
    assert cli("init", "claude", "--undo", "--yes").returncode == 0

    assert files(world) == before


def test_a_client_without_a_status_bar_says_so(cli: Cli, world: Path):
    done = cli("init", "cursor", "--statusline", "--yes")

    assert done.returncode == 2
    assert b"--statusline is for Claude Code" in done.stderr


def test_a_client_without_such_hooks_says_so(cli: Cli, world: Path):
    done = cli("init", "cursor", "--hooks", "--yes", env={**PROXY, "MCP_PRUNER_PORT": "8016"})

    assert done.returncode == 2
    assert b"Cursor has no hook that can replace a tool result" in done.stderr
    assert files(world) == {}


PLUGINS = [
    ("opencode", ".config/opencode/plugin/kimi-proxy.js", ".config/opencode/opencode.json", "mcp"),
    ("cline", ".cline/plugins/kimi-proxy.js", ".cline/data/settings/cline_mcp_settings.json", "mcpServers"),
]


@pytest.mark.parametrize(("client", "file", "servers", "key"), PLUGINS)
def test_an_agent_gets_a_plugin_that_is_ours_alone(
    cli: Cli, world: Path, client: str, file: str, servers: str, key: str
):
    plugin = world / "home" / file
    env = {**PROXY, "MCP_PRUNER_PORT": "8016"}
    before = files(world)
    assert cli("init", client, "--hooks", "--yes", env=env).returncode == 0
    assert 'const ADDRESS = "http://127.0.0.1:8010/api/hooks/claude";' in plugin.read_text()
    assert "pruner" in read(world / "home" / servers)[key]  # type: ignore[operator]
    assert cli("init", client, "--hooks", "--yes", env=env).stdout == b""
    assert cli("init", client, "--undo", "--yes", env=env).returncode == 0
    assert files(world) == before

    plugin.parent.mkdir(parents=True)
    plugin.write_text("export const Mine = 1\n")
    refused = cli("init", client, "--hooks", "--yes", env=env)
    assert refused.returncode == 2
    assert b"it was not created by kimi-proxy" in refused.stderr


def test_uninstall_takes_back_every_change_in_every_project_and_says_what_is_left(cli: Cli, tmp_path: Path):
    other = Cli(tmp_path / "other", cli.env)
    other.here.mkdir()
    mine = Path(cli.env["HOME"]) / ".codex" / "config.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text("# mine\n")
    assert other("init", "claude", "--yes").returncode == 0
    assert cli("init", "codex", "--user", "--yes").returncode == 0
    changed = other.here / ".mcp.json"
    assert changed.exists() and mine.read_text() != "# mine\n"

    shown = cli("uninstall", "--dry-run")
    assert changed.exists() and b"kimi-proxy" in shown.stdout
    done = cli("uninstall", "--yes")

    assert done.returncode == 0, done.stderr
    assert not changed.exists()
    assert mine.read_text() == "# mine\n"
    assert f"originals and state in {cli.env['KIMI_PROXY_HOME']}".encode() in done.stderr
    assert b"there is nothing to undo" in cli("uninstall", "--yes").stderr


def test_links_that_lead_in_a_circle_are_an_error_that_says_so(cli: Cli, world: Path):
    (world / "here" / ".mcp.json").symlink_to("other.json")
    (world / "here" / "other.json").symlink_to(".mcp.json")

    done = cli("init", "claude", "--yes")

    assert done.returncode != 0
    assert "its links lead in a circle" in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_settings_file_of_a_hundred_megabytes_is_left_alone_at_once(cli: Cli, world: Path):
    file = world / "here" / ".mcp.json"
    with file.open("wb") as written:
        written.write(b'{"mcpServers": {}, "more": "')
        written.truncate(100 * 1024**2)

    done = cli("init", "claude", "--yes")

    assert done.returncode != 0
    assert "a settings file has at most 16777216" in done.stderr.decode()
    assert file.stat().st_size == 100 * 1024**2
