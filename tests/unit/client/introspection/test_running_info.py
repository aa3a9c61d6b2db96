"""Settings as text, for those who ask a consumer what it is."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from kourou.client.introspection.running_info import (
    NOT_MEASURED,
    SAMPLE_MS,
    STALLED_MS,
    WAITS_MAX,
    ConsumeLog,
    ConsumeRates,
    ConsumeStatistics,
    OrderedWait,
    QueueInfo,
    StuckWatch,
    filter_properties,
    ordered_properties,
    ordered_waits,
    properties_of,
    stalled_properties,
    stalled_since,
)
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.errors import FilterFailed
from kourou.model.subscription import MessageModel
from kourou.model.topic import MessageQueue
from kourou_rigs.clock import ManualClock


def test_nothing_is_known_before_two_looks():
    statistics = ConsumeStatistics()
    statistics.of("T").consumed += 5
    assert statistics.rates() == {"T": ConsumeRates()}
    statistics.sample(0)
    assert statistics.rates() == {"T": ConsumeRates()}


def test_the_figures_of_a_minute():
    statistics = ConsumeStatistics()
    statistics.of("T")
    statistics.sample(0)
    sums = statistics.of("T")
    sums.pulls, sums.pull_ms, sums.pulled, sums.consumed, sums.failed = 4, 10, 200, 100, 20
    statistics.sample(SAMPLE_MS, [2, 4])
    assert statistics.rates()["T"] == ConsumeRates(
        pull_rt=2.5,
        pull_tps=20.0,
        consume_rt=3.0,
        consume_ok_tps=10.0,
        consume_failed_tps=2.0,
        consume_failed_msgs=20,
    )


@pytest.mark.parametrize(("samples", "failed"), [(7, 3), (359, 3), (361, 0)])
def test_what_is_older_than_a_minute_leaves_the_rates_and_later_the_hour(samples, failed):
    statistics = ConsumeStatistics()
    statistics.of("T")
    statistics.sample(0)
    statistics.of("T").failed += 3
    for number in range(1, samples + 1):
        statistics.sample(number * SAMPLE_MS)
    status = statistics.rates()["T"]
    assert status.consume_failed_tps == 0.0
    assert status.consume_failed_msgs == failed


# -- handlers that run too long --------------------------------------------------------------------


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


# -- the log of what was consumed ------------------------------------------------------------------


NAME = "kourou.client.consume"


def test_nothing_is_measured_while_nobody_listens(caplog):
    caplog.set_level(logging.INFO, NAME)
    log = ConsumeLog(ManualClock(), logging.DEBUG)
    assert log.begin() == NOT_MEASURED
    log.consumed("one", NOT_MEASURED)
    assert not caplog.records


class Store:
    async def load(self, queue):
        return None

    async def save(self, offsets):
        pass


def test_every_setting_is_listed_by_its_key():
    settings = ConsumerSettings(
        consumer_group="g",
        message_model=MessageModel.BROADCASTING,
        subscription={"T": "a || b", "U": "*"},
        offset_store=Store(),
    )
    properties = properties_of(settings)
    assert properties.keys() == ConsumerSettings.by_key().keys()
    assert properties["consumerGroup"] == "g"
    assert properties["messageModel"] == "BROADCASTING"
    assert properties["consumeThreadMax"] == "20"
    assert properties["subscription"] == "T=a || b;U=*"
    assert properties["offsetStore"] == "Store"
    assert properties["allocateMessageQueueStrategy"] == "AVG"
    assert properties["messageListener"] == ""
    assert all(isinstance(value, str) for value in properties.values())


def test_a_filter_that_fails_is_listed_and_one_that_never_failed_is_not():
    assert filter_properties(0, {}) == {}
    waiting = {
        MessageQueue("T", "a", number): FilterFailed(f"T/a/{number}: it raised")
        for number in range(WAITS_MAX + 2)
    }
    properties = filter_properties(7, waiting)
    assert properties["PROP_FILTER_FAILURES"] == "7"
    assert properties["PROP_FILTER_WAITING_QUEUES"] == str(WAITS_MAX + 2)
    assert properties["PROP_FILTER_WAITS"].count("it raised") == WAITS_MAX
    assert properties["PROP_FILTER_WAITS"].startswith("T/a/0: it raised; T/a/1")
    assert filter_properties(7, {})["PROP_FILTER_WAITS"] == ""


def test_blocked_ordered_queues_are_listed_and_parsed():
    assert ordered_properties({}) == {}
    waits = {MessageQueue("T", "b-1.x", number): OrderedWait(7, 2, 9) for number in range(20)}
    properties = ordered_properties(waits)
    found = ordered_waits({**properties, "other": "x"})
    assert len(found) == WAITS_MAX
    assert found["T/b-1.x/3"] == OrderedWait(7, 2, 9)
    assert ordered_waits({"PROP_ORDERED_WAITS": "T/b/1@x attempts=1 until=2; "}) == {}


def test_stalled_queues_are_listed_the_longest_first():
    queues = {
        MessageQueue("T", "b", number): QueueInfo(0, cached_min_offset=5, stalled_since_ms=since_ms)
        for number, since_ms in enumerate((0, 100_000, 50_000, 100_001))
    }
    properties = stalled_properties(queues, 100_000 + STALLED_MS)
    assert properties == {"PROP_STANDING_QUEUES": "T/b/2@5 since=50000; T/b/1@5 since=100000"}
    assert stalled_since(properties) == {"T/b/2": 50_000, "T/b/1": 100_000}
    assert stalled_properties(queues, 60_000 - 1) == {}
    assert stalled_since({}) == {}
