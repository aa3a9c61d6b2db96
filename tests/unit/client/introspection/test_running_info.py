"""Settings as text, for those who ask a consumer what it is."""

from __future__ import annotations

from kourou.client.introspection.running_info import (
    STALLED_MS,
    WAITS_MAX,
    OrderedWait,
    QueueInfo,
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
