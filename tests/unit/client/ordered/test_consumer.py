"""A member that consumes in order: locks, takeovers, leaving."""

from __future__ import annotations

import asyncio

import pytest

from kourou import MessageQueue
from kourou.client.ordered import consumer as ordered_consumer
from kourou.model.subscription import MessageModel
from kourou.protocol.messages.groups import LockBatchMq, UnlockBatchMq
from kourou_rigs.wire_faults import Answer, Cut, always

Q = [MessageQueue("T", "broker-a", number) for number in range(4)]


async def put(make, count: int, queue: MessageQueue = Q[0]) -> None:
    async with make() as mq:
        for number in range(count):
            await mq.send("T", b"%d" % number, queue=queue)


# -- takeovers ------------------------------------------------------------------------------------


class Given:
    """Shares queues out as the test says: to the members with these numbers, as they joined."""

    name = "GIVEN"

    def __init__(self) -> None:
        self.owners: list[int] = [0]
        self.members: list[str] = []

    def __call__(self, queues, clients, client):
        mine = self.members.index(client)
        return [
            queue
            for queue in queues
            if self.owners[queue.queue_id % len(self.owners)] == mine and queue.topic == "T"
        ]


class Member:
    """A client that consumes T in order, and what it saw."""

    def __init__(
        self, tools, make, given: Given, stops_at: bytes | None = None, **settings
    ) -> None:
        settings.setdefault("redelivery_delay_ms", 10)
        self.mq = make(allocation=given, **settings)
        self.given = given
        self.watch = tools.Watch(self.say)
        self.stops_at = stops_at
        self.working, self.work = asyncio.Event(), asyncio.Event()

    async def say(self, message) -> None:
        if message.body == self.stops_at:
            self.working.set()
            await self.work.wait()

    async def __aenter__(self):
        await self.mq.open()
        self.given.members.append(self.mq.client_id)
        self.listener = self.mq.listen("T", self.watch.handle, ordered=True)
        await self.listener.start()
        return self

    async def __aexit__(self, *_):
        self.work.set()
        await self.mq.close()

    async def run(self, work):
        return await (self.mq._client._twin or self.mq._client).io.run(work)

    async def rebalance(self) -> None:
        await self.run(self.listener._started._rebalance_once())


@pytest.fixture
def given() -> Given:
    return Given()


@pytest.mark.feature("F202", "F179")
async def test_a_takeover_waits_for_the_handler_that_runs(consuming, one_queue, given, tools):
    await put(consuming, 5)
    async with Member(tools, consuming, given, b"1") as a, Member(tools, consuming, given) as b:
        await a.working.wait()
        given.owners = [1]
        await a.rebalance()
        await b.rebalance()
        assert (a.listener.assigned, b.listener.assigned) == ([], [])
        assert a.listener.locked == Q[:1], "the handler still runs"
        a.work.set()
        await tools.until(one_queue, lambda: len(b.watch.seen) == 3)
        assert b.listener.locked == Q[:1]
    assert a.watch.seen == [b"0", b"1"]
    assert b.watch.seen == [b"2", b"3", b"4"], "nothing twice"


async def test_a_queue_that_comes_back_while_its_handler_runs(consuming, one_queue, given, tools):
    await put(consuming, 5)
    async with Member(tools, consuming, given, b"1") as a, Member(tools, consuming, given):
        await a.working.wait()
        for owner in (1, 0, 1, 0):
            given.owners = [owner]
            await a.rebalance()
        assert a.watch.running, "and nothing beside it: Watch looks"
        a.work.set()
        await tools.until(one_queue, lambda: len(a.watch.seen) == 5)
    assert a.watch.seen == [b"%d" % number for number in range(5)]


async def test_a_pause_is_not_waited_for(consuming, one_queue, given, tools):
    await put(consuming, 2)
    failed = asyncio.Event()

    class Failing(Member):
        async def say(self, message):
            failed.set()
            raise ValueError("never")

    async with (
        Failing(tools, consuming, given, redelivery_delay_ms=30_000) as a,
        Member(tools, consuming, given) as b,
    ):
        await failed.wait()
        await tools.until(one_queue, lambda: a.listener.counts.failed == 1)
        given.owners = [1]
        await a.rebalance()
        await b.rebalance()
        await tools.until(one_queue, lambda: b.watch.seen == [b"0", b"1"])


async def test_closing_waits_for_handlers_and_keeps_the_lock_of_those_that_stay(
    consuming, broker, cluster, given, tools
):
    cluster.topics["T"] = (2, 2)
    await put(consuming, 3)
    await put(consuming, 1, Q[1])
    async with Member(tools, consuming, given, b"1", await_termination_ms=0) as a:
        await a.working.wait()
        await a.listener.close()
        assert broker.locks == {("g", Q[0]): a.mq.client_id}
        assert broker.committed["g", "T", 0] == 1
        assert broker.committed["g", "T", 1] == 1


async def test_a_lock_of_another_is_waited_for(consuming, broker, cluster, given, tools):
    cluster.topics["T"] = (2, 2)
    await put(consuming, 2)
    await put(consuming, 1, Q[1])
    broker.lock("somebody", Q[0])
    async with Member(tools, consuming, given) as a:
        await tools.until(broker, lambda: len(a.watch.seen) == 1)
        assert a.listener.assigned == a.listener.locked == [Q[1]]
        broker.unlock("somebody", Q[0])
        await a.rebalance()
        await tools.until(broker, lambda: len(a.watch.seen) == 3)
        assert a.listener.locked == Q[:2]


async def test_a_lock_that_is_not_wanted_any_more_is_given_back(consuming, one_queue, given, tools):
    """It was granted, but the answer was lost, and then the share changed."""

    def cut(_request):
        one_queue.lock(a.mq.client_id, Q[0])
        raise Cut

    one_queue.faults[LockBatchMq] = always(cut)
    a = Member(tools, consuming, given)
    async with a:
        assert a.listener.assigned == []
        one_queue.faults.clear()
        given.owners = [1]
        await tools.until(one_queue, lambda: one_queue.locks == {})


# -- locks that lapse -----------------------------------------------------------------------------


def renewing(monkeypatch, interval_ms=5) -> None:
    monkeypatch.setattr(ordered_consumer, "RENEW_MS", interval_ms)
    monkeypatch.setattr(ordered_consumer, "RENEW_AGAIN_MS", interval_ms)


async def test_locks_are_refreshed(consuming, broker, given, tools, monkeypatch):
    renewing(monkeypatch)
    async with Member(tools, consuming, given) as a:
        count = len(broker.requests(LockBatchMq))
        await tools.until(broker, lambda: len(broker.requests(LockBatchMq)) > count + 2)
        hold = a.listener._started._locks.hold(Q[0])
        before = hold.asked_ms
        await tools.until(broker, lambda: hold.asked_ms > before)


async def test_a_lost_lock_stops_the_queue_without_a_commit(
    consuming, one_queue, given, tools, monkeypatch
):
    renewing(monkeypatch)
    await put(consuming, 5)
    async with Member(tools, consuming, given, b"1") as a:
        await a.working.wait()
        one_queue.lock("somebody", Q[0])
        await tools.until(one_queue, lambda: a.listener.assigned == [])
        one_queue.commit("T", 0, 4)  # the other one goes on
        a.work.set()
        await tools.until(one_queue, lambda: not a.listener._started._leaving)
        assert a.watch.seen == [b"0", b"1"]
        assert one_queue.committed["g", "T", 0] == 4
        one_queue.unlock("somebody", Q[0])
        await tools.until(one_queue, lambda: a.watch.seen == [b"0", b"1", b"4"])


async def test_without_answers_a_lock_lapses_here_and_goes_on_when_it_is_refreshed(
    consuming, one_queue, given, tools, monkeypatch
):
    renewing(monkeypatch)
    await put(consuming, 5)
    async with Member(tools, consuming, given, b"1") as a:
        await a.working.wait()
        one_queue.faults[LockBatchMq] = always(Answer(1, remark="no"))
        count = len(one_queue.requests(LockBatchMq))
        await tools.until(
            one_queue, lambda: len(one_queue.requests(LockBatchMq)) > count + 1
        )  # none is under way any more
        a.listener._started._locks.hold(Q[0]).asked_ms -= 30_000
        assert a.listener.locked == []
        a.work.set()
        await tools.until(one_queue, lambda: a.listener.counts.consumed == 2)
        assert a.watch.seen == [b"0", b"1"], "nothing is handed over"
        one_queue.faults.clear()
        await tools.until(one_queue, lambda: len(a.watch.seen) == 5)
    assert a.watch.seen == [b"%d" % number for number in range(5)]


async def test_a_queue_whose_lock_expired_is_started_again(
    consuming, one_queue, given, tools, monkeypatch
):
    """Even though the broker grants it again: somebody may have had it meanwhile."""
    renewing(monkeypatch)
    await put(consuming, 5)
    async with Member(tools, consuming, given, b"1") as a:
        await a.working.wait()
        a.listener._started._locks.hold(Q[0]).asked_ms -= 60_000
        one_queue.commit("T", 0, 3)
        await tools.until(one_queue, lambda: a.listener.assigned == [])
        a.work.set()
        await tools.until(one_queue, lambda: a.watch.seen == [b"0", b"1", b"3", b"4"])


# -- others ---------------------------------------------------------------------------------------


async def test_a_reset_waits_for_the_handler_that_runs(consuming, one_queue, given, tools):
    await put(consuming, 3)
    async with Member(tools, consuming, given, b"1") as a:
        await a.working.wait()
        await a.mq.admin.offsets.reset("g", "T", 0)
        await tools.until(one_queue, lambda: a.listener.assigned == [])
        a.work.set()
        await tools.until(one_queue, lambda: len(a.watch.seen) == 5)
        assert not one_queue.requests(UnlockBatchMq)
    assert a.watch.seen == [b"0", b"1", b"0", b"1", b"2"]
    assert one_queue.committed["g", "T", 0] == 3


@pytest.mark.feature("F192")
async def test_broadcasting_needs_no_locks(consuming, broker, tmp_path, tools):
    await put(consuming, 3)
    settings = {"message_model": MessageModel.BROADCASTING, "offsets_dir": str(tmp_path)}
    failed = []

    class Failing(Member):
        async def say(self, message):
            if message.body == b"1" and not failed:
                failed.append(1)
                raise ValueError("once")

    given = Given()
    async with (
        Failing(tools, consuming, given, **settings) as a,
        Member(tools, consuming, given, **settings) as b,
    ):
        await tools.until(broker, lambda: len(a.watch.seen) + len(b.watch.seen) == 7)
        assert a.listener.locked == []
    assert a.watch.seen == [b"0", b"1", b"1", b"2"], "in order, not passed over"
    assert b.watch.seen == [b"0", b"1", b"2"]
    assert not broker.requests(LockBatchMq)


async def test_it_tells_of_its_locks(consuming, broker, given, tools):
    given.owners = [0, 1]
    async with Member(tools, consuming, given) as a:
        info = a.listener._started.running_info()
        assert {queue: one.locked for queue, one in info.queues.items()} == {
            Q[0]: True,
            Q[2]: True,
        }


async def test_a_rebalance_that_comes_late_takes_no_locks_of_a_closed_member(
    consuming, broker, given, tools
):
    async with Member(tools, consuming, given) as a:
        consumer = a.listener._started
        assert broker.locks
        await a.listener.close()
        await a.run(consumer._rebalance_once())
        assert broker.locks == {}
        assert consumer.assigned == []


@pytest.mark.fault
async def test_locks_are_asked_of_the_next_leader_at_once(
    cluster, broker, consuming, tools, monkeypatch
):
    monkeypatch.setattr(ordered_consumer, "RENEW_MS", 3_600_000)
    follower = cluster.follower(broker)
    await put(consuming, 3)
    watch = tools.Watch()
    async with consuming() as mq, mq.listen("T", watch.handle, ordered=True):
        await tools.until(broker, lambda: len(watch.seen) == 3)
        loop = tools.core(mq).io.loop
        loop.call_soon_threadsafe(cluster.nobody_leads, broker)
        loop.call_soon_threadsafe(cluster.lead, follower)
        await mq.send("T", b"3", queue=Q[0])
        await tools.until(follower, lambda: follower.requests(LockBatchMq) and len(watch.seen) == 4)
    assert watch.seen == [b"0", b"1", b"2", b"3"]
