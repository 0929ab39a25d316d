"""Mine cases from repositories, learn from them, write the model, and print how well it does on others."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import figures
import fitting
import halves
import logbook
import selection
import used
from lessons import Lesson, lessons, of_logs
from logbook import Entry

from evaluation.cases import Case
from evaluation.mining import Repository, mine
from kimi_proxy.features.pruning import model

MODEL = Path(__file__).parents[2] / "src/kimi_proxy/features/pruning" / model.NAME


def main() -> None:
    asked = _asked()
    entries = logbook.entries_of(asked.runs, asked.seed) if asked.runs else []
    if not asked.only_judge:
        learned = fitting.fit(
            [*_lessons(asked.repositories, asked.cases, asked.seed), *_logs(entries, asked), *_used(asked)], asked.seed
        )
        raw = model.write({**_kept(asked.out), **learned})
        if len(raw) > model.MAX_BYTES:
            raise SystemExit(f"the model has {len(raw):,} bytes: plant fewer trees")
        asked.out.write_bytes(raw)
        print(f"{asked.out}: {len(raw):,} bytes", flush=True)
    scorers = model.load(asked.out.read_bytes())
    judged = [case for path in asked.judge for case in _mined(path, asked.judged_cases, asked.seed)]
    figures.tell(figures.judged(judged, scorers))
    if asked.select:
        selection.tell(judged, scorers)
    if asked.halves:
        halves.tell(entries, asked.judged_cases, asked.seed)


def _kept(path: Path) -> fitting.Forests:
    """What was learned before: kinds of text that nothing was given for keep their trees."""
    return model.read(path.read_bytes()) if path.exists() else {}


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/train_scorer", description=__doc__)
    parser.add_argument("repositories", nargs="*", type=Path, help="clones to learn from")
    parser.add_argument(
        "--judge", nargs="*", type=Path, default=[], help="clones to judge on: nothing is learned there"
    )
    parser.add_argument("--cases", type=int, default=400, help="how many cases of a repository to learn from, at most")
    parser.add_argument("--judged-cases", type=int, default=60, help="how many of a repository or tool to judge on")
    parser.add_argument("--runs", type=int, default=0, help="how many projects to break for each tool that writes logs")
    parser.add_argument("--halves", action="store_true", help="judge logs of half of the tools by those of the others")
    parser.add_argument("--sessions", nargs="*", type=Path, default=[], help="agents' sessions to learn use from")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=MODEL)
    parser.add_argument("--select", action="store_true", help="also compare the constants of the selection")
    parser.add_argument("--only-judge", action="store_true", help="learn nothing, judge the model that is there")
    return parser.parse_args()


def _lessons(paths: Iterable[Path], most: int, seed: int) -> list[Lesson]:
    found: list[Lesson] = []
    for path in paths:
        repository = Repository(path)
        found += lessons(repository, mine(repository, most, seed), seed)
        print(f"{repository.name}: {len(found)} lessons so far", flush=True)
    return found


def _logs(entries: Sequence[Entry], asked: argparse.Namespace) -> list[Lesson]:
    print(f"logs: {len(entries)} lessons", flush=True)
    return of_logs(entries, asked.seed)


def _used(asked: argparse.Namespace) -> list[Lesson]:
    found = list(used.lessons(asked.sessions, asked.seed))
    print(f"sessions: {len(found) // 2} outputs", flush=True)
    return found


def _mined(path: Path, most: int, seed: int) -> list[Case]:
    return mine(Repository(path), most, seed)


main()
