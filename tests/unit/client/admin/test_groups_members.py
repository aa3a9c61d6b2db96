"""The members of a group, one by one, as an operator asks them."""

from __future__ import annotations

import pytest

from kourou.client.consumer.received import from_record
from kourou.errors import Code, GroupNotFound, KourouError, Rejected, TimedOut
from kourou.protocol.bodies.lists_body import (
    ClientConnection,
    ConsumerConnection,
    ProducerInfo,
    encode_consumer_connection,
    encode_producer_table,
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
)
from kourou_rigs.wire_broker import Answer

INFO = ConsumerRunningInfo({"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"})
AWAY = Answer(Code.CONSUMER_NOT_ONLINE, remark="not online")


async def test_how_a_member_runs_is_asked_where_it_is_known(cluster, broker, mq, answers) -> None:
    second = cluster.broker("broker-b")
    answers(broker, {GetConsumerRunningInfo: AWAY})
    body = encode_consumer_running_info(INFO)
    seen = answers(second, {GetConsumerRunningInfo: Answer(body=body)})
    assert await mq.admin.members.running_info("g", "c1", stacks=True) == INFO
    assert seen == [GetConsumerRunningInfo(consumer_group="g", client_id="c1", jstack_enable=True)]


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (AWAY, GroupNotFound, "no broker has consumer 'c1' in group 'g'"),
        (Answer(Code.CONSUME_MSG_TIMEOUT, remark="late"), TimedOut, "did not respond:"),
        (Answer(Code.SYSTEM_ERROR, remark="broken"), Rejected, "broken"),
    ],
)
async def test_members_that_are_away_or_silent(broker, mq, answers, reply, error, text) -> None:
    answers(broker, {GetConsumerRunningInfo: reply})
    with pytest.raises(error, match=text):
        await mq.admin.members.running_info("g", "c1")


async def test_all_members_at_once_and_the_error_of_each(broker, mq, answers) -> None:
    members = [ClientConnection(name, "1.2.3.4:5", "PYTHON", 1) for name in ("c2", "c1")]

    def reply_to(request):
        if request.client_id != "c1":
            return AWAY
        return Answer(body=encode_consumer_running_info(INFO))

    answers(
        broker,
        {
            GetConsumerConnectionList: Answer(
                body=encode_consumer_connection(ConsumerConnection(members))
            ),
            GetConsumerRunningInfo: reply_to,
        },
    )
    for ask, known in (
        (mq.admin.members.running_infos, INFO),
        (mq.admin.members.subscriptions, INFO.subscriptions),
    ):
        found = await ask("g")
        assert list(found) == ["c1", "c2"]
        assert found["c1"] == known
        assert isinstance(found["c2"], GroupNotFound)


async def test_giving_a_member_one_message(broker, mq, answers) -> None:
    await mq.send("T", b"again")
    record = next(iter(broker.queues.values()))[0]
    message = from_record(record, "broker-a")
    result = DirectResult(consume_result="CR_SUCCESS", spent_time_mills=3)
    seen = answers(broker, {ConsumeMessageDirectly: Answer(body=encode_direct_result(result))})
    assert await mq.admin.members.consume("g", message, "c1") == result
    (request,) = seen
    assert (request.consumer_group, request.client_id) == ("g", "c1")
    assert (request.msg_id, request.topic) == (message.offset_message_id, "T")
    nowhere = from_record(record, "broker-z")
    with pytest.raises(KourouError, match="broker-z"):
        await mq.admin.members.consume("g", nowhere)
    results = await mq.admin.members.consume_many("g", [message, nowhere])
    assert results[0] == result
    assert isinstance(results[1], KourouError)


async def test_every_producer_once_as_heard_last(cluster, broker, mq, answers) -> None:
    second = cluster.broker("broker-b")
    early = ProducerInfo("c1", "1.2.3.4", "JAVA", 1, 10)
    late = ProducerInfo("c1", "1.2.3.4", "JAVA", 1, 20)
    other = ProducerInfo("c0", "1.2.3.4", "PYTHON", 1, 5)
    for one, producers in ((broker, [late, other]), (second, [early])):
        answers(one, {GetAllProducerInfo: Answer(body=encode_producer_table({"p": producers}))})
    assert await mq.admin.members.all_producers() == {"p": [other, late]}
