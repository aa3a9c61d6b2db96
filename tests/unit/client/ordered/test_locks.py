"""Locks that a member holds, as brokers answer."""

from __future__ import annotations

import random

import pytest

from kourou import MessageQueue
from kourou.client.ordered.locks import HOLD_MS, HeldLock, OrderedLocks
from kourou.errors import TimedOut, Unavailable
from kourou.model.limits import QUEUE_LOCK_MS
from kourou.protocol.bodies.lists_body import decode_lock_batch, encode_locked_queues
from kourou.protocol.messages.groups import LockBatchMq

A0, A1 = (MessageQueue("T", "broker-a", number) for number in range(2))
B0 = MessageQueue("T", "broker-b", 0)


class Answers:
    """A session: as much of it as locks need. `said` has what brokers were asked."""

    def __init__(self) -> None:
        self.said: list[tuple[str, type, set[MessageQueue]]] = []
        self.refused: set[MessageQueue] = set()
        self.failing: dict[str, Exception] = {}
        self.leaders = {"broker-a": "a:1", "broker-b": "b:1"}
        self.now_ms = 1_000
        self.client_id = "c"
        self.connections = self.routes = self.clock = self.settings = self
        self.request_timeout_ms = 1
        self.chance = random.Random(1)
        self.stale_topics: list[str] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    async def find(self, topic):
        assert topic == "T"
        return self

    def leader_address(self, name):
        return self.leaders.get(name)

    def stale(self, topic):
        self.stale_topics.append(topic)

    async def ask(self, address, request, *, body, timeout_ms, hurried=False):
        batch = decode_lock_batch(body)
        assert (batch.group, batch.client_id) == ("g", "c")
        self.said.append((address, type(request), set(batch.queues)))
        self.now_ms += 7  # an answer takes its time
        if address in self.failing:
            raise self.failing[address]
        self.body = [encode_locked_queues(set(batch.queues) - self.refused)]
        return self


@pytest.fixture
def session() -> Answers:
    return Answers()


@pytest.fixture
def locks(session) -> OrderedLocks:
    return OrderedLocks(session, "g")


async def test_any_thread_may_ask_what_is_held_while_that_changes(session, locks) -> None:
    class Fleeting(HeldLock):
        def valid(self, now_ms: int) -> bool:
            del locks._holds[max(locks._holds)]
            return super().valid(now_ms)

    locks._holds = {queue: Fleeting(session.now_ms) for queue in (A0, A1)}
    assert locks.held == [A0, A1]


async def test_one_request_for_each_broker(session, locks) -> None:
    session.refused = {A1}
    assert set(await locks.lock([A0, A1, B0])) == {A0, B0}
    assert session.said == [("a:1", LockBatchMq, {A0, A1}), ("b:1", LockBatchMq, {B0})]
    assert locks.held == [A0, B0]
    await locks.lock([A0, A1])
    assert session.said[2:] == [("a:1", LockBatchMq, {A1})], "what is held is not asked for"


async def test_a_lock_is_good_from_when_it_was_asked_for(session, locks) -> None:
    hold = (await locks.lock([A0]))[A0]
    assert session.now_ms == 1_007
    assert hold.valid(1_000 + HOLD_MS - 1)
    assert not hold.valid(1_000 + HOLD_MS)
    assert hold.nobody_elses(1_000 + QUEUE_LOCK_MS - 1)
    assert not hold.nobody_elses(1_000 + QUEUE_LOCK_MS)
    session.now_ms = 1_000 + HOLD_MS
    assert locks.held == []
    assert await locks.renew() == ([], True)
    assert locks.held == [A0]
    assert hold.valid(session.now_ms)


async def test_nothing_held_nothing_asked(session, locks) -> None:
    assert await locks.renew() == ([], True)
    await locks.unlock([A0])
    assert session.said == []


async def test_an_answer_that_was_lost_may_have_been_yes(session, locks) -> None:
    session.failing = {"a:1": TimedOut("lost"), "b:1": Unavailable("nothing happened")}
    assert await locks.lock([A0, A1, B0]) == {}
    assert locks.held == []
    assert locks.needless("T", {A0}) == [A1]
    session.failing, session.said = {}, []
    await locks.unlock([A1])
    assert session.said[0][2] == {A1}
    await locks.lock([A0])
    assert locks.needless("T", {A0}) == []


async def test_unlocking_waits_for_nobody_who_is_not_there(session, locks) -> None:
    await locks.lock([A0])
    session.failing = {"a:1": Unavailable("gone")}
    await locks.unlock([A0])
    assert locks.all == []


async def test_a_broker_that_does_not_grant_may_have_another_leader(session, locks) -> None:
    session.leaders["broker-b"] = None
    await locks.lock([A0, B0])
    assert session.stale_topics == ["T"], "the route is asked for at once"
