"""A broker's texts become numbers, and two looks become rates."""

from dataclasses import replace

import pytest

from kourou_console.metrics.broker_runtime import (
    Rates,
    joined,
    quantile,
    rates_between,
    runtime_of,
    sends_between,
    whole,
)

TABLE = {
    "brokerVersionDesc": "Kourou 1",
    "bootTimestamp": "1000",
    "msgPutTotalTodayNow": "120",
    "msgPutTotalTodayMorning": "20",
    "msgGetTotalTodayNow": "50",
    "msgGetTotalTodayMorning": "60",
    "putMessageSizeTotal": "9000",
    "commitLogMinOffset": "100",
    "commitLogMaxOffset": "400",
    "commitLogDiskRatio": "0.25",
    "commitLogDiskTotal": "1000",
    "commitLogDiskFree": "750",
    "diskLevel": "NORMAL",
    "pollingHolds": "3",
    "remainHowManyDataToFlush": "7",
    "dispatchBehindBytes": "0",
    "replicationLagBytes_1": "5",
    "replicationLagBytes_2": "11",
    "sendLatencyCounts": "1:90 3:9 more:1",
}


def test_what_is_told_is_known_and_the_rest_is_not() -> None:
    found = runtime_of(TABLE, 5_000)
    assert found.messages_in_today == 100
    assert found.messages_out_today == 0  # it was more this morning: a restart
    assert found.log_bytes == 300
    assert found.replica_lag_bytes == 11
    assert found.disk_used_ratio == 0.25
    assert found.send_counts == ((1.0, 90), (3.0, 9), (None, 1))
    assert found.pull_counts is None
    nothing = runtime_of({}, 1)
    assert {getattr(nothing, name) for name in nothing.__slots__} == {1, None}


@pytest.mark.parametrize("text", ["", "-1", "x", "1.5", "9" * 40, "٣"])
def test_foreign_texts_are_unknown_and_never_zero(text: str) -> None:
    assert whole({"a": text}, "a") is None
    assert (
        runtime_of({"commitLogDiskRatio": text, "sendLatencyCounts": text}, 1).send_counts is None
    )


def test_rates_are_shares_of_a_second() -> None:
    before = runtime_of(TABLE, 5_000)
    now = runtime_of(
        {
            **TABLE,
            "msgPutTotalTodayNow": "140",
            "putMessageSizeTotal": "19000",
            "sendLatencyCounts": "1:90 3:108 more:2",
        },
        7_000,
    )
    rates = rates_between(before, now)
    assert rates.messages_in_per_s == 10.0
    assert rates.bytes_in_per_s == 5_000.0
    assert rates.messages_out_per_s == 0.0
    assert rates.send_p50_ms == pytest.approx(1.0 + 2.0 * 50 / 99)
    assert rates.pull_p99_ms is None


def test_across_a_restart_nothing_is_known() -> None:
    before = runtime_of(TABLE, 5_000)
    after = replace(before, at_ms=6_000, started_ms=5_500)
    assert rates_between(before, after) == Rates()
    assert rates_between(None, after) == Rates()
    assert rates_between(before, replace(before, at_ms=5_000)) == Rates()
    assert sends_between(before, after) is None


def test_a_quantile_is_estimated_within_its_bucket() -> None:
    counts = [(1.0, 90), (3.0, 9), (None, 1)]
    assert quantile(counts, 0.45) == pytest.approx(0.5)
    assert quantile(counts, 0.9) == pytest.approx(1.0)
    assert quantile(counts, 0.99) == pytest.approx(3.0)
    assert quantile(counts, 1.0) == 3.0  # it was more than the last bound
    assert quantile([(1.0, 0), (3.0, 4)], 0.0) == 1.0
    assert quantile([(1.0, 0), (None, 3)], 0.5) == 1.0
    assert quantile([(1.0, 0), (None, 0)], 0.5) is None
    assert quantile(None, 0.5) is None


def test_a_few_in_a_wide_bucket_do_not_count_as_its_upper_end() -> None:
    """Between 10 and 100 ms lies no bound: 12 of 1000 there are 25 ms, and not 100."""
    assert quantile([(10.0, 988), (100.0, 12), (None, 0)], 0.99) == pytest.approx(25.0)


def test_histograms_of_the_same_buckets_are_added() -> None:
    one = ((1.0, 2), (None, 1))
    assert joined([one, ((1.0, 3), (None, 0))]) == ((1.0, 5), (None, 1))
    assert joined([one, ((2.0, 3), (None, 0))]) is None
    assert joined([]) is None
