"""What a client answers when a broker asks one of its consumers."""

import pytest

from kourou.client.introspection.broker_requests import (
    BrokerRequest,
    ConsumerRequests,
    RequestHandlers,
    RequestReply,
    stacks,
)
from kourou.client.introspection.consume_statistics import ConsumeRates
from kourou.client.introspection.running_info import HandlerResult, QueueInfo, RunningInfo
from kourou.client.session.heartbeats import GroupMembership
from kourou.errors import BadRequest, GroupNotFound
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.status_bodies import (
    decode_consumer_running_info,
)
from kourou.protocol.messages.groups import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
)

QUEUE = MessageQueue("T", "broker-a", 1)
WANTED = Subscription("T", "a || b", tags=frozenset({"a", "b"}), version=3)


class Pulling:
    """A consumer that asks for itself."""

    membership = GroupMembership(
        "g",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        (WANTED,),
    )

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {QUEUE: 7} if topic == "T" else {}


class HandlingConsumer(Pulling):
    """A consumer with a handler."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def running_info(self) -> RunningInfo:
        return RunningInfo(
            {"consumeThreadMax": "20", "PROP_CONSUMEORDERLY": "true"},
            (WANTED,),
            {
                QUEUE: QueueInfo(
                    commit_offset=7,
                    cached_min_offset=7,
                    cached_max_offset=9,
                    cached_count=3,
                    cached_size_bytes=5 << 20,
                    locked=True,
                    last_pull_ms=11,
                    last_consume_ms=12,
                ),
                MessageQueue("T", "broker-a", 2): QueueInfo(commit_offset=0),
            },
            {"T": ConsumeRates(pull_rt=1.5, consume_ok_tps=2.5, consume_failed_msgs=4)},
            started_ms=1_000,
        )

    async def consume_directly(self, record: bytes) -> HandlerResult:
        self.records.append(record)
        return HandlerResult("CR_LATER", "not now", 15)


def answers(member: Pulling | None) -> dict:
    """The answerers that were registered, by request."""
    found = {}

    class Noting(RequestHandlers):
        def on(self, request, answerer):
            found[request] = answerer

    made = ConsumerRequests(
        lambda group: member if group == "g" else None, lambda: "ns1:9876;ns2:9876", "c1"
    )
    made.register(Noting(lambda address, parts: True))
    return found


async def ask(member: Pulling | None, request, body: tuple[bytes, ...] = ()) -> bytes:
    answer = await answers(member)[type(request)](BrokerRequest("broker:1", request, body))
    assert isinstance(answer, RequestReply)
    assert answer.code == 0
    return b"".join(answer.body)


async def test_how_it_runs_in_rocketmqs_form() -> None:
    body = await ask(HandlingConsumer(), GetConsumerRunningInfo(consumer_group="g", client_id="c1"))
    info = decode_consumer_running_info(body)
    assert info.properties["PROP_NAMESERVER_ADDR"] == "ns1:9876;ns2:9876"
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert info.properties["PROP_CONSUMER_START_TIMESTAMP"] == "1000"
    assert info.properties["PROP_CLIENT_VERSION"].startswith("KOUROU_")
    assert info.properties["consumeThreadMax"] == "20"
    assert info.subscriptions == (WANTED,)
    held = info.queues[QUEUE]
    assert (held.commit_offset, held.cached_msg_min_offset, held.cached_msg_max_offset) == (7, 7, 9)
    assert (held.cached_msg_count, held.cached_msg_size_in_mi_b, held.locked) == (3, 5, True)
    assert (held.last_pull_timestamp, held.last_consume_timestamp) == (11, 12)
    empty = info.queues[MessageQueue("T", "broker-a", 2)]
    assert (empty.cached_msg_min_offset, empty.cached_msg_max_offset) == (0, 0)
    assert (info.rates["T"].pull_rt, info.rates["T"].consume_failed_msgs) == (1.5, 4)
    assert info.jstack is None


async def test_its_threads_when_asked_for() -> None:
    request = GetConsumerRunningInfo(consumer_group="g", client_id="c1", jstack_enable=True)
    info = decode_consumer_running_info(await ask(HandlingConsumer(), request))
    assert info.jstack is not None
    assert "MainThread TID: " in info.jstack
    assert "test_its_threads_when_asked_for" in info.jstack
    assert "MainThread" in stacks()


async def test_a_group_that_is_not_here_and_a_consumer_without_handlers() -> None:
    with pytest.raises(GroupNotFound, match="c1 has no consumer in group g"):
        await ask(None, GetConsumerStatusFromClient(topic="T", group="g"))
    with pytest.raises(BadRequest, match="pull consumer"):
        await ask(Pulling(), GetConsumerRunningInfo(consumer_group="g", client_id="c1"))
    with pytest.raises(BadRequest, match="no handler"):
        await ask(Pulling(), ConsumeMessageDirectly(consumer_group="g", msg_id="X"))
