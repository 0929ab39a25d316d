"""Uses wait in memory until the writer takes them."""

from kimi_proxy.services.store.sqlite.originals import Uses

HANDLE = ("local", "prn_0")


def test_the_last_use_is_the_latest_of_what_was_written_and_what_was_not() -> None:
    uses = Uses()
    assert uses.last(HANDLE, 5.0) == 5.0
    uses.add(HANDLE, 7.0)
    uses.add(HANDLE, 6.0)
    assert uses.last(HANDLE, 5.0) == 7.0
    assert uses.last(HANDLE, 9.0) == 9.0
    assert uses.pending() == {HANDLE: 7.0}


def test_a_use_that_was_renewed_while_it_was_written_stays() -> None:
    uses = Uses()
    uses.add(HANDLE, 1.0)
    uses.add(("local", "prn_1"), 1.0)
    taken = uses.pending()
    uses.add(HANDLE, 2.0)
    uses.written(taken)
    assert uses.pending() == {HANDLE: 2.0}
    uses.written(uses.pending())
    assert not uses
