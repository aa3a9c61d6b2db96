"""A message goes back to the brokers by one of two ways."""

from __future__ import annotations

import pytest

from kourou.client.consumer import send_back
from kourou.client.consumer.send_back import SendBackRequests
from kourou.errors import Code, Unavailable, UnknownOutcome
from kourou.model.message import SysFlag
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.sends import ConsumerSendMsgBack, SendMessage
from kourou.protocol.record.properties import decode_properties
from kourou_rigs.wire_faults import Answer, Cut, always

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
async def failed(broker, cluster, producing):
    """A client, and a message of T that it pulled."""
    cluster.topics["%RETRY%g"] = (1, 1)
    async with producing() as mq:
        await mq.send(
            "T", b"body " * 2_000, tag="a", keys=["k"], properties={"own": "x"}, queue=QUEUE
        )
        consumer = await mq.pull_consumer("g")
        result = await consumer.pull(QUEUE, 0)
        yield mq, result.messages[0]


def back(mq, message, *, max_times=-1, resend=False, **params):
    session = mq._client.session
    way = SendBackRequests(session, "g", max_times)
    work = way.resend(message, **params) if resend else way.send_back(message, **params)
    return session.io.run(work)


def copies(broker, topic="%RETRY%g"):
    """The copies in a topic, after their delay."""
    broker.pass_time(1_000)
    return broker.stored(topic)


def asked(broker, kind):
    return broker.requests(kind)


REFUSAL = Answer(Code.SYSTEM_ERROR, remark="no")


@pytest.mark.feature("F215", "F220")
async def test_the_broker_copies_what_it_has(broker, failed):
    mq, message = failed
    await back(mq, message, delay_level=5, reason="too early")
    [request] = asked(broker, ConsumerSendMsgBack)
    assert request == ConsumerSendMsgBack(
        offset=message.position,
        group="g",
        delay_level=5,
        origin_msg_id=message.message_id,
        origin_topic="T",
        bname="broker-a",
        reason="too early",
    )
    [copy] = copies(broker)
    assert (copy.message_id, copy.tag, copy.keys) == (message.message_id, "a", ("k",))
    assert copy.properties["ORIGIN_MESSAGE_ID"] == (message.offset_message_id)


@pytest.mark.fault
@pytest.mark.parametrize("fault", [REFUSAL, Cut], ids=["refused", "lost"])
async def test_what_is_not_taken_back_is_sent_again(broker, failed, fault):
    mq, message = failed
    broker.faults[ConsumerSendMsgBack] = always(fault)
    await back(mq, message)
    [request] = asked(broker, SendMessage)
    assert (request.topic, request.reconsume_times) == ("%RETRY%g", 1)
    assert request.sys_flag & SysFlag.COMPRESSED, "it would be too large otherwise"
    [copy] = copies(broker)
    assert copy.body == b"body " * 2_000
    assert (copy.reconsume_times, copy.born_timestamp) == (1, message.born_timestamp)
    properties = copy.properties
    assert properties["RETRY_TOPIC"] == "T"
    assert properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id
    assert properties["UNIQ_KEY"] == message.message_id
    assert (properties["own"], copy.tag) == ("x", "a")


@pytest.mark.parametrize(
    ("level", "delay", "max_times"), [(0, "3", 7), (9, "9", 7), (-1, None, 0)], ids=str
)
async def test_levels_of_what_is_sent_again(broker, failed, level, delay, max_times):
    mq, message = failed
    await back(mq, message, max_times=7, resend=True, delay_level=level, reason="why")
    [request] = asked(broker, SendMessage)
    assert request.max_reconsume_times == max_times
    [copy] = copies(broker, "%DLQ%g" if level < 0 else "%RETRY%g")
    assert decode_properties(request.properties.encode()).get("DELAY") == delay
    assert copy.properties.get("DLQ_REASON") == ("why" if level < 0 else None)


async def test_later_attempts_keep_their_origin_and_wait_longer(broker, failed):
    mq, message = failed
    await back(mq, message, resend=True)
    copies(broker)
    consumer = await mq.pull_consumer("h")
    result = await consumer.pull(MessageQueue("%RETRY%g", "broker-a", 0), 0)
    again = result.messages[0]
    assert (again.topic, again.reconsume_times) == ("T", 1)
    assert again.origin_message_id == message.offset_message_id != again.offset_message_id
    await back(mq, again, resend=True)
    copy = copies(broker)[1]
    assert copy.reconsume_times == 2
    sent = asked(broker, SendMessage)[1]
    assert decode_properties(sent.properties.encode())["DELAY"] == "4"
    assert copy.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id
    assert copy.properties["RETRY_TOPIC"] == "T"


@pytest.mark.fault
async def test_another_broker_is_asked_first(broker, cluster, failed):
    mq, message = failed
    other = cluster.broker("broker-b")
    other.join("somebody")
    session = mq._client.session
    await session.io.run(session.routes.refresh("%RETRY%g"))
    broker.faults[ConsumerSendMsgBack] = always(REFUSAL)
    await back(mq, message)
    assert len(copies(other)) == 1
    cluster.down.add(other.address)
    await back(mq, message)
    assert len(copies(broker)) == 1


@pytest.mark.fault
async def test_when_no_broker_accepts_it_the_last_failure_is_raised(
    broker, cluster, failed, monkeypatch
):
    monkeypatch.setattr(send_back, "SEND_BACK_TIMEOUT_MS", 100)
    mq, message = failed
    cluster.down.add(broker.address)
    with pytest.raises(UnknownOutcome):
        await back(mq, message)
    session = mq._client.session
    cluster.topics["%RETRY%g"] = (1, 0)
    await session.io.run(session.routes.refresh("%RETRY%g"))
    with pytest.raises(Unavailable, match="has no writable broker"):
        await back(mq, message)


@pytest.mark.fault
@pytest.mark.feature("F215", "F228")
async def test_it_waits_for_the_next_leader(broker, cluster, failed, monkeypatch):
    mq, message = failed
    follower = cluster.follower(broker)
    look, looks = SendBackRequests._refresh_routes, []

    async def elected(self, *topics):
        if not looks:  # neither way was open, so it waits, and meanwhile there is a leader
            cluster.lead(follower)
        looks.append(topics)
        await look(self, *topics)

    monkeypatch.setattr(SendBackRequests, "_refresh_routes", elected)
    mq._client.io.loop.call_soon_threadsafe(lambda: cluster.nobody_leads(broker, down=False))
    await back(mq, message)
    assert len(looks) == 1
    assert len(asked(follower, ConsumerSendMsgBack)) == 1
    assert len(copies(broker)) == 1
    assert len(asked(broker, ConsumerSendMsgBack)) >= 1
