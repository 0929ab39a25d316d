"""Uses wait in memory until the writer takes them."""

from kimi_proxy.services.store.sqlite.originals import LastUses

HANDLE = ("local", "prn_0")


def test_the_last_use_is_the_latest_of_what_was_written_and_what_was_not() -> None:
    uses = LastUses()
    assert uses.latest(HANDLE, 5.0) == 5.0
    uses.add(HANDLE, 7.0)
    uses.add(HANDLE, 6.0)
    assert uses.latest(HANDLE, 5.0) == 7.0
    assert uses.latest(HANDLE, 9.0) == 9.0
    assert uses.unwritten() == {HANDLE: 7.0}


def test_a_use_that_was_renewed_while_it_was_written_stays() -> None:
    uses = LastUses()
    uses.add(HANDLE, 1.0)
    uses.add(("local", "prn_1"), 1.0)
    taken = uses.unwritten()
    uses.add(HANDLE, 2.0)
    uses.written(taken)
    assert uses.unwritten() == {HANDLE: 2.0}
    uses.written(uses.unwritten())
    assert not uses
