"""A group's members get every message at least once, and commit only what is done."""

from __future__ import annotations

import asyncio

import pytest

from kourou import Client, ClientSettings, ConsumerSettings
from kourou.client.consumer.offsets import RemoteOffsets
from kourou.client.consumer.push_consumer import QUEUES_AT_ONCE, StartOffsets
from kourou.client.session.connections import HURRIED_MS
from kourou.errors import BadRequest, Code, Unavailable
from kourou.model.subscription import ConsumeFromWhere, MessageModel
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import encode_consumer_ids
from kourou.protocol.messages.groups import (
    GetConsumerListByGroup,
    UnregisterClient,
)
from kourou.protocol.messages.pulls import UpdateConsumerOffset
from kourou.protocol.messages.sends import ConsumerSendMsgBack, SendMessage
from kourou_rigs.clock import ManualClock
from kourou_rigs.wire_faults import Answer, always

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@pytest.mark.feature("F194", "F195")
async def test_later_starts_go_on_from_the_progress(broker, consuming, tools):
    await tools.fill(consuming, 20)
    first = tools.Inbox(20)
    async with consuming() as mq, mq.listen("T", first.handle):
        await first.full.wait()
    second = tools.Inbox(1)
    async with consuming() as mq, mq.listen("T", second.handle):
        await mq.send("T", b"new")
        await second.full.wait()
    assert second.bodies == [b"new"]


async def test_a_first_start_is_committed_even_if_nothing_came(broker, consuming, tools):
    await tools.fill(consuming, 8)
    inbox = tools.Inbox(1)
    async with consuming(consume_from_where=LAST) as mq, mq.listen("T", inbox.handle):
        pass
    assert [broker.committed["g", "T", n] for n in range(4)] == [2, 2, 2, 2]


@pytest.mark.feature("F196", "F197")
async def test_what_was_not_finished_is_not_committed(broker, consuming, tools):
    queue = MessageQueue("T", "broker-a", 0)
    async with consuming() as mq:
        for number in range(5):
            await mq.send("T", b"%d" % number, queue=queue)
    inbox = tools.Inbox(4)

    async def handler(message):
        if message.body == b"2":
            raise ValueError("never")
        await inbox.handle(message)

    # Nobody takes it back, so it has to wait here, and the offset with it.
    refused = always(Answer(Code.SYSTEM_ERROR, remark="not now"))
    broker.faults[ConsumerSendMsgBack] = broker.faults[SendMessage] = refused
    async with consuming(local_redelivery_delay_ms=30_000) as mq, mq.listen("T", handler):
        await inbox.full.wait()
    assert broker.committed["g", "T", 0] == 2
    again = tools.Inbox(3)
    async with consuming() as mq, mq.listen("T", again.handle):
        await again.full.wait()
    assert sorted(again.bodies) == [b"2", b"3", b"4"]


async def test_a_body_of_the_wrong_type_is_a_failure(broker, consuming):
    async with consuming() as mq:
        await mq.send("T", b"no number")
        failed = asyncio.Event()

        async def handler(message):
            try:
                return message.body
            finally:
                failed.set()

        listening = mq.listen("T", handler, body_type=int)
        async with listening as listener:
            await failed.wait()
            await listener.commit()
            await listener.commit()
            assert listener.counts.failed >= 1
    broker.pass_time(1_000)
    [first, *_] = broker.stored("%RETRY%g")
    assert first.body == b"no number"


@pytest.mark.feature("F007", "F202", "F203", "F201", "F015", "F191")
async def test_members_share_the_queues_and_take_over(broker, consuming, tools):
    await tools.fill(consuming, 40)
    async with consuming() as first_mq:
        first = tools.Inbox(1_000)
        async with first_mq.listen("T", first.handle) as one:
            assert len(one.assigned) == 4
            async with consuming() as second_mq:
                second = tools.Inbox(1_000)
                async with second_mq.listen("T", second.handle) as two:
                    await tools.until(broker, lambda: len(one.assigned) == len(two.assigned) == 2)
                    assert not set(one.assigned) & set(two.assigned)
            await tools.until(broker, lambda: len(one.assigned) == 4)
            await first_mq.send_many("T", [b"n%d" % n for n in range(8)])
            everything = set(tools.numbers(40)) | {b"n%d" % n for n in range(8)}
            await tools.until(broker, lambda: everything <= set(first.bodies) | set(second.bodies))


def rarely_balancing(cluster, interval_ms: int) -> Client:
    """A client that shares queues out again so seldom, unless something tells it to."""
    return Client(
        "127.0.0.1:9876",
        settings=ClientSettings(rebalance_interval_ms=interval_ms),
        consumer=ConsumerSettings(consumer_group="g"),
        dial=cluster.dial,
    )


@pytest.mark.feature("F202")
async def test_a_changed_route_shares_queues_out_again_at_once(broker, cluster, tools):
    """Not only when the interval is over, which here is an hour."""
    async with (
        rarely_balancing(cluster, 3_600_000) as mq,
        mq.listen("T", tools.Inbox(1).handle) as listener,
    ):
        for count in (6, 1):
            cluster.topics["T"] = (count, count)
            await tools.refresh(mq)
            await tools.until(broker, lambda n=count: len(listener.assigned) == n)


@pytest.mark.feature("F202")
async def test_a_change_during_a_rebalance_is_not_lost(broker, cluster, tools):
    """A member comes while the list of members is being answered."""
    async with (
        rarely_balancing(cluster, 3_600_000) as mq,
        mq.listen("T", tools.Inbox(1).handle) as listener,
    ):

        def comes_meanwhile(_request):
            ids = list(broker.members["g"])
            broker.join("another")
            return Answer(body=encode_consumer_ids(ids))

        broker.faults[GetConsumerListByGroup] = [comes_meanwhile]
        tools.core(mq).io.loop.call_soon_threadsafe(listener._started.rebalance_soon)
        while len(listener.assigned) != 2:  # noqa: ASYNC110 - nothing else tells of it
            await asyncio.sleep(0)


async def test_any_thread_may_ask_what_is_assigned_while_that_changes(consuming, tools):
    class Changing(str):
        def startswith(self, *_):
            queues.popitem()
            return False

    async with consuming() as mq, mq.listen("T", tools.Inbox(1).handle) as listener:
        true = listener._started._queues
        queues = {MessageQueue(Changing("T"), "b", number): None for number in range(4)}
        asked, listener._started._queues = list(queues), queues
        assert listener.assigned == asked
        listener._started._queues = true


async def test_a_queue_whose_pulling_ended_by_itself_is_started_again(
    broker, consuming, tools, caplog
):
    await tools.fill(consuming, 4)
    inbox = tools.Inbox(5)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await tools.until(broker, lambda: listener.counts.consumed == 4)
        consumer = listener._started

        async def end_one():
            consumed = consumer._queues[MessageQueue("T", "broker-a", 2)]
            consumed._task.cancel()
            await asyncio.sleep(0)
            consumer.rebalance_soon()

        await tools.core(mq).io.run(end_one())
        await mq.send("T", b"new", queue=MessageQueue("T", "broker-a", 2))
        await inbox.full.wait()
    assert sorted(inbox.bodies) == [b"0", b"1", b"2", b"3", b"new"]


async def test_a_member_tells_of_itself(one_queue, consuming, tools):
    await tools.fill(consuming, 3)
    inbox = tools.Inbox(3)
    async with consuming() as mq, mq.listen("T", inbox.handle, "*") as listener:
        await tools.until(one_queue, lambda: listener.counts.consumed == 3)
        consumer = listener._started

        async def state():
            consumer.sample()
            return consumer.status("T"), consumer.running_info()

        status, info = await tools.core(mq).io.run(state())
    queue = MessageQueue("T", "broker-a", 0)
    assert status == {queue: 3}
    assert [one.topic for one in info.subscriptions] == ["T", "%RETRY%g"]
    assert info.queues[queue].commit_offset == 3
    assert info.properties["consumerGroup"] == "g"
    assert info.rates.keys() >= {"T"}
    assert info.started_ms > 0


async def test_a_topic_that_appears_later(broker, consuming, cluster, tools):
    del cluster.topics["T"]
    inbox = tools.Inbox(1)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        assert listener.assigned == []
        cluster.topics["T"] = (2, 2)
        await mq.send("T", b"x")
        await tools.refresh(mq)
        await inbox.full.wait()


async def test_a_lost_queue_commits_and_forgets(broker, consuming, cluster, tools):
    await tools.fill(consuming, 8)
    inbox = tools.Inbox(8)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        cluster.topics["T"] = (1, 1)
        await tools.refresh(mq)
        lost = [("g", "T", number) for number in (1, 2, 3)]
        await tools.until(broker, lambda: [broker.committed.get(key) for key in lost] == [2] * 3)
        assert len(listener.assigned) == 1


async def test_one_client_is_one_member(broker, consuming, tools):
    async with consuming() as mq, mq.listen("T", tools.Inbox(1).handle):
        with pytest.raises(BadRequest, match="this client already has a consumer in group"):
            await mq.listen("T", tools.Inbox(1).handle).start()


async def test_leaving_unregisters_the_consumer(broker, consuming, tools):
    async with consuming() as mq:
        async with mq.listen("T", tools.Inbox(1).handle):
            assert mq.client_id in broker.members["g"]
        assert (mq.client_id, "g") in broker.left


@pytest.mark.fault
async def test_a_broker_that_comes_back(broker, consuming, cluster, tools):
    inbox = tools.Inbox(2)
    async with consuming(pull_pause_ms_when_exception=5) as mq, mq.listen("T", inbox.handle):
        await mq.send("T", b"before")
        await tools.until(broker, lambda: len(inbox.bodies) == 1)
        # The connection ends under the held pulls, and the broker forgets its members.
        broker.disconnect()
        for wire in cluster.wires_to(broker):
            wire.lose()
        await mq.send("T", b"after")
        await inbox.full.wait()
        await tools.until(broker, lambda: mq.client_id in broker.members.get("g", {}))


@pytest.mark.parametrize(
    ("error", "attempts"), [(asyncio.CancelledError, 2), (SystemExit, 1)], ids=["stopped", "failed"]
)
async def test_broadcasting_repeats_what_was_stopped_and_not_what_failed(
    broker, consuming, tools, tmp_path, error, attempts
):
    await tools.fill(consuming, 1)
    seen = []

    async def handler(message):
        seen.append(message.attempt)
        if message.attempt == 1:
            raise error

    settings = {"message_model": MessageModel.BROADCASTING, "offsets_dir": str(tmp_path)}
    async with (
        consuming(local_redelivery_delay_ms=10, **settings) as mq,
        mq.listen("T", handler) as listener,
    ):
        await tools.until(broker, lambda: listener.counts.consumed == 1)
    assert seen == [1, 2][:attempts]


# -- an application's own parts -------------------------------------------------------------------


class BrokenStore:
    """An offset store that works from the third call on."""

    def __init__(self) -> None:
        self.calls = 0
        self.saved: dict = {}

    def _call(self):
        self.calls += 1
        if self.calls < 3:
            raise RuntimeError("the database is away")

    async def load(self, queue):
        self._call()
        return self.saved.get(queue)

    async def save(self, offsets):
        self._call()
        self.saved.update(offsets)


@pytest.mark.fault
@pytest.mark.feature("F307")
async def test_an_offset_store_that_fails_is_asked_again(broker, consuming, tools, caplog):
    await tools.fill(consuming, 8)
    inbox, store = tools.Inbox(8), BrokenStore()
    async with consuming() as mq, mq.listen("T", inbox.handle, offsets=store):
        await inbox.full.wait()
    assert "the database is away" in caplog.text
    assert {offset for queue, offset in store.saved.items() if queue.topic == "T"} == {2}
    assert broker.committed == {}


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
async def test_an_allocation_that_fails_keeps_what_there_is(broker, consuming, caplog, error):
    class Broken:
        name = "BROKEN"

        def __call__(self, queues, clients, client):
            raise error

    async with consuming(allocation=Broken()) as mq, mq.listen("T", print) as listener:
        assert listener.assigned == []
    assert error.__name__ in caplog.text


async def test_a_broken_topic_name_leaves_nothing_behind(broker, consuming, tools):
    async with consuming() as mq:
        with pytest.raises(BadRequest):
            await mq.listen("no topic!", tools.Inbox(1).handle).start()
        async with mq.listen("T", tools.Inbox(1).handle):
            pass


# -- another leader --------------------------------------------------------------------------------


@pytest.mark.fault
@pytest.mark.feature("F135", "F195")
async def test_consuming_goes_on_when_another_member_leads(broker, consuming, cluster, tools):
    """At the follower while nobody leads; offsets are told to the next leader again."""
    follower = cluster.follower(broker)
    await tools.fill(consuming, 8)
    inbox = tools.Inbox(16)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await tools.until(broker, lambda: len(inbox.bodies) == 8)
        await listener.commit()
        assert sum(broker.committed.values()) == 8
        io = mq._client.io
        io.loop.call_soon_threadsafe(cluster.nobody_leads, broker)
        sending = asyncio.gather(*(mq.send("T", b"%d" % n) for n in range(8, 16)))
        io.loop.call_soon_threadsafe(io.loop.call_later, 0.1, cluster.lead, follower)
        await sending
        await inbox.full.wait()
        await tools.until(follower, lambda: sum(follower.committed.values()) >= 8)
    assert sorted(map(int, inbox.bodies)) == list(range(16))
    assert sum(follower.committed.values()) == 16


# -- closing ---------------------------------------------------------------------------------------


async def test_closing_finishes_running_handlers(broker, consuming, tools):
    await tools.fill(consuming, 1)
    started, gate, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(_message):
        started.set()
        await gate.wait()
        finished.set()

    async with consuming() as mq:
        listener = await mq.listen("T", handler).start()
        await started.wait()
        closing = asyncio.ensure_future(listener.close())
        await asyncio.sleep(0)
        gate.set()
        await closing
    assert finished.is_set()
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 1


async def test_closing_does_not_wait_for_ever(broker, consuming, caplog, tools):
    await tools.fill(consuming, 1)
    started, gate = asyncio.Event(), asyncio.Event()

    async def handler(_message):
        started.set()
        await gate.wait()

    async with consuming(await_termination_ms=5) as mq, mq.listen("T", handler):
        await started.wait()
    assert "ms; their messages will be redelivered" in caplog.text
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 0
    gate.set()


@pytest.mark.fault
async def test_closing_waits_for_no_broker_that_is_gone(broker, consuming, cluster, tools, caplog):
    await tools.fill(consuming, 8)
    inbox = tools.Inbox(8)
    mq = consuming()
    async with mq:
        await mq.send("T", b"last")
        async with mq.listen("T", inbox.handle) as listener:
            await inbox.full.wait()
            await tools.until(broker, lambda: listener.counts.consumed == 9)
            wires = cluster.wires_to(broker)
            cluster.down.add(broker.address)
            asked = [wire.deadlines[:] for wire in wires]
            await listener.close()
    last_words = {UpdateConsumerOffset.code, UnregisterClient.code}
    for wire, before in zip(wires, asked, strict=True):
        # A heartbeat may still be due, or a pull; closing waits for neither.
        assert not last_words & {code for code, _ in wire.deadlines[len(before) :]}
    assert "not committed at close; some messages will be redelivered" in caplog.text
    assert "not connected to" in caplog.text


async def test_what_closing_asks_of_a_broker_that_lives_has_a_short_deadline(
    broker, consuming, cluster, tools
):
    await tools.fill(consuming, 4)
    inbox = tools.Inbox(4)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        await tools.until(broker, lambda: listener.counts.consumed == 4)
        [wire] = cluster.wires_to(broker)
        before = len(wire.deadlines)
        await listener.close()
        asked = dict(wire.deadlines[before:])
    assert asked[UpdateConsumerOffset.code] == asked[UnregisterClient.code] == HURRIED_MS
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 4


# -- where a group begins --------------------------------------------------------------------------


QUEUES = [MessageQueue("T", "broker-a", number) for number in range(QUEUES_AT_ONCE)]


class Facts:
    """A broker that knows of even queues, fails for the third, and counts who asks together."""

    def __init__(self) -> None:
        self.asking = self.asking_max = 0

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        return await self.load(queue)

    async def load(self, queue: MessageQueue) -> int | None:
        self.asking += 1
        self.asking_max = max(self.asking_max, self.asking)
        await asyncio.sleep(0)
        self.asking -= 1
        if queue.queue_id == 3:
            raise Unavailable("nobody leads")
        return None if queue.queue_id % 2 else queue.queue_id

    async def max_offset(self, queue: MessageQueue) -> int:
        return 1_000 + queue.queue_id


def starts(facts: Facts, offsets: object) -> StartOffsets:
    return StartOffsets(ConsumerSettings(consumer_group="g"), offsets, facts, ManualClock())  # type: ignore[arg-type]


async def test_brokers_are_asked_for_many_queues_together() -> None:
    facts = Facts()
    asked = starts(facts, RemoteOffsets("g", facts))  # type: ignore[arg-type]
    assert asked.at_once == QUEUES_AT_ONCE
    found = await asked.of(QUEUES)
    assert facts.asking_max == QUEUES_AT_ONCE
    with pytest.raises(Unavailable, match="nobody leads"):
        raise found.pop(3)  # type: ignore[misc]
    assert found == [
        1_000 + one.queue_id if one.queue_id % 2 else one.queue_id
        for one in QUEUES
        if one.queue_id != 3
    ]


async def test_an_applications_store_is_asked_for_one_queue_after_the_other() -> None:
    asked = starts(Facts(), Facts())
    assert asked.at_once == 1
    assert await asked.of(QUEUES[:1]) == [0]


async def test_more_queues_than_are_requested_at_once_are_started_in_order(
    broker, consuming, cluster, tools
):
    count = 2 * QUEUES_AT_ONCE + 1
    cluster.topics["T"] = (count, count)
    async with consuming() as mq, mq.listen("T", tools.Inbox(1).handle) as listener:
        started = [queue.queue_id for queue in listener._started._queues if queue.topic == "T"]
        assert started == list(range(count))
