"""Who calls, and whose texts and figures that person may see."""

from kimi_proxy.core.caller import ANONYMOUS, LOCAL, Caller


def test_a_person_reads_what_is_theirs_and_an_admin_counts_everyones():
    ada = Caller("team/x", "ada", "x", is_admin=False, also_reads=("person/ada",))
    dee = Caller("person/dee", "dee", is_admin=True)
    assert (ada.scopes, ada.counts) == (("team/x", "person/ada"), ("team/x", "person/ada"))
    assert (dee.scopes, dee.counts) == (("person/dee",), None)


def test_without_a_team_there_is_one_person_and_nobody_sees_nothing():
    assert (LOCAL.scopes, LOCAL.counts) == (("local",), None)
    assert (ANONYMOUS.scopes, ANONYMOUS.counts) == (("",), ("",))


def test_nobody_is_an_admin_unless_it_is_said():
    assert not Caller("person/ada", "ada").is_admin
    assert not Caller().is_admin
    assert LOCAL.is_admin
