"""The line that people see while a long command works."""

import io

from kimi_proxy.cli.progress import ProgressBar, progress_bar


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_bar(width: int = 80) -> tuple[ProgressBar, Clock, io.StringIO]:
    clock, screen = Clock(), io.StringIO()
    return ProgressBar(screen, clock, lambda: width, "reading"), clock, screen


def test_of_work_without_a_known_end_the_time_is_shown():
    bar, clock, _ = a_bar()
    clock.now += 75

    assert bar.line() == "reading 0:01:15"


def test_of_work_with_an_end_the_share_and_the_rest_are_shown():
    bar, clock, _ = a_bar()
    clock.now += 30
    bar.advance("", 1, 4)

    assert bar.line() == f"reading {'━' * 10}{' ' * 30}  25% 0:00:30, 0:01:30 left"


def test_more_than_all_of_it_is_all_of_it():
    bar, _, _ = a_bar()
    bar.advance("", 5, 4)

    assert bar.line() == f"reading {'━' * 40} 100% 0:00:00"


def test_new_words_are_drawn_at_once_and_no_line_is_wider_than_the_terminal():
    bar, _, screen = a_bar(width=10)
    bar.advance("judging what was read", 0, 0)
    bar.advance("", 1, 2)

    assert screen.getvalue() == "\r\x1b[2Kjudging w"


def test_without_a_terminal_nothing_is_drawn(capsys):
    with progress_bar("reading") as advance:
        advance("more", 1, 2)

    assert capsys.readouterr().err == ""
