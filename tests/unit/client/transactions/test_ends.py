"""Brokers are told until they have heard it."""

import asyncio
from types import SimpleNamespace

import pytest

from kourou.client.transactions.ends import PendingEnd, TransactionEnds, end_request
from kourou.errors import Code, KourouError, Rejected, StoreFaulted, Unavailable, UnknownOutcome
from kourou.model.message import SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou.model.transaction import TransactionState
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.wire.frames import decode_frame, decode_request, encode_reply
from kourou_rigs.clock import ManualClock

HALF = SendResult(
    SendStatus.SEND_OK,
    "U1",
    MessageQueue("orders", "broker-a", 3),
    17,
    encode_offset_id(("127.0.0.1", 10911), 4242),
)


class Broker:
    """Routes, a connection, and what its answers are to be, in turn."""

    def __init__(self, answers: list[object]) -> None:
        self.answers = answers
        self.heard: list[object] = []
        self.stale_topics: list[str] = []
        self.leader: str | None = "there"
        self.clock = ManualClock()
        self.connections = self.routes = self
        self.io = SimpleNamespace(loop=asyncio.get_running_loop())

    def known(self, topic: str) -> object:
        return SimpleNamespace(leader_address=lambda name: self.leader)

    def stale(self, topic: str) -> None:
        self.stale_topics.append(topic)
        self.leader = "there"
        self.clock.advance(1_000)

    def to(self, address: str) -> object:
        return self

    def gather(self) -> None:
        """Each message leaves by itself here."""

    def next_correlation(self) -> int:
        return 7

    def submit(self, parts, correlation, callback, deadline_ms) -> None:
        self.heard.append(decode_request(decode_frame(parts)))
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            answer = decode_frame([encode_reply(correlation, answer, "told so")])
        callback(answer)


async def reported(broker: Broker, state=TransactionState.COMMIT, *, timeout_ms=10_000):
    """What came of telling."""
    ends = TransactionEnds(broker)
    done: asyncio.Future[KourouError | None] = broker.io.loop.create_future()
    request = end_request("shop", HALF, state)
    deadline_ms = broker.clock.monotonic_ms() + timeout_ms
    ends.put(PendingEnd("orders", "broker-a", request, deadline_ms, done.set_result))
    outcome = await asyncio.wait_for(done, 60)
    await ends.close(1_000)
    return outcome


@pytest.mark.parametrize(
    "trouble",
    [
        Unavailable("no connection"),
        UnknownOutcome("cut"),
        Code.DISK_FULL,
        Code.STORE_FAULTED,
        Code.OUTCOME_UNKNOWN,
    ],
)
async def test_it_is_sent_again_while_that_may_help(trouble):
    broker = Broker([trouble, trouble, Code.SUCCESS])
    assert await reported(broker) is None
    assert len(broker.heard) == 3
    assert broker.stale_topics == ["orders", "orders"]


async def test_a_broker_without_a_leader_is_waited_for():
    broker = Broker([Code.SUCCESS])
    broker.leader = None
    assert await reported(broker) is None


async def test_stored_without_the_full_durability_is_reported():
    assert await reported(Broker([Code.FLUSH_DISK_TIMEOUT])) is None


@pytest.mark.parametrize("code", [Code.SYSTEM_ERROR, Code.TOPIC_NOT_EXIST])
async def test_a_refusal_is_final(code):
    broker = Broker([code])
    outcome = await reported(broker)
    assert isinstance(outcome, Rejected)
    assert "told so" in str(outcome)
    assert len(broker.heard) == 1


async def test_after_its_time_it_is_given_up():
    broker = Broker([Code.STORE_FAULTED] * 9)
    assert isinstance(await reported(broker, timeout_ms=2_500), StoreFaulted)
    assert len(broker.heard) == 3


async def test_a_closed_producer_tells_nobody():
    broker = Broker([])
    ends = TransactionEnds(broker)
    await ends.close(1_000)
    done: asyncio.Future[KourouError | None] = broker.io.loop.create_future()
    request = end_request("shop", HALF, TransactionState.COMMIT)
    ends.put(PendingEnd("orders", "broker-a", request, 1 << 40, done.set_result))
    assert isinstance(await asyncio.wait_for(done, 60), Unavailable)
