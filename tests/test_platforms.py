"""Windows and macOS, as far as another system shows: what is imported, which functions exist, how files are written."""

import ast
import ctypes
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from ctypes import c_uint32, c_uint64, c_void_p, cast
from pathlib import Path, PureWindowsPath

import pytest
from tests.support.deep import deep, too

from kimi_proxy.features.editing import jsonc, toml
from kimi_proxy.proxy import windows
from kimi_proxy.proxy.windows import ExtendedLimits, Job
from kimi_proxy.services.configuration import load

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
# A script of its own, which is started on Unix only.
UNIX_SCRIPT = "proxy/process_group.py"

# Loads everything for real, so that what others need of this system is there; then hides what the other system lacks,
# and loads our modules anew, each by itself.
IMPORTS = """
import importlib, json, os, pkgutil, select, signal, socket, sys
import kimi_proxy
names = sorted(found.name for found in pkgutil.walk_packages(kimi_proxy.__path__, "kimi_proxy."))
names = [name for name in names if not name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
platform, missing, attributes = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
sys.platform = platform

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in missing:
            raise ImportError(f"there is no {name} on {platform}")

sys.meta_path.insert(0, Hidden())
for name in missing:
    sys.modules.pop(name, None)
for module in (os, signal, select, socket):
    for name in attributes:
        if hasattr(module, name):
            delattr(module, name)
for name in [name for name in sys.modules if name.partition(".")[0] == "kimi_proxy"]:
    del sys.modules[name]
problems = {}
for name in names:
    try:
        importlib.import_module(name)
    except Exception as e:
        problems[name] = f"{type(e).__name__}: {e}"
print(json.dumps([len(names), problems]))
"""
UNIX_MODULES = ("resource", "pwd", "grp", "fcntl", "termios", "tty", "pty", "syslog", "posix", "uvloop")
UNIX_NAMES = (
    *(
        "fork",
        "killpg",
        "getuid",
        "geteuid",
        "getegid",
        "getgid",
        "setsid",
        "getpgrp",
        "tcgetpgrp",
        "ctermid",
        "fchmod",
    ),
    *("fchown", "chown", "posix_spawn", "posix_spawnp", "POSIX_SPAWN_OPEN", "WNOHANG", "WUNTRACED", "WIFSTOPPED"),
    *("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "set_blocking", "pidfd_open", "sysconf"),
    *("SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGCONT", "SIGCHLD", "SIGPIPE", "SIGXFSZ"),
    *("setitimer", "ITIMER_REAL", "ITIMER_PROF", "poll", "epoll", "POLLIN", "POLLHUP", "AF_NETLINK", "AF_UNIX"),
)
ELSEWHERE = ("core", "features", "properties", "cli")  # the tests that the workflow runs on other systems
LACKS = {
    "win32": (UNIX_MODULES, UNIX_NAMES),
    "darwin": (("spwd",), ("AF_NETLINK", "epoll", "pidfd_open", "O_TMPFILE", "memfd_create", "prctl")),
}


@pytest.mark.parametrize("platform", ["win32", too("darwin")])
def test_every_module_loads_where_other_systems_lack_what_unix_has(platform: str):
    missing, attributes = LACKS[platform]
    command = [sys.executable, "-c", IMPORTS, platform, json.dumps(missing), json.dumps(attributes)]
    # Windows alone has these.
    fakes = "import signal; signal.SIGBREAK = 21; signal.CTRL_BREAK_EVENT = 1\n" if platform == "win32" else ""
    command[2] = fakes + IMPORTS
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    count, problems = json.loads(done.stdout.splitlines()[-1])
    assert count > 200
    assert problems == {}


def test_the_tests_that_run_on_windows_import_nothing_that_it_lacks():
    waiting = [path for folder in ELSEWHERE for path in (ROOT / "tests" / folder).rglob("*.py")]
    seen: set[Path] = set()
    problems: list[str] = []
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in _imports(path):
            problems += [f"{path.relative_to(ROOT)}: {name}"] if name.partition(".")[0] in UNIX_MODULES else []
            imported = ROOT / f"{name.replace('.', '/')}.py"
            waiting += [imported] if name.startswith("tests.") and imported.exists() else []

    assert f"pytest -n 4 {' '.join(f'tests/{folder}' for folder in ELSEWHERE)}" in WORKFLOW.read_text("utf-8")
    assert len(seen) > 100
    assert problems == []


def _imports(path: Path) -> Iterator[str]:
    """The modules that a file imports when it is loaded."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = ".".join(path.relative_to(ROOT).parts[: -node.level]) if node.level else ""
            module = ".".join(part for part in (folder, node.module) if part)
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))


@deep("a second type check of everything: 20 s and more")
@pytest.mark.parametrize("platform", LACKS)
def test_no_function_is_called_that_another_system_lacks(platform: str, tmp_path: Path):
    """The types of Python's library say what each system has; a use of the rest must ask for the system first."""
    command = [sys.executable, "-m", "mypy", "--platform", platform, "--no-warn-unreachable", "--cache-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line and UNIX_SCRIPT not in line]

    assert done.returncode in (0, 1), done.stderr
    assert errors == []


class ScriptedKernel:
    """A kernel32 that notes its calls; `refuses` names the one that fails."""

    def __init__(self, refuses: str = "", exit_code: int = 259) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.limits = ExtendedLimits()
        self._refuses = refuses
        self._exit_code = exit_code

    def _noted(self, name: str, *values: object, answer: int = 1) -> int:
        self.calls.append((name, *values))
        return 0 if name == self._refuses else answer

    def CreateJobObjectW(self, security: None, name: None) -> int:
        return self._noted("CreateJobObjectW", answer=0x1_0000_0001)

    def SetInformationJobObject(self, job: c_void_p, kind: int, limits: object, size: int) -> int:
        ctypes.memmove(ctypes.addressof(self.limits), limits, size)
        return self._noted("SetInformationJobObject", job.value, kind, size)

    def AssignProcessToJobObject(self, job: c_void_p, process: c_void_p) -> int:
        return self._noted("AssignProcessToJobObject", job.value, process.value)

    def TerminateJobObject(self, job: c_void_p, code: int) -> int:
        return self._noted("TerminateJobObject", job.value, code)

    def OpenProcess(self, access: int, inherit: int, pid: int) -> int:
        return self._noted("OpenProcess", hex(access), pid, answer=7)

    def GetExitCodeProcess(self, process: c_void_p, code: object) -> int:
        cast(code, ctypes.POINTER(c_uint32))[0] = self._exit_code
        return self._noted("GetExitCodeProcess", process.value)

    def GetProcessTimes(self, process: c_void_p, created: object, exited: object, kernel: object, user: object) -> int:
        cast(created, ctypes.POINTER(c_uint64))[0] = 133_700_000_000_000_000
        return self._noted("GetProcessTimes", process.value)

    def CloseHandle(self, handle: c_void_p) -> int:
        return self._noted("CloseHandle", handle.value)


def test_a_job_ends_all_that_a_process_started_and_with_us():
    kernel = ScriptedKernel()
    job = Job(4242, kernel)
    job.terminate()
    job.close()
    job.close()
    job.terminate()

    assert kernel.limits.basic.flags == 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
    assert kernel.calls == [
        ("CreateJobObjectW",),
        ("SetInformationJobObject", 0x1_0000_0001, 9, 144),
        ("OpenProcess", "0x101", 4242),
        ("AssignProcessToJobObject", 0x1_0000_0001, 7),
        ("CloseHandle", 7),
        ("TerminateJobObject", 0x1_0000_0001, 1),
        ("CloseHandle", 0x1_0000_0001),
    ]


@pytest.mark.parametrize(
    "refuses", ["CreateJobObjectW", "SetInformationJobObject", "OpenProcess", "AssignProcessToJobObject"]
)
def test_a_job_that_cannot_be_made_leaves_no_handle(refuses: str):
    kernel = ScriptedKernel(refuses)

    with pytest.raises(OSError, match="job object"):
        Job(4242, kernel)
    opened = sum(name in ("CreateJobObjectW", "OpenProcess") and name != refuses for name, *_ in kernel.calls)
    assert sum(name == "CloseHandle" for name, *_ in kernel.calls) == opened


@pytest.mark.parametrize(
    ("kernel", "began"),
    [
        (ScriptedKernel(), "133700000000000000"),
        (ScriptedKernel(exit_code=1), ""),
        (ScriptedKernel("OpenProcess"), ""),
        (ScriptedKernel("GetProcessTimes"), ""),
    ],
    ids=["runs", "has ended", "is unknown", "cannot be asked"],
)
def test_a_process_is_known_by_when_it_began(kernel: ScriptedKernel, began: str):
    assert windows.born(4242, kernel) == began
    opened = sum(call == ("OpenProcess", "0x1000", 4242) for call in kernel.calls)
    assert sum(name == "CloseHandle" for name, *_ in kernel.calls) == (
        0 if kernel.calls[-1][0] == "OpenProcess" else opened
    )


def test_a_private_folder_is_for_its_user_and_the_system_alone(tmp_path: Path):
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> int:
        commands.append(command)
        return 0

    assert windows.restrict(tmp_path, {"USERDOMAIN": "DESK", "USERNAME": "Ada Lovelace"}, run)
    grants = ["DESK\\Ada Lovelace:(OI)(CI)F", "*S-1-5-18:(OI)(CI)F"]
    assert commands == [["icacls", str(tmp_path), "/inheritance:r", "/grant:r", *grants, "/q"]]


@pytest.mark.parametrize(("env", "code"), [({}, 0), ({"USERNAME": "ada"}, 5)])
def test_a_folder_that_cannot_be_made_private_is_reported(env: dict[str, str], code: int, tmp_path: Path, caplog):
    assert not windows.restrict(tmp_path, env, lambda command: code)
    assert "a folder keeps its access list" in caplog.text


def test_settings_that_an_editor_of_windows_wrote_are_read(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_bytes("\ufeff[proxy]\r\nport = 8123\r\n\r\n[memory]\r\ninject = true\r\n".encode())
    (tmp_path / ".env").write_bytes("\ufeffexport KEY_OF_A=one\r\n# two\r\nKEY_OF_B='three'\r\n".encode())
    settings = load({"KIMI_PROXY_CONFIG": str(file), "KIMI_PROXY_HOME": str(tmp_path / "home")})

    assert (settings.config.proxy.port, settings.config.memory.inject) == (8123, True)
    assert settings.from_env_file == ("KEY_OF_A", "KEY_OF_B")


def test_a_settings_file_keeps_its_line_ends_when_one_value_changes():
    before = "# mine\r\n[sanitizer]\r\nenabled = true  # for now\r\n\r\n[proxy]\r\nport = 8123\r\n"
    after = toml.merge(before, ("sanitizer",), {"enabled": False})

    assert after == before.replace("true", "false")


PROGRAM = PureWindowsPath(r"C:\Users\Ada Lovelace\new tools\kimi-proxy.exe")


def test_the_path_of_a_program_on_windows_goes_into_a_client_s_json_with_its_line_ends():
    before = '{\r\n  // mine\r\n  "mcpServers": {\r\n    "a": {"command": "b"}\r\n  }\r\n}\r\n'
    after = jsonc.put(before, ("mcpServers", "kimi"), {"command": str(PROGRAM), "args": ["tools", "--stdio"]})

    assert jsonc.get(after, ("mcpServers", "kimi", "command")) == str(PROGRAM)
    assert "\n" not in after.replace("\r\n", "")
    assert jsonc.remove(after, ("mcpServers", "kimi")) == before


def test_the_path_of_a_program_on_windows_goes_into_a_client_s_toml():
    after = toml.merge("# mine\r\n", ("mcp_servers", "kimi"), {"command": str(PROGRAM)})

    assert tomllib.loads(after)["mcp_servers"]["kimi"]["command"] == str(PROGRAM)
    assert after.startswith("# mine\r\n")


@pytest.mark.parametrize("arguments", [["--help"], ["models"]], ids=" ".join)
def test_commands_write_to_a_console_of_an_old_code_page(arguments: list[str], tmp_path: Path):
    env = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0", "KIMI_PROXY_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "kimi_proxy", *arguments], env=env, capture_output=True, timeout=120, check=False
    )

    assert (done.returncode, b"UnicodeEncodeError" in done.stderr) == (0, False), done.stderr
    assert done.stdout
