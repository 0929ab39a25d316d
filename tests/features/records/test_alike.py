"""Records that no format declares."""

import pytest

from kimi_proxy.core.prune import Options, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.records.read import read

LOCK = [f'[[package]]\nname = "part-{n}"\nversion = "1.{n}.0"\nsource = "registry"\n' for n in range(80)]
LOCK[41] = '[[package]]\nname = "tls-core"\nversion = "1.41.0"\nsource = "git+https://git.example/fork"\n'
SETTINGS = [f"[db.{n}]\nhost = h{n}.example\nport = 5432\nssl = on\n" for n in range(80)]
SETTINGS[41] = "[db.41]\nhost = h41.example\nport = 5432\nssl = off\n"
PING = [f"64 bytes from 192.0.2.9: icmp_seq={n} ttl=57 time={10 + n % 3}.{n % 10} ms" for n in range(300)]
PING[201] = "64 bytes from 192.0.2.9: icmp_seq=201 ttl=57 time=2417.3 ms"
FIGURES = [f'requests_total{{route="/{n}/page",code="200"}} {1000 + n % 90}' for n in range(200)]
FIGURES[111] = 'requests_total{route="/login",code="503"} 88123'
DUMP = [f"{n * 16:08x}  {'00 ' * 16} |................|" for n in range(200)]
DUMP[120] = "00000780  50 4b 03 04 14 00 08 08 08 00 6f 5a 63 5c 00 00  |PK........oZc...|"


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("\n".join(LOCK), "git+https://git.example/fork"),
        ("\n".join(SETTINGS), "ssl = off"),
        ("\n".join(PING), "icmp_seq=201"),
        ("\n".join(FIGURES), "/login"),
        ("\n".join(DUMP), "50 4b 03 04"),
    ],
)
def test_the_record_that_differs_stays(text: str, needle: str):
    options = Options(0.7, 0, 0, annotate_lines=False, include_markers=True)
    pruned = engine.prune(Question(text, "Is anything odd here?", "code", options), "prn_0123456789abcdef")

    assert read(text) is not None
    assert needle in pruned.text
    assert len(pruned.text) < 0.5 * len(text)


PAGE = [f"Point {n} of a page that has as many words in each of its lines" for n in range(60)]
LOG = [f"2026-03-01 10:00:{n % 60:02} INFO request {n} was served in {n} ms" for n in range(60)]
CODE = [f"def f{n}(x):\n    y = x + {n}\n    return y\n" for n in range(40)]


CALLS = [f"value_{n} = compute(value_{n - 1}, factor={n})" for n in range(60)]


@pytest.mark.parametrize("lines", [PAGE, LOG, CODE, CALLS])
def test_pages_logs_and_code_are_no_records(lines: list[str]):
    assert read("\n".join(lines)) is None
