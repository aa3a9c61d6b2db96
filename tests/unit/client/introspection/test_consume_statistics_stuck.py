"""What runs too long is found once, by looks that cost the calls nothing."""

from __future__ import annotations

from types import SimpleNamespace

from kourou.client.introspection.consume_statistics import StuckWatch


def item(attempt: int = 1) -> SimpleNamespace:
    return SimpleNamespace(attempt=attempt)


def test_an_item_is_found_once_when_its_time_is_over():
    watch, slow = StuckWatch(100), item()
    assert watch.check([slow], 1_000) == []
    assert watch.check([slow], 1_099) == []
    assert watch.check([slow], 1_100) == [slow]
    assert watch.check([slow], 9_000) == []


def test_what_ended_meanwhile_is_forgotten():
    watch, one = StuckWatch(100), item()
    watch.check([one], 0)
    watch.check([], 50)
    assert watch.check([one], 100) == [], "it runs again, and only since now"
    assert watch.check([one], 200) == [one]


def test_the_next_attempt_starts_again():
    watch, one = StuckWatch(100), item()
    watch.check([one], 0)
    one.attempt += 1
    assert watch.check([one], 100) == []


def test_lists_are_watched_as_one():
    watch, batch = StuckWatch(100), [item(), item()]
    watch.check([batch], 0)
    assert watch.check([batch], 100) == [batch]
