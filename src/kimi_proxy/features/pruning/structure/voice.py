"""Who wrote a log: a build that ran once, or a system that never ends."""

import re
from collections.abc import Sequence

from kimi_proxy.features.pruning.template import templates

SAMPLE_LINES = 300

_CLOCK = re.compile(
    r"""(?:
    [A-Z][a-z]{2}\ +\d{1,2}\ \d\d:\d\d:\d\d\ | \d{4}[-/.]\d\d[-/.]\d\d[ T,-]\d?\d:\d\d
    | \d{2,4}[-/]\d\d[-/]\d\d\ \d\d:\d\d | \d\d-\d\d\ \d\d:\d\d:\d\d | \[\w{3}\ \w{3}\ \d\d\ | \d{6}\ \d{6}\
    | \d{8}-\d | -?\ ?\d{9,13}\ | \[\d\d\.\d\d\ \d\d:\d\d | [\d.]{7,15}\ -
    )""",
    re.VERBOSE,
)
# Runners stamp every line of a build to a ten-millionth of a second.
_RUNNER_CLOCK = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6,7}Z ")
_BUILD = re.compile(
    r"""(?:\$\ |travis_|\#\#\[|::group|\[INFO\]|\[ERROR\]|\[WARNING\]|Run\ |Step\ \d|Collecting\ |Get:\d|npm\ |yarn\
    |gem\ |Cloning\ |HEAD\ is\ now|Building\ |\[\s*\d+%\]|test_?\w*[\ :(]|Compiling\ |Download|=====|collected\ \d
    |go:\ |ok\s+\t?\S+\s|Receiving\ |remote:\ |Unpacking\ |Setting\ up\ |Preparing\ |Using\ |Installing\ |[✓✔✗]|\s+[✓✔✗]
    |g?make(?:\[|:)|\s*(?:CC|CXX|LD)\ |gcc\ |g\+\+\ |--\ |checking\ |configure:)""",
    re.VERBOSE,
)


# What every runner says at least once or twice, however quiet the build.
_RUNNER = (
    "$ ", "travis_", "##[", "::group", "The command ", "Done. Your build", "[Pipeline]", "Cloning into", "git clone",
    "remote: ", "HEAD is now", "Worker information", "Build system information", "Running on ", "Job succeeded",
    "Job failed", "+ ", "> ",
)  # fmt: skip


def voice(plain: Sequence[str], lines: Sequence[str]) -> str:
    """ "ci", "system", or "" when there is no telling. `plain` are the `lines` without their stamps."""
    step = max(1, len(lines) // SAMPLE_LINES)
    rows = [row for row in range(0, len(lines), step) if plain[row].strip()]
    if not rows:
        return ""
    built = sum(1 for row in rows if _RUNNER_CLOCK.match(lines[row]) or _BUILD.match(plain[row])) / len(rows)
    clocked = sum(1 for row in rows if _CLOCK.match(lines[row])) / len(rows)
    if built >= 0.05 and built > clocked - 0.7:
        return "ci"
    if clocked >= 0.7:
        return "system"
    if sum(1 for line in plain if line.startswith(_RUNNER)) >= 2:
        return "ci"
    kinds = len(set(templates(plain[row][:120] for row in rows))) / len(rows)
    return "system" if kinds < 0.3 and len(rows) > 50 else ""
