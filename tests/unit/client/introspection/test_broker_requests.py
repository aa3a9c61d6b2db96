"""What brokers ask of a client is answered by whoever registered for it, and by nobody twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kourou.client.introspection.broker_requests import (
    BrokerRequest,
    Buffer,
    ConsumerRequests,
    RequestHandlers,
    RequestReply,
    stacks,
)
from kourou.client.introspection.running_info import (
    ConsumeRates,
    HandlerResult,
    QueueInfo,
    RunningInfo,
)
from kourou.client.session.heartbeats import ClientMembership
from kourou.errors import BadRequest, Code, GroupNotFound, Rejected, Unavailable
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.status_bodies import decode_consumer_running_info
from kourou.protocol.messages.groups import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
    NotifyConsumerIdsChanged,
)
from kourou.protocol.messages.pulls import GetMaxOffset, GetMaxOffsetResponse
from kourou.protocol.wire.frames import Frame, FrameKind, decode_frame, decode_reply, encode_request

ASK = GetMaxOffset(topic="t", queue_id=1)


class FakeClient:
    """An Answering, and what it sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Frame]] = []
        self.changed = asyncio.Event()
        self.gone = False
        self.request_handlers = RequestHandlers(self._send)

    def _send(self, address: str, parts: Sequence[Buffer]) -> bool:
        if self.gone:
            raise Unavailable("the connection is closed")
        self.sent.append((address, decode_frame(parts)))
        self.changed.set()
        return True

    async def answer(self) -> tuple[str, Frame]:
        await self.changed.wait()
        (found,) = self.sent
        return found


def frame(request: object = ASK, *body: bytes, kind: FrameKind = FrameKind.REQUEST) -> Frame:
    head = encode_request(request, correlation=5, deadline_ms=700, kind=kind)  # type: ignore[arg-type]  # a request
    return decode_frame([head, *body])


async def idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_answer_of_whoever_registered_goes_back() -> None:
    fake = FakeClient()
    seen: list[BrokerRequest] = []

    async def answer(asked: BrokerRequest) -> RequestReply:
        seen.append(asked)
        return RequestReply(0, "well", GetMaxOffsetResponse(offset=9), (b"a", b"b"))

    fake.request_handlers.on(GetMaxOffset, answer)
    fake.request_handlers.heard("broker:1", frame(ASK, b"q"))
    address, reply = await fake.answer()
    assert (address, reply.kind, reply.correlation) == ("broker:1", FrameKind.REPLY, 5)
    assert decode_reply(reply, GetMaxOffsetResponse) == (0, "well", GetMaxOffsetResponse(offset=9))
    assert [bytes(part) for part in reply.body] == [b"a", b"b"]
    (asked,) = seen
    assert (asked.address, asked.request, asked.timeout_ms) == ("broker:1", ASK, 700)
    assert [bytes(part) for part in asked.body] == [b"q"]


async def test_nothing_to_say_is_success() -> None:
    fake = FakeClient()

    async def answer(_asked: BrokerRequest) -> None:
        return

    fake.request_handlers.on(GetMaxOffset, answer)
    fake.request_handlers.heard("broker:1", frame())
    _, reply = await fake.answer()
    assert reply.code == Code.SUCCESS


async def test_a_notice_is_heard_and_not_answered() -> None:
    fake = FakeClient()
    heard = asyncio.Event()

    async def listen(_asked: BrokerRequest) -> RequestReply:
        heard.set()
        return RequestReply(Code.SYSTEM_ERROR)

    fake.request_handlers.on(NotifyConsumerIdsChanged, listen)
    notice = NotifyConsumerIdsChanged(consumer_group="g")
    fake.request_handlers.heard("broker:1", frame(notice, kind=FrameKind.NOTIFY))
    await heard.wait()
    await idle()
    assert fake.sent == []


@pytest.mark.parametrize(
    ("failure", "code", "log"),
    [
        (Rejected("no such queue", code=Code.QUERY_NOT_FOUND), 22, "failed: no such queue"),
        (RuntimeError("a bug"), 1, "background task failed unexpectedly:"),
    ],
)
async def test_a_failure_is_sent_and_logged(
    failure: Exception, code: int, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeClient()

    async def answer(_asked: BrokerRequest) -> RequestReply:
        raise failure

    fake.request_handlers.on(GetMaxOffset, answer)
    fake.request_handlers.heard("broker:1", frame())
    _, reply = await fake.answer()
    await idle()
    assert reply.code == code
    assert str(failure) in decode_reply(reply, None)[1]
    assert log in caplog.text


async def test_one_that_waits_holds_up_nobody_and_ends_with_the_client() -> None:
    fake = FakeClient()
    ended: list[str] = []

    async def wait(_asked: BrokerRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def answer(_asked: BrokerRequest) -> None:
        return

    fake.request_handlers.on(GetMaxOffset, wait)
    fake.request_handlers.on(NotifyConsumerIdsChanged, answer)
    fake.request_handlers.heard("broker:1", frame())
    fake.request_handlers.heard("broker:1", frame(NotifyConsumerIdsChanged(consumer_group="g")))
    await fake.answer()
    fake.request_handlers.close()
    await idle()
    assert ended == ["cancelled"]
    assert len(fake.sent) == 1


async def test_a_connection_that_is_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeClient()
    fake.gone = True
    fake.request_handlers.heard(
        "broker:1", frame(GetConsumerRunningInfo(consumer_group="g", client_id=""))
    )
    assert "reply to broker broker:1 failed" in caplog.text


# -- what consumers answer -------------------------------------------------------------------------


QUEUE = MessageQueue("T", "broker-a", 1)
WANTED = Subscription("T", "a || b", tags=frozenset({"a", "b"}), version=3)


class Pulling:
    """A consumer that asks for itself."""

    membership = ClientMembership(
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
