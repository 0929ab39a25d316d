from tests.support.fakes import Clock

from kimi_proxy.core.cache import LruCache


def _recent(clock: Clock | None = None, **limits: int) -> LruCache[str, str]:
    bounds = {"ttl_s": 30, "max_entries": 3, "max_bytes": 100} | limits
    return LruCache(
        ttl_s=bounds["ttl_s"],
        max_entries=bounds["max_entries"],
        max_bytes=bounds["max_bytes"],
        now=clock or Clock(),
    )


def test_a_value_is_found_until_its_time_is_over() -> None:
    clock = Clock()
    recent = _recent(clock)
    recent.put("a", "A", 1)
    clock.advance(29.9)
    assert recent.get("a") == "A"
    clock.advance(0.1)
    assert recent.get("a") is None


def test_being_asked_for_does_not_lengthen_a_life() -> None:
    clock = Clock()
    recent = _recent(clock)
    recent.put("a", "A", 1)
    clock.advance(20)
    assert recent.get("a") == "A"
    clock.advance(20)
    assert recent.get("a") is None


def test_the_least_recently_used_leaves_when_there_are_too_many() -> None:
    recent = _recent()
    for key in "abc":
        recent.put(key, key, 1)
    recent.get("a")
    recent.put("d", "d", 1)
    assert [recent.get(key) for key in "abcd"] == ["a", None, "c", "d"]


def test_the_weight_of_all_values_is_bounded() -> None:
    recent = _recent()
    recent.put("a", "A", 60)
    recent.put("b", "B", 60)
    assert (recent.get("a"), recent.get("b")) == (None, "B")


def test_a_value_heavier_than_the_budget_is_not_kept_and_drives_nobody_out() -> None:
    recent = _recent()
    recent.put("a", "A", 60)
    recent.put("b", "B", 101)
    assert (recent.get("a"), recent.get("b")) == ("A", None)


def test_putting_a_key_again_replaces_its_value_and_its_weight() -> None:
    recent = _recent()
    for _ in range(10):
        recent.put("a", "A", 60)
    recent.put("b", "B", 40)
    assert (recent.get("a"), recent.get("b")) == ("A", "B")
