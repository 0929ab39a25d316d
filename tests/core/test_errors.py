from pathlib import Path

from kimi_proxy.core.errors import location


def test_a_fault_is_told_by_its_kind_and_place_but_not_by_its_words() -> None:
    try:
        raise KeyError("a line of the user")
    except KeyError as fault:
        told = location(fault)
    assert told.startswith(f"KeyError at {Path(__file__).name}:")
    assert "user" not in told


def test_a_fault_that_was_never_raised_has_no_place() -> None:
    assert location(ValueError("x")) == "ValueError"
