"""What three agents do: one hunts a fault in a parser, one renames a function everywhere, one reads a server's log."""

from collections.abc import Sequence

from tests.recordings.agent import Step, ask, bash, done, edit, read
from tests.support.conversations import User

PYTEST = "python -m pytest --no-header -p no:cacheprovider -p no:randomly"
SSE = "src/kimi_proxy/core/sse.py"

# The fault that is put into the project before the first agent begins.
SOUND = '_LINE_END.split(b"".join((*self._partial, piece)))'
FAULTY = "_LINE_END.split(piece)"

DEBUGGING: Sequence[User | Step] = (
    ask(
        "Since this morning some streamed answers come out garbled: words are missing where two network packets meet. "
        "Run the tests of tests/core, find out why, mend it, and add a test that would have told us at once."
    ),
    bash("git log --oneline | head -5; git status --short; ls src/kimi_proxy/core src/kimi_proxy/core/chat tests/core"),
    bash(f"{PYTEST} tests/core -v", "I run the tests first.", 40),
    bash(f"{PYTEST} tests/core/test_sse.py -q", "Events in slices fail. Those tests alone, in full.", 15),
    read("tests/core/test_sse.py"),
    read(SSE),
    bash("grep -rn 'Events()' src tests | head -40; grep -rn '_partial' src tests"),
    read("src/kimi_proxy/core/chat/frames.py"),
    read("src/kimi_proxy/core/chat/observer.py"),
    read("src/kimi_proxy/core/chat/whole.py"),
    read("src/kimi_proxy/proxy/mcp/streamable.py"),
    bash(
        "python - <<'E'\n"
        "from kimi_proxy.core.sse import Events\n"
        "e = Events()\n"
        "print(list(e.feed(b'data: he')), e.waiting_bytes)\n"
        "print(list(e.feed(b'llo\\n\\n')), e.waiting_bytes)\n"
        "E",
        "`_lines` keeps the beginning of a line in `_partial`, and nothing reads it again. I make sure.",
    ),
    bash("git log -p -3 -- src/kimi_proxy/core/sse.py | head -150"),
    edit(
        SSE,
        "        *lines, rest = _LINE_END.split(piece)\n",
        '        *lines, rest = _LINE_END.split(b"".join((*self._partial, piece)))\n',
        "What waits has to come before the piece when lines are split.",
    ),
    bash(f"{PYTEST} tests/core/test_sse.py -q", after_s=15),
    edit(
        "tests/core/test_sse.py",
        "def test_byte_by_byte_gives_the_same_events():\n",
        "def test_a_word_that_is_cut_in_two_is_read_as_one():\n"
        "    assert read(b'data: he', b'llo\\n\\n') == [Event(b'hello')]\n"
        "\n\n"
        "def test_byte_by_byte_gives_the_same_events():\n",
        "Now a test for just this.",
    ),
    bash(f"{PYTEST} tests/core -v", after_s=40),
    bash("git diff"),
    done(
        "Mended. `Events._lines` in src/kimi_proxy/core/sse.py keeps the beginning of an unfinished line in "
        "`self._partial`, "
        "but split only the new piece: `_LINE_END.split(piece)`. Whatever stood before the cut was lost. It joins both "
        "again, tests/core/test_sse.py has a test for a word that is cut in two, and all of tests/core passes."
    ),
    ask("Did the tests of the chat streams notice too? They cut streams at every byte, I thought."),
    read("tests/core/chat/test_streams.py"),
    read("tests/core/chat/streams.py"),
    bash("grep -n 'cut\\|every\\|byte' -r tests/core/chat | head -60"),
    read("src/kimi_proxy/core/chat/seen.py"),
    bash(
        f"git stash -q -- src; {PYTEST} tests/core/chat -v --tb=line | tail -200; git stash pop -q",
        "I look with the fault in place.",
        40,
    ),
    done(
        "They did: with the fault in place the streams of all three APIs fail when they are cut. Nothing is "
        "missing there."
    ),
)

_RENAMED = (
    "src/kimi_proxy/core/chat/anthropic_messages.py",
    "src/kimi_proxy/core/chat/openai_chat.py",
    "src/kimi_proxy/core/chat/openai_responses.py",
    "src/kimi_proxy/core/chat/seen.py",
    "src/kimi_proxy/core/chat/request.py",
    "src/kimi_proxy/core/chat/edit.py",
    "src/kimi_proxy/features/sanitizer/offer.py",
    "src/kimi_proxy/features/sessions.py",
)


def _renaming(path: str) -> tuple[Step, ...]:
    return (
        read(path),
        bash(f"sed -i 's/\\bobject_of\\b/members_of/g' {path} && grep -n 'members_of' {path}"),
    )


REFACTORING: Sequence[User | Step] = (
    ask(
        "There are two functions called object_of: one in core/chat/page.py, one in features/recall/read.py. "
        "Rename the one "
        "of page.py to members_of everywhere, since that is what it gives. Read each file before you change it, "
        "keep the "
        "other one as it is, and run the tests."
    ),
    bash("grep -rn '\\bobject_of\\b' src tests"),
    read("src/kimi_proxy/core/chat/page.py"),
    read("src/kimi_proxy/features/recall/read.py"),
    edit(
        "src/kimi_proxy/core/chat/page.py",
        "def object_of(raw: Raw | None) -> Object:",
        "def members_of(raw: Raw | None) -> Object:",
        "I begin with the definition.",
    ),
    *(step for path in _RENAMED for step in _renaming(path)),
    bash("grep -rn '\\bobject_of\\b' src tests", "What is left should be the other function only."),
    read("src/kimi_proxy/features/recall/messages.py"),
    read("src/kimi_proxy/features/recall/responses.py"),
    read("src/kimi_proxy/features/recall/bodies.py"),
    bash(f"{PYTEST} tests/core/chat tests/features/recall tests/features/test_sessions.py -v", after_s=60),
    read("tests/core/chat/test_request.py"),
    bash("git diff --stat; git diff", "I look at all of it once more."),
    edit(
        "src/kimi_proxy/core/chat/page.py",
        '    """The members of an object; none if `raw` is something else."""',
        '    """The members of an object, as views; none if `raw` is something else."""',
    ),
    bash(f"{PYTEST} tests/core tests/features/recall tests/features/sanitizer -q", after_s=90),
    done(
        "Renamed. `object_of` of src/kimi_proxy/core/chat/page.py is `members_of` now, in page.py and the eight "
        "files that "
        "import it; `object_of` of src/kimi_proxy/features/recall/read.py is untouched. The tests pass."
    ),
    ask("Good. Are there other pairs of functions in core/chat and features/recall that share a name? Only tell me."),
    bash(
        "grep -rhn '^def \\|^    def ' src/kimi_proxy/core/chat src/kimi_proxy/features/recall | sed 's/(.*//' "
        "| sort -k2 | head -200"
    ),
    bash("cat src/kimi_proxy/features/recall/chat.py src/kimi_proxy/core/chat/openai_chat.py"),
    done("`text_of` is another: page.py gives the text of a raw string, read.py the text of a decoded value, or none."),
)

LOG_HUNT: Sequence[User | Step] = (
    ask(
        "Jobs of our worker began to fail this morning, and nobody changed the code. worker.log has the whole "
        "day, worker.py "
        "is what runs. Find the cause: what happened when, with the lines that prove it. Change nothing."
    ),
    bash("ls -l; wc -l worker.log; head -n 60 worker.log"),
    bash("tail -n 250 worker.log"),
    read("worker.py"),
    bash(
        "grep -c ' ERROR ' worker.log; grep ' ERROR ' worker.log | head -n 120",
        "First the errors, from the first one on.",
    ),
    bash(
        "grep ' ERROR ' worker.log | sed 's/.*kind=\\([a-z]*\\).*error=\\([a-z_]*\\).*/\\1 \\2/' | sort | uniq "
        "-c | sort -rn | head"
    ),
    bash("grep -n -m1 ' ERROR ' worker.log; grep -n ' WARN ' worker.log | head -n 150"),
    bash(
        "first=$(grep -n -m1 ' ERROR ' worker.log | cut -d: -f1); sed -n \"$((first-160)),$((first+40))p\" worker.log",
        "What came just before the first error.",
    ),
    bash("grep -n 'pool' worker.log | head -n 200"),
    bash("grep -n 'config' worker.log", "The pool gave out. Did anybody change its size?"),
    bash(
        "line=$(grep -n 'pool.max=2' worker.log | head -1 | cut -d: -f1); sed -n "
        '"$((line-120)),$((line+120))p" worker.log'
    ),
    bash(
        "awk '{print substr($1,1,13)}' worker.log | sort | uniq -c; for h in 08 09 10 11 12; do echo $h $(grep "
        '-c "T$h:.* ERROR " worker.log); done'
    ),
    bash("job=$(grep -m1 'error=pool_timeout' worker.log | grep -o 'job=[0-9a-f]*'); grep -n \"$job\" worker.log"),
    bash(
        "grep -n 'kind=invoice' worker.log | sed -n '1,200p'",
        "One kind of job at a time: invoices hold a connection for longest.",
    ),
    bash("grep -n 'kind=thumbnail' worker.log | grep -v INFO | head -n 120"),
    bash("sed -n '1,200p' worker.log | grep -n 'started\\|pool'"),
    done(
        "The cause is a reload of the configuration, not the code. At 10:14 the worker logged that config was "
        "reloaded from "
        "/etc/worker/override.toml with pool.max=2 where it had been 16 since the start. From then on connections are "
        "waited for, first WARN lines about waiting for the pool, and since 10:15 jobs end with "
        "error=pool_timeout after "
        "5000 ms; invoices most, because they hold a connection for longest. Before the reload there is not one such "
        "line. Take the override away, or set pool.max to 16 in it, and reload."
    ),
    ask("Which jobs failed for good, without a retry that worked? The ids of the invoices among them, please."),
    bash("grep 'gave up' worker.log | head -n 200"),
    bash("grep 'gave up' worker.log | grep kind=invoice | grep -o 'job=[0-9a-f]*' | sort"),
    done("{invoices}"),
)

# A small server of jobs whose log is written by running it.
WORKER = '''\
"""Runs jobs that each need a connection of a pool; the clock is its own, so that a day takes a second."""

import heapq
import logging
import random
import sys

KINDS = {"thumbnail": (0.2, 0.9), "mail": (0.1, 0.4), "invoice": (1.5, 6.0), "report": (0.8, 3.0)}
POOL_TIMEOUT_S = 5.0
MAX_ATTEMPTS = 3

log = logging.getLogger("worker")


class Clock:
    def __init__(self):
        self.now = 8 * 3600.0

    def __str__(self):
        hours, rest = divmod(self.now, 3600)
        return f"2026-03-02T{int(hours):02}:{int(rest // 60):02}:{rest % 60:06.3f}Z"


class Pool:
    """Connections that are lent for a while."""

    def __init__(self, size):
        self.size = size
        self.lent = []  # when each comes back

    def wait_s(self, now):
        while self.lent and self.lent[0] <= now:
            heapq.heappop(self.lent)
        if len(self.lent) < self.size:
            return 0.0
        return sorted(self.lent)[len(self.lent) - self.size] - now

    def lend(self, until):
        heapq.heappush(self.lent, until)


class Worker:
    def __init__(self, clock, pool, random):
        self.clock, self.pool, self.random = clock, pool, random
        self.done = 0

    def run(self, job, kind, attempt=1):
        say = f"job={job} kind={kind} attempt={attempt}"
        log.info("%s worker-%d %s picked up", self.clock, self.random.randrange(8), say)
        wait = self.pool.wait_s(self.clock.now)
        if wait > POOL_TIMEOUT_S:
            log.error("%s pool %s error=pool_timeout no connection within 5000 ms (%d lent of %d)",
                      self.clock, say, len(self.pool.lent), self.pool.size)
            return self.retry(job, kind, attempt)
        if wait > 0.5:
            log.warning("%s pool %s waits %d ms for a connection", self.clock, say, wait * 1000)
        low, high = KINDS[kind]
        took = self.random.uniform(low, high)
        self.pool.lend(self.clock.now + wait + took)
        self.done += 1
        log.info("%s db %s connection lent after %d ms", self.clock, say, wait * 1000)
        log.info("%s worker %s done in %d ms", self.clock, say, (wait + took) * 1000)

    def retry(self, job, kind, attempt):
        if attempt < MAX_ATTEMPTS:
            self.clock.now += 0.3
            return self.run(job, kind, attempt + 1)
        log.error("%s worker job=%s kind=%s gave up after %d attempts error=gave_up", self.clock, job, kind, attempt)


def main():
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    for level, name in ((logging.INFO, "INFO"), (logging.WARNING, "WARN"), (logging.ERROR, "ERROR")):
        logging.addLevelName(level, name)
    logging.getLogger().handlers[0].setFormatter(Levelled())
    clock, chance = Clock(), random.Random(20260302)
    worker = Worker(clock, Pool(16), chance)
    log.info("%s main started pool.max=16 workers=8", clock)
    while clock.now < 12 * 3600:
        clock.now += chance.expovariate(1 / 9.0)
        if worker.pool.size == 16 and clock.now > 10 * 3600 + 14 * 60:
            worker.pool.size = 2
            log.info("%s main config reloaded from /etc/worker/override.toml pool.max=2 (was 16)", clock)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            worker.run(f"{chance.getrandbits(32):08x}", chance.choice(tuple(KINDS)))
        if chance.random() < 0.05:
            log.info("%s gc heap=%d MB live=%d MB pause=%d ms", clock, *(chance.randrange(80, 400) for _ in range(3)))


class Levelled(logging.Formatter):
    def format(self, record):
        at, _, rest = record.getMessage().partition(" ")
        return f"{at} {record.levelname} {rest}"


if __name__ == "__main__":
    main()
'''
