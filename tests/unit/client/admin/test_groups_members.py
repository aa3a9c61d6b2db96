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


@pytest.fixture
async def mq(broker, producing):
    async with producing() as mq:
        yield mq


def request_handlers(broker, table):
    """Let a broker answer requests of these types so: an answer, or a function of the request."""
    seen = []

    def intercept(request):
        answer = table.get(type(request))
        if answer is not None:
            seen.append(request)
        return answer(request) if callable(answer) else answer

    broker.intercept = intercept
    return seen


async def test_how_a_member_runs_is_asked_where_it_is_known(cluster, broker, mq) -> None:
    second = cluster.broker("broker-b")
    request_handlers(broker, {GetConsumerRunningInfo: AWAY})
    body = encode_consumer_running_info(INFO)
    seen = request_handlers(second, {GetConsumerRunningInfo: Answer(body=body)})
    assert await mq.admin.members.running_info("g", "c1", stacks=True) == INFO
    assert seen == [GetConsumerRunningInfo(consumer_group="g", client_id="c1", jstack_enable=True)]


async def test_members_that_are_away_or_silent(broker, mq) -> None:
    request_handlers(broker, {GetConsumerRunningInfo: AWAY})
    with pytest.raises(GroupNotFound, match="no broker has consumer 'c1' in group 'g'"):
        await mq.admin.members.running_info("g", "c1")
    request_handlers(
        broker, {GetConsumerRunningInfo: Answer(Code.CONSUME_MSG_TIMEOUT, remark="late")}
    )
    with pytest.raises(TimedOut, match="did not respond:"):
        await mq.admin.members.running_info("g", "c1")
    request_handlers(broker, {GetConsumerRunningInfo: Answer(Code.SYSTEM_ERROR, remark="broken")})
    with pytest.raises(Rejected, match="broken"):
        await mq.admin.members.running_info("g", "c1")


async def test_all_members_at_once_and_the_error_of_each(broker, mq) -> None:
    members = [ClientConnection(name, "1.2.3.4:5", "PYTHON", 1) for name in ("c2", "c1")]

    def reply_to(request):
        if request.client_id != "c1":
            return AWAY
        return Answer(body=encode_consumer_running_info(INFO))

    request_handlers(
        broker,
        {
            GetConsumerConnectionList: Answer(
                body=encode_consumer_connection(ConsumerConnection(members))
            ),
            GetConsumerRunningInfo: reply_to,
        },
    )
    found = await mq.admin.members.running_infos("g")
    assert list(found) == ["c1", "c2"]
    assert found["c1"] == INFO
    assert isinstance(found["c2"], GroupNotFound)


async def test_giving_a_member_one_message(broker, mq) -> None:
    await mq.send("T", b"again")
    record = next(iter(broker.queues.values()))[0]
    message = from_record(record, "broker-a")
    result = DirectResult(consume_result="CR_SUCCESS", spent_time_mills=3)
    seen = request_handlers(
        broker, {ConsumeMessageDirectly: Answer(body=encode_direct_result(result))}
    )
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


async def test_every_producer_once_as_heard_last(cluster, broker, mq) -> None:
    second = cluster.broker("broker-b")
    early = ProducerInfo("c1", "1.2.3.4", "JAVA", 1, 10)
    late = ProducerInfo("c1", "1.2.3.4", "JAVA", 1, 20)
    other = ProducerInfo("c0", "1.2.3.4", "PYTHON", 1, 5)
    for one, producers in ((broker, [late, other]), (second, [early])):
        request_handlers(
            one, {GetAllProducerInfo: Answer(body=encode_producer_table({"p": producers}))}
        )
    assert await mq.admin.members.all_producers() == {"p": [other, late]}


async def test_what_each_member_wants_or_why_it_does_not_say(broker, mq) -> None:
    members = [ClientConnection(name, "1.2.3.4:5", "PYTHON", 1) for name in ("c2", "c1")]
    reply = Answer(body=encode_consumer_running_info(INFO))
    request_handlers(
        broker,
        {
            GetConsumerConnectionList: Answer(
                body=encode_consumer_connection(ConsumerConnection(members))
            ),
            GetConsumerRunningInfo: lambda request: reply if request.client_id == "c1" else AWAY,
        },
    )
    found = await mq.admin.members.subscriptions("g")
    assert found["c1"] == INFO.subscriptions
    assert isinstance(found["c2"], GroupNotFound)
