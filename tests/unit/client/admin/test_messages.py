"""Looking messages up."""

from __future__ import annotations

import pytest

from kourou.client.admin.messages import MessageNotFound, MessageTrack, TrackKind, track
from kourou.errors import (
    BadRequest,
    Code,
    GroupNotFound,
    KourouError,
    Rejected,
    TopicNotFound,
    UnknownOutcome,
)
from kourou.model.subscription import SQL92, ConsumeType, MessageModel, Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import ConsumerConnection
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper
from kourou.protocol.messages.pulls import QueryMessage, QueryMessageResponse, ViewMessageById
from kourou.protocol.record.message_id import encode_offset_id
from kourou_rigs.wire_faults import Answer, Cut, Frozen, always


async def test_an_offset_id_of_nobody(broker, mq):
    await mq.send("T", b"x")
    with pytest.raises(MessageNotFound):
        await mq.admin.messages.by_offset_id(encode_offset_id(("10.0.0.1", 10911), 999))
    elsewhere = encode_offset_id(("9.9.9.9", 1), broker.stored("T")[0].position)
    with pytest.raises(MessageNotFound):
        await mq.admin.messages.by_offset_id(elsewhere)
    with pytest.raises(BadRequest):
        await mq.admin.messages.by_offset_id("no id")
    with pytest.raises(MessageNotFound):
        await mq.admin.messages.by_id("T", "0" * 32)


@pytest.mark.feature("F261", "F262", "F013")
async def test_by_key_exactly(cluster, broker, mq):
    cluster.broker("broker-b")
    for number in range(4):
        await mq.send("T", b"%d" % number, keys=["order-1", f"line-{number}"], queue=HERE)
    found = await mq.admin.messages.by_key("T", "order-1")
    assert sorted(message.body for message in found) == [b"0", b"1", b"2", b"3"]
    assert [m.body for m in await mq.admin.messages.by_key("T", "line-2")] == [b"2"]
    assert await mq.admin.messages.by_key("T", "nobody") == []
    place = QueryMessageResponse(index_last_update_timestamp=0, index_last_update_phyoffset=0)
    same_hash = Answer(header=place, body=b"".join(broker.queues["T", 0]))
    broker.faults[QueryMessage] = [same_hash]
    assert [m.body for m in await mq.admin.messages.by_key("T", "line-2")] == [b"2"]


@pytest.mark.feature("F263")
async def test_by_key_and_time_newest_first(mq, broker):
    for number in range(5):
        await mq.send("T", b"%d" % number, keys="k", queue=HERE)
        broker.pass_time(1)
    times = [message.store_timestamp for message in broker.stored("T")]
    found = await mq.admin.messages.by_key("T", "k", begin_ms=times[1], end_ms=times[3])
    assert [message.body for message in found] == [b"3", b"2", b"1"]


async def test_what_cannot_be_asked(mq):
    for bad in ({"key": ""}, {"key": "k", "count_max": 0}, {"key": "k", "count_max": 65}):
        with pytest.raises(BadRequest):
            await mq.admin.messages.by_key("T", **bad)
    with pytest.raises(TopicNotFound):
        await mq.admin.messages.by_key("Nobody", "k")


@pytest.fixture
def away(cluster, broker):
    """Another broker, whose connections end under every look-up."""
    another = cluster.broker("broker-b")
    another.faults[QueryMessage] = another.faults[ViewMessageById] = always(Cut)
    return another


HERE = MessageQueue("T", "broker-a", 0)


@pytest.mark.feature("F261")
async def test_results_of_others_are_returned_while_a_broker_is_offline(broker, away, mq):
    sent = await mq.send("T", b"x", keys="k", queue=HERE)
    by_key = await mq.admin.messages.by_key("T", "k")
    copies = await mq.admin.messages.copies("T", sent.message_id)
    for found in (by_key, copies):
        assert [message.body for message in found] == [b"x"]
        assert list(found.missing) == ["broker-b"]
    assert (await mq.admin.messages.by_unique_key("T", sent.message_id)).body == b"x"
    assert (await mq.admin.messages.by_id("T", sent.message_id)).body == b"x"
    stored = broker.stored("T")[0]
    offset_id = encode_offset_id(stored.store_host, stored.position)
    assert (await mq.admin.messages.by_id("T", offset_id)).body == b"x"


async def test_an_offset_id_is_found_while_another_broker_says_nothing_at_all(cluster, broker, mq):
    other = cluster.broker("broker-b")
    await mq.send("T", b"x", queue=MessageQueue("T", "broker-b", 0))
    broker.faults[ViewMessageById] = always(Frozen)
    stored = other.stored("T")[0]
    name = encode_offset_id(stored.store_host, stored.position)
    assert (await mq.admin.messages.by_offset_id(name)).body == b"x"


async def test_what_nobody_finds_may_be_at_the_broker_that_is_away(away, mq):
    messages = mq.admin.messages
    for asking in (
        messages.by_key("T", "k"),
        messages.copies("T", "0" * 32),
        messages.by_id("T", "0" * 32),
        messages.search(["T"], "0" * 32),
    ):
        with pytest.raises(UnknownOutcome):
            await asking


async def test_a_search_asks_who_is_away_once(cluster, away, mq):
    cluster.topics |= dict.fromkeys(("S1", "S2", "S3"), (1, 1))
    sent = await mq.send("T", b"x", queue=HERE)
    found = await mq.admin.messages.search(["S1", "gone", "S2", "T", "S3"], sent.message_id)
    assert ([one.body for one in found], list(found.missing)) == ([b"x"], ["broker-b"])
    assert len(away.requests(QueryMessage)) == 1
    away.faults.clear()
    assert await mq.admin.messages.search(["S1", "S2"], sent.message_id) == []


AWAY = GroupNotFound("nobody is here", code=Code.CONSUMER_NOT_ONLINE)


def connected(tags: str = "", **fields: object) -> ConsumerConnection:
    wanted = Subscription("T", tags or "*", tags=frozenset(filter(None, tags.split("|"))))
    return ConsumerConnection(subscriptions={"T": wanted}, **fields)


def at(offset: int) -> OffsetWrapper:
    return OffsetWrapper(broker_offset=10, consumer_offset=offset)


@pytest.mark.feature("F265")
@pytest.mark.parametrize(
    ("connection", "progress", "kind", "consumed"),
    [
        (connected(), at(6), TrackKind.CONSUMED, True),
        (connected(), at(5), TrackKind.NOT_CONSUME_YET, False),
        (connected("a|b"), at(6), TrackKind.CONSUMED, True),
        (connected("b"), at(6), TrackKind.CONSUMED_BUT_FILTERED, True),
        (connected("b"), at(5), TrackKind.NOT_CONSUME_YET, False),
        (connected("*"), at(6), TrackKind.CONSUMED, True),
        (AWAY, at(6), TrackKind.NOT_ONLINE, True),
        (AWAY, at(5), TrackKind.NOT_ONLINE, False),
        (AWAY, None, TrackKind.NOT_ONLINE, None),
        (Rejected("broken"), at(6), TrackKind.UNKNOWN, True),
        (connected(), None, TrackKind.UNKNOWN, None),
        (connected(), Rejected("broken"), TrackKind.UNKNOWN, None),
        (connected(consume_type=ConsumeType.CONSUME_ACTIVELY), at(6), TrackKind.PULL, True),
        (
            connected(message_model=MessageModel.BROADCASTING),
            at(6),
            TrackKind.CONSUME_BROADCASTING,
            None,
        ),
    ],
)
def test_the_table(
    connection: ConsumerConnection | KourouError,
    progress: OffsetWrapper | KourouError | None,
    kind: TrackKind,
    consumed: bool | None,
) -> None:
    found = track("g", connection, progress, "T", 5, {"TAGS": "a"})
    assert (found.group, found.kind, found.consumed) == ("g", kind, consumed)


def test_tracks_have_reasons() -> None:
    assert "nobody is here" in track("g", AWAY, at(6), "T", 5, {}).reason
    assert "broken" in track("g", connected(), Rejected("broken"), "T", 5, {}).reason
    assert track("g", connected(), at(6), "T", 5, {}) == MessageTrack(
        "g", TrackKind.CONSUMED, True, 6
    )


def kind_of(wanted: Subscription | None, properties: dict[str, str]) -> MessageTrack:
    connection = ConsumerConnection(subscriptions={} if wanted is None else {"T": wanted})
    return track("g", connection, at(6), "T", 5, properties)


def test_what_sql_keeps_back_is_not_consumed() -> None:
    wanted = Subscription("T", "price > 10", SQL92)
    assert kind_of(wanted, {"price": "11"}).kind is TrackKind.CONSUMED
    for properties in ({"price": "9"}, {}):
        found = kind_of(wanted, properties)
        assert found.kind is TrackKind.CONSUMED_BUT_FILTERED
        assert found.consumed is True
        assert "price > 10" in found.reason
    assert track("g", ConsumerConnection(subscriptions={"T": wanted}), at(5), "T", 5, {}).kind is (
        TrackKind.NOT_CONSUME_YET
    )


def test_what_a_filter_in_python_made_of_it_is_not_guessed() -> None:
    found = kind_of(Subscription("T", "vip", class_filter_mode=True), {})
    assert (found.kind, found.consumed) == (TrackKind.UNKNOWN, True)
    assert "vip" in found.reason


def test_who_names_no_subscription_hides_nothing() -> None:
    assert kind_of(None, {"TAGS": "a"}).kind is TrackKind.CONSUMED
    assert kind_of(Subscription("T", "no expression (", SQL92), {}).kind is TrackKind.CONSUMED
