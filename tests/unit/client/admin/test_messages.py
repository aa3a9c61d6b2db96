"""Looking messages up."""

from __future__ import annotations

import pytest

from kourou.client.admin.message_tracks import TrackKind
from kourou.client.admin.messages import MessageNotFound
from kourou.errors import BadRequest, Code, TopicNotFound, Unavailable, UnknownOutcome
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import (
    ConsumerConnection,
    encode_consumer_connection,
    encode_group_list,
)
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper, encode_consume_stats
from kourou.protocol.bodies.status_bodies import QueueLook, QueueUnit, encode_queue_look
from kourou.protocol.messages.broker_admin import QueryTopicConsumeByWho
from kourou.protocol.messages.groups import GetConsumerConnectionList, GetConsumeStats
from kourou.protocol.messages.pulls import QueryConsumeQueue, QueryMessage, ViewMessageById
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_trace import (
    Consumed,
    ConsumeStarted,
    ContextCode,
    encode_record,
    keys_of,
)
from kourou_rigs.wire_broker import Answer, Cut


@pytest.fixture
async def mq(broker, producing):
    async with producing() as mq:
        yield mq


@pytest.mark.feature("F260")
async def test_by_offset_id(cluster, broker, mq):
    cluster.broker("broker-b")
    for number in range(6):
        await mq.send("T", b"%d" % number)
    for one in cluster.brokers.values():
        for stored in one.stored("T"):
            name = encode_offset_id(stored.store_host, stored.position)
            message = await mq.admin.messages.by_offset_id(name)
            assert (message.body, message.queue.broker_name) == (stored.body, one.name)
            assert message.offset_message_id == name


async def test_an_offset_id_of_nobody(broker, mq):
    await mq.send("T", b"x")
    with pytest.raises(MessageNotFound):
        await mq.admin.messages.by_offset_id(encode_offset_id(broker.host, 999))
    elsewhere = encode_offset_id(("9.9.9.9", 1), broker.stored("T")[0].position)
    with pytest.raises(MessageNotFound):
        await mq.admin.messages.by_offset_id(elsewhere)
    with pytest.raises(BadRequest):
        await mq.admin.messages.by_offset_id("no id")


async def test_by_unique_key_and_by_either_id(broker, mq):
    result = await mq.send("T", b"x")
    assert (await mq.admin.messages.by_unique_key("T", result.message_id)).body == b"x"
    assert (await mq.admin.messages.by_id("T", result.message_id)).body == b"x"
    stored = broker.stored("T")[0]
    name = encode_offset_id(stored.store_host, stored.position)
    assert (await mq.admin.messages.by_id("T", name)).body == b"x"
    with pytest.raises(MessageNotFound):
        await mq.admin.messages.by_id("T", "0" * 32)


@pytest.mark.feature("F261", "F262", "F013")
async def test_by_key_exactly(cluster, mq):
    cluster.broker("broker-b")
    for number in range(4):
        await mq.send("T", b"%d" % number, keys=["order-1", f"line-{number}"])
    await mq.send("T", b"same hash", keys="other", properties={"collides": "order-1"})
    found = await mq.admin.messages.by_key("T", "order-1")
    assert sorted(message.body for message in found) == [b"0", b"1", b"2", b"3"]
    assert [m.body for m in await mq.admin.messages.by_key("T", "line-2")] == [b"2"]
    assert await mq.admin.messages.by_key("T", "nobody") == []


@pytest.mark.feature("F263")
async def test_by_key_and_time_newest_first(mq, broker):
    from kourou.model.topic import MessageQueue

    queue = MessageQueue("T", "broker-a", 0)
    for number in range(5):
        await mq.send("T", b"%d" % number, keys="k", queue=queue)
    found = await mq.admin.messages.by_key("T", "k", begin_ms=1_000_001, end_ms=1_000_003)
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

    def cut(request):
        if isinstance(request, QueryMessage | ViewMessageById):
            raise Cut
        return None

    another.intercept = cut
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
    broker._handlers[ViewMessageById] = lambda *_: None  # its answer never comes
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
    assert sum(isinstance(one, QueryMessage) for one in away.seen) == 1
    away.intercept = None
    assert await mq.admin.messages.search(["S1", "S2"], sent.message_id) == []


@pytest.mark.feature("F265")
async def test_which_groups_consumed_a_message(broker, mq):
    result = await mq.send("T", b"x", tag="a")
    message = await mq.admin.messages.by_id("T", result.message_id)
    queue = message.queue
    connected = ConsumerConnection(subscriptions={"T": Subscription("T")})

    def answer(request):
        match request:
            case QueryTopicConsumeByWho():
                return Answer(body=encode_group_list(["new", "g", "away"]))
            case GetConsumerConnectionList():
                if request.consumer_group == "away":
                    return Answer(Code.CONSUMER_NOT_ONLINE, remark="not online")
                return Answer(body=encode_consumer_connection(connected))
            case GetConsumeStats():
                if request.consumer_group == "new":
                    return Answer(Code.SUBSCRIPTION_GROUP_NOT_EXIST)
                offset = 1 if request.consumer_group == "g" else 0
                offsets = {queue: OffsetWrapper(broker_offset=1, consumer_offset=offset)}
                return Answer(body=encode_consume_stats(offsets))
        return None

    broker.intercept = answer
    found = await mq.admin.messages.tracks(message)
    assert [(one.group, one.kind, one.consumed) for one in found] == [
        ("away", TrackKind.NOT_ONLINE, False),
        ("g", TrackKind.CONSUMED, True),
        ("new", TrackKind.UNKNOWN, None),
    ]


async def test_looking_into_a_queue(broker, mq):
    look = QueueLook((QueueUnit(physic_offset=5, physic_size=6, tags_code=7),), 0, 1)
    seen = []

    def answer(request):
        if isinstance(request, QueryConsumeQueue):
            seen.append(request)
            return Answer(body=encode_queue_look(look))
        return None

    broker.intercept = answer
    queue = MessageQueue("T", "broker-a", 2)
    assert await mq.admin.messages.units(queue, 3, count=4, group="g") == look
    assert seen == [QueryConsumeQueue(topic="T", queue_id=2, index=3, count=4, consumer_group="g")]
    with pytest.raises(Unavailable):
        await mq.admin.messages.units(MessageQueue("T", "broker-z", 2), 3)


@pytest.mark.feature("F266")
async def test_the_trace_of_a_message_in_order(cluster, broker, mq):
    cluster.topics["RMQ_SYS_TRACE_TOPIC"] = (1, 1)
    after = Consumed("q", "ID1", 3, True, "k", ContextCode.SUCCESS, 20, "g")
    before = ConsumeStarted(10, "", "g", "q", "ID1", 0, "k")
    other = ConsumeStarted(10, "", "g", "q", "ID2", 0, "ID1")
    for record in (after, before, other):
        body = encode_record(record).encode()
        await mq.send("RMQ_SYS_TRACE_TOPIC", body, keys=list(keys_of(record)))
    assert await mq.admin.messages.trace("ID1") == [before, after]
    assert await mq.admin.messages.trace("k") == [], "a key is not the id of a message"
    with pytest.raises(TopicNotFound):
        await mq.admin.messages.trace("ID1", trace_topic="NoSuchTopic")
