"""How each agent is installed, pointed at a provider and run without a terminal."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.clients.programs import own_tools
from tests.clients.programs.job import DONE, EIGHT_CALLS, ERRAND, OwnTools, Shell
from tests.clients.programs.packages import node, npm_modules, python_with
from tests.clients.programs.worker import Ending, Worker
from tests.support.clients.agents import claude, codex
from tests.support.clouds import as_bedrock, as_code_assist, as_foundry, as_gemini, as_vertex
from tests.support.evil import Script

from kimi_proxy.connect.clients import Name
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config.providers import CLOUDS, CODE_ASSIST

TASK = "Why does the test in app.log fail? Print it, then write made.txt."
MODEL = "kimi-x"
SDK = Path(__file__).with_name("sdk")
AI_SDK = ("ai@7.0.169", "@ai-sdk/openai-compatible@3.0.90", "zod@4")
OPENHANDS = ("openhands-sdk==1.57.0", "openhands-tools==1.57.0")
LANGGRAPH = ("langgraph==1.2.20", "langchain==1.4.7", "langchain-openai==1.7.3")
PYDANTIC_AI = "pydantic-ai-slim[openai]==2.66.0"
LLAMA_INDEX = ("llama-index-core==0.14.25", "llama-index-llms-openai-like==0.8.1")
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2"}
QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}


@dataclass(frozen=True, slots=True)
class Place:
    """A new home, a folder to work in, and the provider's address without `/v1`."""

    home: Path
    project: Path
    url: str

    def write(self, path: str, text: str) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()  # run first, to log in


@dataclass(frozen=True, slots=True)
class AgentCase:
    name: str
    prepare: Callable[[Place], Command]
    shell: Shell
    client: Name | None = None  # what `kimi-proxy init` calls it
    ending: Ending = None
    observed: bytes = b""
    replies: tuple[str, ...] = ()
    reads_back: bool = True  # not where it has no tools, or puts long results away itself
    wire: Wire = Wire.CHAT  # which API it speaks
    cloud: str = ""  # in whose form
    own_tools: OwnTools = lambda step, folder: None  # beside its shell

    @property
    def provider_type(self) -> str:
        return self.cloud if self.cloud in (*CLOUDS, CODE_ASSIST) else self.wire.format.provider_types[0]

    def provider(self, worker: Worker) -> Script:
        """Return a provider that `worker` answers for."""
        forms = {"bedrock": as_bedrock, "vertex": as_vertex, "foundry": as_foundry, "gemini": as_gemini}
        forms |= {CODE_ASSIST: as_code_assist}
        return forms[self.cloud](worker) if self.cloud else worker

    def worker(self, breaks: int = 0, recalls: bool = True) -> Worker:
        return Worker(
            self.shell,
            ending=self.ending,
            observed=self.observed,
            replies=self.replies,
            breaks=breaks,
            recalls=recalls,
        )

    def worker_on_long_job(self, project: Path) -> Worker:
        """Return a model that gives eight calls, with the agent's own tools; two where it has no tools at all."""
        steps = ERRAND if self.replies else EIGHT_CALLS
        return replace(self.worker(), steps=steps, own_tools=self.own_tools, folder=project)


def _kimi_cli(place: Place) -> Command:
    python = python_with("kimi-cli-1.51.0-3.13", "kimi-cli==1.51.0", since=(3, 13))
    provider = {"type": "openai_legacy", "base_url": f"{place.url}/v1", "api_key": "sk-x"}
    model = {"provider": "p", "model": MODEL, "max_context_size": 200_000}
    settings = {"default_model": "m", "models": {"m": model}, "providers": {"p": provider}}
    place.write("kimi.json", json.dumps(settings))
    config = str(place.home / "kimi.json")
    return Command((python, "-m", "kimi_cli", "--config-file", config, "--print", "--yolo", "-c", TASK))


def _kimi_code(place: Place) -> Command:
    modules = npm_modules("kimi-code-2.1.0", "@moonshot-ai/kimi-code@2.1.0")
    place.write(
        ".kimi-code/config.toml",
        'default_model = "m"\n[providers.p]\ntype = "openai"\napi_key = "sk-x"\n'
        f'base_url = "{place.url}/v1"\n'
        f'[models.m]\nprovider = "p"\nmodel = "{MODEL}"\nmax_context_size = 200000\n',
    )
    return Command((node(), str(modules / "@moonshot-ai/kimi-code/dist/main.mjs"), "-p", TASK))


def _opencode(place: Place) -> Command:
    modules = npm_modules("opencode-1.18.33", "opencode-ai@1.18.33")
    program = next(path for path in modules.glob("opencode-*/bin/opencode") if os.access(path, os.X_OK))
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "sk-x"},
        "models": {MODEL: {"limit": {"context": 200_000, "output": 8_000}}},
    }
    settings = {
        "model": f"scripted/{MODEL}",
        "small_model": f"scripted/{MODEL}",
        "provider": {"scripted": provider},
        "permission": {"bash": "allow"},
    }
    place.write(".config/opencode/opencode.json", json.dumps(settings))
    offline = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return Command((str(program), "run", TASK), offline)


def _cline(place: Place) -> Command:
    modules = npm_modules("cline-3.0.65", "cline@3.0.65")
    program = str(next(modules.glob("@cline/cli-*/bin/cline")))
    login = (program, "auth", "-p", "openai", "-k", "sk-x", "-m", MODEL, "-b", f"{place.url}/v1")
    # On a busy machine it gives plugins up otherwise.
    patient = {"CLINE_PLUGIN_IMPORT_TIMEOUT_MS": "60000"}
    return Command((program, "--json", TASK), patient, before=login)


def _continue(place: Place) -> Command:
    modules = npm_modules("continue-cli-1.5.47", "@continuedev/cli@1.5.47")
    place.write(
        ".continue/config.yaml",
        "name: scripted\nversion: 0.0.1\nschema: v1\nmodels:\n  - name: scripted\n    provider: openai\n"
        f"    model: {MODEL}\n    apiBase: {place.url}/v1\n    apiKey: sk-x\n    roles: [chat]\n"
        "    capabilities: [tool_use]\n",
    )
    program = str(modules / "@continuedev/cli/dist/cn.js")
    config = str(place.home / ".continue/config.yaml")
    argv = (node(), program, "--config", config, "--auto", "-p", TASK)
    return Command(argv, {"CONTINUE_TELEMETRY_ENABLED": "0"})


def _qwen(place: Place) -> Command:
    modules = npm_modules("qwen-code-0.24.4", "@qwen-code/qwen-code@0.24.4")
    place.write(".qwen/settings.json", json.dumps({"privacy": {"usageStatisticsEnabled": False}}))
    program = str(modules / "@qwen-code/qwen-code/cli-entry.js")
    env = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_MODEL": MODEL}
    return Command((node(), program, "--auth-type", "openai", "-y", TASK), env)


def _gemini(place: Place) -> Command:
    modules = npm_modules("gemini-cli-0.61.0", "@google/gemini-cli@0.61.0")
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
    place.write(".gemini/settings.json", json.dumps(settings))
    program = str(modules / "@google/gemini-cli/bundle/gemini.js")
    env = {"GEMINI_API_KEY": "AIza-x", "GOOGLE_GEMINI_BASE_URL": place.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return Command((node(), program, "-y", "-m", "gemini-2.5-pro", "-p", TASK), env)


def _gemini_login(place: Place) -> Command:
    """Gemini CLI with a login of Google, whose token it is given: it asks Google about it, and goes on without."""
    modules = npm_modules("gemini-cli-0.61.0", "@google/gemini-cli@0.61.0")
    settings = {"security": {"auth": {"selectedType": "oauth-personal"}}, "privacy": {"usageStatisticsEnabled": False}}
    place.write(".gemini/settings.json", json.dumps(settings))
    login = {"GOOGLE_GENAI_USE_GCA": "true", "GOOGLE_CLOUD_ACCESS_TOKEN": "ya29.login"}
    env = {**login, "CODE_ASSIST_ENDPOINT": place.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return Command(
        (node(), str(modules / "@google/gemini-cli/bundle/gemini.js"), "-y", "-m", "gemini-2.5-pro", "-p", TASK), env
    )


def _mini_swe(place: Place) -> Command:
    python = python_with("mini-swe-2.4.6", "mini-swe-agent==2.4.6", "mcp>=2")
    place.write("mini.yaml", f"model:\n  model_kwargs:\n    api_base: {place.url}/v1\n    api_key: sk-x\n")
    kept = str(place.home / "trajectory.json")
    options = ("-m", f"openai/{MODEL}", "-y", "--exit-immediately", "-o", kept, "-c", "mini.yaml")
    argv = (python, "-m", "minisweagent.run.mini", *options, "-c", str(place.home / "mini.yaml"), "-t", TASK)
    return Command(argv, {"MSWEA_CONFIGURED": "1", "MSWEA_COST_TRACKING": "ignore_errors", **OFFLINE})


def _aider(place: Place) -> Command:
    python = python_with("aider-0.86.2", "aider-chat==0.86.2")
    offline = ("--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes")
    quiet = ("--no-git", "--no-pretty", "--yes-always", "--map-tokens", "0", "--edit-format", "whole")
    tests = ("--auto-test", "--test-cmd", "cat app.log; test -e made.txt")
    # It summarizes a longer history in a thread, and how often depends on how fast the machine is.
    whole = ("--max-chat-history-tokens", "1000000")
    options = (*offline, *quiet, *tests, *whole)
    argv = (python, "-m", "aider", "--model", f"openai/{MODEL}", *options, "--message", TASK)
    return Command(argv, {"OPENAI_API_KEY": "sk-x", "OPENAI_API_BASE": f"{place.url}/v1"})


def _claude(place: Place) -> Command:
    argv = (claude(), "-p", TASK, "--allowedTools", "Bash,Edit,Write", "--output-format", "json")
    env = {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_API_KEY": "sk-x",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return Command(argv, env)


def _claude_on(cloud: str, path: str = "", **env: str) -> Callable[[Place], Command]:
    """Claude Code in its mode for a cloud, whose credentials a gateway has."""

    def prepare(place: Place) -> Command:
        argv = (claude(), "-p", TASK, "--allowedTools", "Bash,Edit,Write", "--output-format", "json")
        at = {f"CLAUDE_CODE_USE_{cloud}": "1", f"CLAUDE_CODE_SKIP_{cloud}_AUTH": "1"}
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        return Command(argv, {**at, f"ANTHROPIC_{cloud}_BASE_URL": place.url + path, **quiet, **env})

    return prepare


def _codex(model: str) -> Callable[[Place], Command]:
    def prepare(place: Place) -> Command:
        named = f'model = "{model}"\n' if model else ""
        place.write(
            ".codex/config.toml", f'{named}openai_base_url = "{place.url}/v1"\nsandbox_mode = "workspace-write"\n'
        )
        place.write(".codex/auth.json", '{"OPENAI_API_KEY": "sk-x"}')
        return Command((codex(), "exec", "--skip-git-repo-check", TASK))

    return prepare


def _script(command: str) -> tuple[str, str]:
    """Return the script that Codex's newer models run a command with."""
    asked = json.dumps({"cmd": command, "max_output_tokens": 100_000})
    return "exec", f'// @exec: {{"max_output_tokens": 100000}}\ntext((await tools.exec_command({asked})).output);'


def _copilot(place: Place) -> Command:
    modules = npm_modules("copilot-1.0.102", "@github/copilot@1.0.102")
    program = str(next(modules.glob("@github/copilot-*/copilot")))
    env = {"COPILOT_PROVIDER_BASE_URL": f"{place.url}/v1", "COPILOT_MODEL": MODEL, "COPILOT_PROVIDER_API_KEY": "sk-x"}
    return Command((program, "-p", TASK, "--allow-all-tools", "-s"), {**env, "COPILOT_OFFLINE": "true"})


def _pi(place: Place) -> Command:
    modules = npm_modules("pi-0.73.1", "@mariozechner/pi-coding-agent@0.73.1")
    model = {"id": MODEL, "contextWindow": 200_000, "maxTokens": 8_000}
    provider = {"baseUrl": f"{place.url}/v1", "api": "openai-completions", "apiKey": "sk-x", "models": [model]}
    place.write(".pi/agent/models.json", json.dumps({"providers": {"scripted": provider}}))
    program = str(modules / "@mariozechner/pi-coding-agent/dist/cli.js")
    return Command((node(), program, "--provider", "scripted", "--model", MODEL, "-p", TASK), {"PI_OFFLINE": "1"})


def _kilo(place: Place) -> Command:
    modules = npm_modules("kilo-7.7.7", "@kilocode/cli@7.7.7", "@kilocode/cli-linux-x64@7.7.7")
    program = str(next(path for path in modules.glob("@kilocode/cli-*/bin/kilo") if os.access(path, os.X_OK)))
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "sk-x"},
        "models": {MODEL: {"limit": {"context": 200_000, "output": 8_000}}},
    }
    settings = {"model": f"scripted/{MODEL}", "small_model": f"scripted/{MODEL}", "provider": {"scripted": provider}}
    place.write(".config/kilo/kilo.json", json.dumps({**settings, "permission": {"bash": "allow"}}))
    offline = {"KILO_DISABLE_AUTOUPDATE": "1", "KILO_DISABLE_MODELS_FETCH": "1", "KILO_TELEMETRY_LEVEL": "off"}
    return Command((program, "run", "--auto", TASK), offline)


def _sdk(file: str, folder: str, *packages: str, since: tuple[int, int] = (3, 11)) -> Callable[[Place], Command]:
    """Return how a program of ours on one of the libraries is run."""

    def prepare(place: Place) -> Command:
        python = python_with(folder, *packages, since=since)
        return Command((python, str(SDK / file), place.url, TASK), QUIET)

    return prepare


def _ai_sdk(place: Place) -> Command:
    modules = npm_modules("ai-sdk-7.0.169", *AI_SDK)
    program = place.home / "agent.mjs"
    program.write_text((SDK / "ai_sdk_agent.mjs").read_text())
    (place.home / "node_modules").symlink_to(modules)
    return Command((node(), str(program), place.url, TASK))


def _plain(tool: str) -> Shell:
    return lambda command: (tool, {"command": command})


def _described(tool: str) -> Shell:
    return lambda command: (tool, {"command": command, "description": "one step"})


def _foreground(tool: str) -> Shell:
    return lambda command: (tool, {"command": command, "is_background": False})


AGENTS = (
    AgentCase("kimi-cli", _kimi_cli, _plain("Shell")),
    AgentCase(
        "kimi-code",
        _kimi_code,
        _plain("Bash"),
        "kimi",
        own_tools=own_tools.file_tools("Read", "Grep", "Edit", "Write", "path"),
    ),
    AgentCase(
        "opencode",
        _opencode,
        _described("bash"),
        "opencode",
        own_tools=own_tools.file_tools("read", "grep", "edit", "write", "filePath", ("oldString", "newString")),
    ),
    AgentCase(
        "cline",
        _cline,
        lambda command: ("run_commands", {"commands": [command]}),
        "cline",
        own_tools=own_tools.cline_tool,
    ),
    AgentCase("continue", _continue, _plain("Bash"), "continue", own_tools=own_tools.continue_tool),
    AgentCase(
        "qwen",
        _qwen,
        _foreground("run_shell_command"),
        "qwen",
        own_tools=own_tools.file_tools("read_file", "grep_search", "edit", "write_file"),
    ),
    AgentCase("claude", _claude, _described("Bash"), wire=Wire.MESSAGES, own_tools=own_tools.CLAUDE_TOOLS),
    AgentCase(
        "claude-bedrock",
        _claude_on("BEDROCK", AWS_REGION="us-east-1"),
        _described("Bash"),
        wire=Wire.MESSAGES,
        cloud="bedrock",
        own_tools=own_tools.CLAUDE_TOOLS,
    ),
    AgentCase(
        "claude-vertex",
        _claude_on("VERTEX", CLOUD_ML_REGION="us-east5", ANTHROPIC_VERTEX_PROJECT_ID="p"),
        _described("Bash"),
        wire=Wire.MESSAGES,
        cloud="vertex",
        own_tools=own_tools.CLAUDE_TOOLS,
    ),
    AgentCase(
        "claude-foundry",
        _claude_on("FOUNDRY", "/anthropic"),
        _described("Bash"),
        wire=Wire.MESSAGES,
        cloud="foundry",
        own_tools=own_tools.CLAUDE_TOOLS,
    ),
    AgentCase("codex", _codex(""), _script, wire=Wire.RESPONSES, own_tools=own_tools.patch_script),
    AgentCase(
        "codex-gpt-5.5",
        _codex("gpt-5.5"),
        lambda command: ("exec_command", {"cmd": command}),
        wire=Wire.RESPONSES,
        own_tools=own_tools.patch,
    ),
    AgentCase(
        "gemini",
        _gemini,
        _described("run_shell_command"),
        "gemini",
        wire=Wire.GEMINI,
        cloud="gemini",
        own_tools=own_tools.gemini_tool,
    ),
    AgentCase(
        "gemini-login",
        _gemini_login,
        _described("run_shell_command"),
        wire=Wire.GEMINI,
        cloud=CODE_ASSIST,
        own_tools=own_tools.gemini_tool,
    ),
    AgentCase("copilot", _copilot, _described("bash"), reads_back=False, own_tools=own_tools.copilot_tool),
    AgentCase("pi", _pi, _plain("bash"), own_tools=own_tools.pi_tool),
    AgentCase(
        "kilo",
        _kilo,
        _described("bash"),
        own_tools=own_tools.file_tools("read", "grep", "edit", "write", "filePath", ("oldString", "newString")),
    ),
    AgentCase(
        "mini-swe-agent",
        _mini_swe,
        _plain("bash"),
        ending=("bash", {"command": f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo '{DONE}'"}),
    ),
    AgentCase(
        "aider",
        _aider,
        _plain(""),
        observed=b"I ran this command",
        reads_back=False,
        replies=("notes.txt\n```\nI look.\n```\n", f"{DONE}\n\nmade.txt\n```\nfinished\n```\n"),
    ),
    AgentCase(
        "openhands", _sdk("openhands_agent.py", "openhands-1.57.0", *OPENHANDS, since=(3, 12)), _plain("terminal")
    ),
    AgentCase("langgraph", _sdk("langgraph_agent.py", "langgraph-1.2.20", *LANGGRAPH), _plain("shell")),
    AgentCase("pydantic-ai", _sdk("pydantic_ai_agent.py", "pydantic-ai-2.66.0", PYDANTIC_AI), _plain("shell")),
    AgentCase("llama-index", _sdk("llama_index_agent.py", "llama-index-0.14.25", *LLAMA_INDEX), _plain("shell")),
    AgentCase(
        "crewai", _sdk("crewai_agent.py", "crewai-1.15.30", "crewai==1.15.30"), _plain("shell"), reads_back=False
    ),
    AgentCase(
        "smolagents",
        _sdk("smolagents_agent.py", "smolagents-1.26.0", "smolagents[openai]==1.26.0"),
        _plain("shell"),
        ending=("final_answer", {"answer": DONE}),
        observed=b'"text":"Observation:',
    ),
    AgentCase("ai-sdk", _ai_sdk, _plain("shell")),
)
