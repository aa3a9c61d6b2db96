from __future__ import annotations

from kourou_filter_server.strikes import VERSIONS_KNOWN_MAX, FailureCounts

WHO = (("group", "filter"), 1)
OTHER = (("group", "filter"), 2)


def test_so_many_within_the_window_are_too_many() -> None:
    strikes = FailureCounts(3, 60_000)
    assert not strikes.add(0, WHO)
    assert not strikes.add(100, WHO)
    assert not strikes.add(200, OTHER)
    assert strikes.add(59_999, WHO)


def test_old_ones_do_not_count() -> None:
    strikes = FailureCounts(3, 60_000)
    strikes.add(0, WHO)
    strikes.add(30_000, WHO)
    assert not strikes.add(60_000, WHO)
    assert strikes.count(60_000, WHO) == 2
    assert strikes.count(90_000, WHO) == 1


def test_one_may_be_taken_back_and_all_forgotten() -> None:
    strikes = FailureCounts(3, 60_000)
    strikes.add(0, WHO)
    strikes.add(10, WHO)
    strikes.take_back(10, WHO)
    strikes.take_back(10, WHO)
    assert strikes.count(10, WHO) == 1
    strikes.clear(WHO)
    assert strikes.count(10, WHO) == 0


def test_versions_that_struck_are_not_kept_for_ever() -> None:
    strikes = FailureCounts(3, 60_000)
    for number in range(VERSIONS_KNOWN_MAX + 1):
        strikes.add(0, (("till", "late"), number))
    assert strikes.count(0, (("till", "late"), 0)) == 0
    assert strikes.count(0, (("till", "late"), 1)) == 1
