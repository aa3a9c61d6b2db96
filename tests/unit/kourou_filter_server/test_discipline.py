from __future__ import annotations

from kourou_filter_server.discipline import VERSIONS_KNOWN_MAX, FailureCounts

WHO = (("group", "filter"), 1)
OTHER = (("group", "filter"), 2)


def test_so_many_within_the_window_are_too_many() -> None:
    counts = FailureCounts(3, 60_000)
    assert not counts.add(0, WHO)
    assert not counts.add(100, WHO)
    assert not counts.add(200, OTHER)
    assert counts.add(59_999, WHO)


def test_old_ones_do_not_count() -> None:
    counts = FailureCounts(3, 60_000)
    counts.add(0, WHO)
    counts.add(30_000, WHO)
    assert not counts.add(60_000, WHO)
    assert counts.count(60_000, WHO) == 2
    assert counts.count(90_000, WHO) == 1


def test_versions_that_struck_are_not_kept_for_ever() -> None:
    counts = FailureCounts(3, 60_000)
    for number in range(VERSIONS_KNOWN_MAX + 1):
        counts.add(0, (("till", "late"), number))
    assert counts.count(0, (("till", "late"), 0)) == 0
    assert counts.count(0, (("till", "late"), 1)) == 1
