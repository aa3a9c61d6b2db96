"""Sums and rates of the last minute, hour and day, under RocketMQ's names."""

from __future__ import annotations

import numpy as np
import pytest

from kourou.engine.statistics import SAMPLE_MS, SIZE_BOUNDS, Counter, Statistics, Traffic
from kourou.errors import Code
from kourou.model.names import HALF_TOPIC
from kourou.protocol.bodies.statistics_bodies import decode_broker_stats
from kourou.protocol.messages.broker_admin import ViewBrokerStatsData


def passing(statistics: Statistics, now_ms: int, steps: int) -> int:
    for _ in range(steps):
        now_ms += SAMPLE_MS
        statistics.tick(now_ms)
    return now_ms


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


@pytest.fixture
def statistics(traffic) -> Statistics:
    made = Statistics(traffic, "DefaultCluster")
    made.tick(0)
    return made


def test_rates_of_all_topics_together_over_three_spans(statistics, traffic) -> None:
    for topic in ("orders", "bills"):
        for _ in range(3):
            traffic.taken(topic, 100)
    traffic.out("orders", "g", 2, 200)
    traffic.pulls_empty += 3
    now_ms = passing(statistics, 0, 1)
    assert statistics.broker_rates() == {
        "putTps": "0.6 0.6 0.6",
        "getTransferedTps": "0.2 0.2 0.2",
        "getFoundTps": "0.1 0.1 0.1",
        "getMissTps": "0.3 0.3 0.3",
        "getTotalTps": "0.4 0.4 0.4",
    }
    now_ms = passing(statistics, now_ms, 1)
    assert statistics.broker_rates()["putTps"] == "0 0.3 0.3"
    now_ms = passing(statistics, now_ms, 58)
    assert statistics.broker_rates()["putTps"] == "0 0 0.01"
    passing(statistics, now_ms, 60)
    assert statistics.broker_rates()["putTps"] == "0 0 0"


def test_totals_are_kept_at_midnight(statistics, traffic) -> None:
    def totals() -> list[str]:
        table = statistics.broker_totals()
        days = ("YesterdayMorning", "TodayMorning", "TodayNow")
        return [table[f"msg{what}Total{day}"] for what in ("Put", "Get") for day in days]

    statistics.note_hour(0)  # it started in this hour: no day has ended
    traffic.taken("orders", 100)
    statistics.note_hour(0)
    assert totals() == ["0", "0", "1", "0", "0", "0"]
    statistics.note_hour(23)
    traffic.out("orders", "g", 4, 400)
    statistics.note_hour(0)
    traffic.taken("orders", 400)
    statistics.note_hour(0)
    assert totals() == ["0", "1", "2", "0", "4", "4"]
    statistics.note_hour(1)
    statistics.note_hour(0)  # set back, or the second midnight: nothing is lost by it
    assert totals() == ["1", "2", "2", "4", "4", "4"]
    table = statistics.broker_totals()
    assert table["putMessageSizeTotal"] == "500"
    assert table["putMessageTimesTotal"] == "2"
    assert table["putMessageAverageSize"] == "250"


def test_what_was_stored_in_the_last_minute(statistics, traffic) -> None:
    for _ in range(6):
        traffic.taken("orders", 100)
    traffic.taken("orders", 400)
    now_ms = passing(statistics, 0, 1)
    item = statistics.item("TOPIC_PUT_NUMS", "orders").stats_minute
    assert (item.sum, item.tps, item.avgpt) == (7, 0.7, 1.0)
    size = statistics.item("TOPIC_PUT_SIZE", "orders").stats_minute
    assert (size.sum, size.tps, size.avgpt) == (1_000, 100.0, pytest.approx(1_000 / 7))
    now_ms = passing(statistics, now_ms, 5)
    assert statistics.item("TOPIC_PUT_NUMS", "orders").stats_minute.sum == 7
    passing(statistics, now_ms, 1)
    later = statistics.item("TOPIC_PUT_NUMS", "orders")
    assert later.stats_minute.sum == 0, "a minute has passed"
    assert (later.stats_hour.sum, later.stats_day.sum) == (7, 7)


def test_what_a_group_took_and_how_much_at_a_time(statistics, traffic) -> None:
    traffic.out("orders", "g", 30, 3_000)
    traffic.out("orders", "g", 10, 1_000)
    passing(statistics, 0, 1)
    item = statistics.item("GROUP_GET_NUMS", "orders@g").stats_minute
    assert (item.sum, item.avgpt) == (40, 20.0)
    assert statistics.item("GROUP_GET_SIZE", "orders@g").stats_minute.sum == 4_000
    assert statistics.consume_tps("orders", "g") == 4.0
    assert statistics.consume_tps("orders", "h") == 0.0


def test_the_broker_as_a_whole_goes_by_the_clusters_name(statistics, traffic) -> None:
    traffic.taken("a", 1)
    traffic.taken("b", 1)
    traffic.out("a", "g", 5, 5)
    passing(statistics, 0, 1)
    assert statistics.item("BROKER_PUT_NUMS", "DefaultCluster").stats_minute.sum == 2
    assert statistics.item("BROKER_GET_NUMS", "DefaultCluster").stats_minute.sum == 5
    assert statistics.item("BROKER_PUT_NUMS", "other") is None


def test_an_hour_ends_in_steps_of_ten_minutes_and_a_day_in_hours() -> None:
    totals: dict[str, int] = {}
    counter = Counter(totals)
    seconds = 0

    def minutes(count: int, each: int) -> None:
        nonlocal seconds
        for _ in range(count * 6):
            if each:
                totals["k"] = totals.get("k", 0) + each
            counter.sample(SAMPLE_MS)
            seconds += 10

    minutes(60, 1)
    assert counter.hour("k") == (360, 3_600_000)
    assert counter.day("k") == (360, 3_600_000)
    minutes(30, 0)
    assert counter.hour("k") == (180, 3_600_000), "half of it is more than an hour old"
    assert counter.day("k") == (360, 5_400_000)
    minutes(60 * 23 + 30, 0)
    assert counter.day("k")[0] == 0
    assert counter.hour("k") == (0, 3_600_000)


def test_idle_counters_leave_nothing_in_samples() -> None:
    totals = {"busy": 0, "idle": 7}
    counter = Counter(totals)
    counter.sample(SAMPLE_MS)
    totals["busy"] = 3
    counter.sample(SAMPLE_MS)
    assert [span.increase for span in counter._minute] == [{"idle": 7}, {"busy": 3}]


def test_an_operator_asks(engine, draft, records) -> None:
    engine.ask(*records([draft(), draft()]))
    engine.advance(SAMPLE_MS)
    engine.advance(SAMPLE_MS)
    reply = engine.ask(ViewBrokerStatsData(stats_name="TOPIC_PUT_NUMS", stats_key="orders"))
    assert reply.code == Code.SUCCESS
    assert decode_broker_stats(b"".join(reply.body)).stats_minute.sum == 2
    for name, key in (("TOPIC_PUT_NUMS", "x"), ("NO_SUCH_NUMS", "orders")):
        unknown = engine.ask(ViewBrokerStatsData(stats_name=name, stats_key=key))
        assert unknown.code == Code.SYSTEM_ERROR
        assert f"The stats <{name}> <{key}> not exist" in unknown.remark


# -- what passed through is counted, a batch as its messages one by one ----------------------------


MIXED = [1, 1_024, 1_025, 4_096, 600_000, 4_194_304, 4_194_305, 90, 1_500_000]


def counted(traffic: Traffic) -> dict[str, tuple[int, int, list[int]]]:
    return {
        topic: (count, traffic.bytes_in[topic], list(traffic.sizes_in[topic]))
        for topic, count in traffic.messages_in.items()
    }


def test_sizes_are_counted_by_rocketmqs_bounds() -> None:
    traffic = Traffic()
    for size in MIXED:
        traffic.taken("orders", size)
    assert counted(traffic) == {"orders": (9, sum(MIXED), [3, 2, 0, 1, 1, 1, 1])}
    assert len(traffic.sizes_in["orders"]) == len(SIZE_BOUNDS) + 1


@pytest.mark.parametrize("sizes", [[300] * 9, [5_000] * 9, MIXED])
@pytest.mark.parametrize("targets", [None, [0, 1, 2, 2, 1, 0, 0, 1, 2], [2] * 9])
def test_a_batch_counts_as_its_messages(sizes: list[int], targets: list[int] | None) -> None:
    topics = ["orders", "bills", "orders"]  # two queues of one topic
    together, alone = Traffic(), Traffic()
    target_of = None if targets is None else np.asarray(targets, np.uint16)
    for _ in range(2):
        together.taken_many(topics, target_of, np.asarray(sizes, np.int64))
        for number, size in enumerate(sizes):
            alone.taken(topics[0 if targets is None else targets[number]], size)
    assert counted(together) == counted(alone)
    together.taken_many_to(HALF_TOPIC, topics, target_of, np.asarray(sizes, np.int64))
    for number, size in enumerate(sizes):
        alone.taken_to(HALF_TOPIC, topics[0 if targets is None else targets[number]], size)
    assert together.kinds_in == alone.kinds_in
