"""Groups and their progress, as an operator handles them."""

from __future__ import annotations

import pytest

from kourou.client.admin.groups import TO_THE_END_MS, OffsetMove
from kourou.client.consumer.received import from_record
from kourou.errors import Code, GroupNotFound, KourouError, Rejected, TimedOut, TopicNotFound
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import (
    ClientConnection,
    ConsumerConnection,
    ProducerInfo,
    encode_consumer_connection,
    encode_producer_table,
)
from kourou.protocol.bodies.statistics_bodies import (
    encode_correction_offsets,
    encode_offset_table,
    encode_time_spans,
    time_span,
)
from kourou.protocol.bodies.status_bodies import (
    ConsumerRunningInfo,
    DirectResult,
    encode_consumer_running_info,
    encode_direct_result,
)
from kourou.protocol.messages.groups import (
    ConsumeMessageDirectly,
    GetAllProducerInfo,
    GetConsumerConnectionList,
    GetConsumerRunningInfo,
    QueryConsumeTimeSpan,
)
from kourou.protocol.messages.pulls import (
    InvokeBrokerToResetOffset,
    QueryCorrectionOffset,
)
from kourou_rigs.wire_faults import Answer, always


async def test_resetting_what_is_not_there(broker, mq):
    with pytest.raises(TopicNotFound):
        await mq.admin.offsets.reset("g", "Nobody", 0)
    broker.faults[InvokeBrokerToResetOffset] = [Answer(body=encode_offset_table({}))]
    with pytest.raises(GroupNotFound):
        await mq.admin.offsets.reset("g", "T", 0)


async def test_connections_over_all_brokers(cluster, broker, mq):
    second = cluster.broker("broker-b")
    wanted = {"T": Subscription("T", "a", tags=frozenset({"a"}))}
    for one, name in ((broker, "c1"), (second, "c2")):
        connected = ConsumerConnection([ClientConnection(name, "1.2.3.4:5", "JAVA", 1)], wanted)
        reply = Answer(body=encode_consumer_connection(connected))
        one.faults[GetConsumerConnectionList] = [reply, Answer(Code.CONSUMER_NOT_ONLINE)]
    found = await mq.admin.groups.connections("g")
    assert [one.client_id for one in found.connections] == ["c1", "c2"]
    assert found.subscriptions["T"].expression == "a"
    with pytest.raises(KourouError):
        await mq.admin.groups.connections("g")


async def test_time_spans_and_the_lowest_progress(broker, mq):
    span = time_span(QUEUE, first_ms=1, last_ms=5, consumed_ms=3, delay_ms=9)
    broker.faults[QueryConsumeTimeSpan] = [Answer(body=encode_time_spans([span]))]
    broker.faults[QueryCorrectionOffset] = [Answer(body=encode_correction_offsets({0: 4}))]
    (found,) = (await mq.admin.offsets.time_spans("g", "T")).items()
    assert found[0] == QUEUE
    assert (found[1].consume_time_stamp, found[1].delay_time) == (3, 9)
    lowest = await mq.admin.offsets.lowest("T", compared_with="g", without="x,y")
    assert lowest == {"broker-a": {0: 4}}
    assert broker.requests(QueryCorrectionOffset) == [
        QueryCorrectionOffset(topic="T", compare_group="g", filter_groups="x,y")
    ]


QUEUE = MessageQueue("T", "broker-a", 0)


def test_previews_say_where_a_reset_and_a_clone_go(kourou_broker):
    topic = kourou_broker.create_topic(queues=2)
    with kourou_broker.client() as mq:
        offsets, one, two = mq.admin.offsets, *(MessageQueue(topic, "broker-a", n) for n in (0, 1))
        mq.admin.groups.create("mover")
        for queue in (one, one, one, two):
            mq.send(topic, "x", queue=queue)
        offsets.commit("mover", {one: 1})
        assert offsets.committed("mover") == {one: 1}
        ahead = offsets.preview_reset("mover", topic, TO_THE_END_MS)
        assert ahead == {one: OffsetMove(1, 3), two: OffsetMove(None, 1)}
        assert [(move.skipped, move.repeated) for move in ahead.values()] == [(2, 0), (0, 0)]
        back = offsets.preview_reset("mover", topic, 0)
        assert [(move.skipped, move.repeated) for move in back.values()] == [(0, 1), (0, 0)]
        held = offsets.preview_reset("mover", topic, TO_THE_END_MS, force=False)
        assert held[one] == OffsetMove(1, 1)
        assert offsets.committed("mover") == {one: 1}  # a preview moves nobody
        done = offsets.reset("mover", topic, TO_THE_END_MS, reason="skip it")
        assert done == {queue: move.after for queue, move in ahead.items()}
        assert offsets.preview_clone("mover", "other", topic) == {
            one: OffsetMove(None, 3),
            two: OffsetMove(None, 1),
        }
        newest = mq.admin.history.of("progress/mover", types=["OffsetsReset"]).decisions[0]
        assert newest.reason == "skip it"


def test_progress_at_one_broker(kourou_broker):
    topic = kourou_broker.create_topic(queues=1)
    with kourou_broker.client() as mq:
        mq.admin.groups.create("somebody")
        mq.admin.offsets.commit("somebody", {MessageQueue(topic, "broker-a", 0): 0})
        assert mq.admin.offsets.at("broker-a", "somebody") == mq.admin.offsets.of("somebody")
        with pytest.raises(GroupNotFound):
            mq.admin.offsets.at("broker-a", "nobody")


# -- members ---------------------------------------------------------------------------------------


INFO = ConsumerRunningInfo({"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"})
AWAY = Answer(Code.CONSUMER_NOT_ONLINE, remark="not online")


async def test_how_a_member_runs_is_asked_where_it_is_known(cluster, broker, mq) -> None:
    second = cluster.broker("broker-b")
    broker.faults[GetConsumerRunningInfo] = [AWAY]
    second.faults[GetConsumerRunningInfo] = [Answer(body=encode_consumer_running_info(INFO))]
    assert await mq.admin.members.running_info("g", "c1", stacks=True) == INFO
    assert second.requests(GetConsumerRunningInfo) == [
        GetConsumerRunningInfo(consumer_group="g", client_id="c1", jstack_enable=True)
    ]


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (AWAY, GroupNotFound, "no broker has consumer 'c1' in group 'g'"),
        (Answer(Code.CONSUME_MSG_TIMEOUT, remark="late"), TimedOut, "did not respond:"),
        (Answer(Code.SYSTEM_ERROR, remark="broken"), Rejected, "broken"),
    ],
)
async def test_members_that_are_away_or_silent(broker, mq, reply, error, text) -> None:
    broker.faults[GetConsumerRunningInfo] = [reply]
    with pytest.raises(error, match=text):
        await mq.admin.members.running_info("g", "c1")


async def test_all_members_at_once_and_the_error_of_each(broker, mq) -> None:
    members = [ClientConnection(name, "1.2.3.4:5", "PYTHON", 1) for name in ("c2", "c1")]

    def reply_to(request):
        if request.client_id != "c1":
            return AWAY
        return Answer(body=encode_consumer_running_info(INFO))

    connected = Answer(body=encode_consumer_connection(ConsumerConnection(members)))
    broker.faults[GetConsumerConnectionList] = always(connected)
    broker.faults[GetConsumerRunningInfo] = always(reply_to)
    for ask, known in (
        (mq.admin.members.running_infos, INFO),
        (mq.admin.members.subscriptions, INFO.subscriptions),
    ):
        found = await ask("g")
        assert list(found) == ["c1", "c2"]
        assert found["c1"] == known
        assert isinstance(found["c2"], GroupNotFound)


async def test_giving_a_member_one_message(broker, mq) -> None:
    await mq.send("T", b"again", queue=QUEUE)
    [record] = broker.queues["T", 0]
    message = from_record(record, "broker-a")
    result = DirectResult(consume_result="CR_SUCCESS", spent_time_mills=3)
    broker.faults[ConsumeMessageDirectly] = always(Answer(body=encode_direct_result(result)))
    assert await mq.admin.members.consume("g", message, "c1") == result
    (request,) = broker.requests(ConsumeMessageDirectly)
    assert (request.consumer_group, request.client_id) == ("g", "c1")
    assert (request.msg_id, request.topic) == (message.offset_message_id, "T")
    nowhere = from_record(record, "broker-z")
    with pytest.raises(KourouError, match="broker-z"):
        await mq.admin.members.consume("g", nowhere)
    results = await mq.admin.members.consume_many("g", [message, nowhere])
    assert results[0] == result
    assert isinstance(results[1], KourouError)


async def test_every_producer_once_as_heard_last(cluster, broker, mq) -> None:
    second = cluster.broker("broker-b")
    early = ProducerInfo("c1", "1.2.3.4", "JAVA", 1, 10)
    late = ProducerInfo("c1", "1.2.3.4", "JAVA", 1, 20)
    other = ProducerInfo("c0", "1.2.3.4", "PYTHON", 1, 5)
    for one, producers in ((broker, [late, other]), (second, [early])):
        one.faults[GetAllProducerInfo] = [Answer(body=encode_producer_table({"p": producers}))]
    assert await mq.admin.members.all_producers() == {"p": [other, late]}
