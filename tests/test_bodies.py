"""`scripts/check` finds the types of answers that nothing answers with any more."""

from typing import NotRequired, TypedDict

from bodies import unused


class RowBody(TypedDict):
    line: int


class MarkedRowBody(RowBody):
    mark: str


class PageBody(TypedDict):
    rows: NotRequired[list[MarkedRowBody] | None]


class OldPageBody(TypedDict):
    rows: list[RowBody]


def test_a_type_that_no_answer_is_made_of_is_found():
    assert unused([RowBody, MarkedRowBody, PageBody, OldPageBody], [PageBody]) == [f"{__name__}.OldPageBody"]


def test_a_type_that_an_answer_extends_is_in_use():
    assert unused([RowBody, MarkedRowBody], [MarkedRowBody]) == []
