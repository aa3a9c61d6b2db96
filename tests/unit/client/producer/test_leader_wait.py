"""Messages whose broker nobody leads wait for its next leader."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.producer import leader_wait
from kourou.errors import Code, TopicNotFound, Unavailable, UnknownOutcome
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.namesrv import GetRouteInfoByTopic
from kourou.protocol.messages.sends import SendRecords
from kourou_rigs.wire_faults import Answer, Cut, Frozen, always

WAIT_S = 20.0


@pytest.fixture
def follower(cluster, broker):
    return cluster.follower(broker)


def looks(cluster) -> int:
    return sum(isinstance(request, GetRouteInfoByTopic) for _, request in cluster.asked)


async def looked(cluster, tools, broker, times: int = 3) -> None:
    """The producer has asked for the route again and again."""
    before = looks(cluster)
    await tools.until(broker, lambda: looks(cluster) >= before + times)


def on_io(mq, action, *arguments):
    """Change the cluster on the thread on which it answers."""
    done = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def act() -> None:
        action(*arguments)
        loop.call_soon_threadsafe(done.set_result, None)

    mq._client.io.loop.call_soon_threadsafe(act)
    return done


@pytest.mark.feature("F168", "F176", "F230")
@pytest.mark.parametrize("down", [True, False])
async def test_a_send_waits_for_the_next_leader(cluster, broker, follower, producing, down, tools):
    # That nobody is there costs no attempt.
    async with producing(retry_times_when_send_failed=0) as mq:
        await mq.send("T", b"before")
        await on_io(mq, lambda: cluster.nobody_leads(broker, down=down))
        sending = asyncio.ensure_future(mq.send("T", b"after"))
        await looked(cluster, tools, broker)
        assert not sending.done()
        await on_io(mq, cluster.lead, follower)
        result = await sending
    assert {one.body for one in follower.stored("T")} == {b"before", b"after"}
    assert result.message_id in {one.message_id for one in follower.stored("T")}
    assert not down or len(broker.requests(SendRecords)) == 1, (
        "a dead leader is not asked again and again"
    )
    assert (follower.frames[-1].attempt > 1) is not down, "who refused it had it before"


@pytest.mark.feature("F230")
async def test_what_may_be_stored_says_so_when_it_is_sent_again(
    cluster, broker, follower, producing, tools
):
    def dies(_request):
        cluster.nobody_leads(broker)
        raise Cut

    async with producing() as mq:
        broker.faults[SendRecords] = always(dies)
        sending = asyncio.ensure_future(mq.send("T", b"x"))
        await looked(cluster, tools, broker)
        await on_io(mq, cluster.lead, follower)
        result = await sending
    (frame,) = follower.frames
    assert frame.attempt == 2, "so that the new leader looks for it"
    assert [one.message_id for one in follower.stored("T")] == [result.message_id]


@pytest.mark.feature("F179", "F181")
async def test_keys_do_not_move_while_their_broker_awaits_a_leader(
    cluster, broker, follower, producing
):
    cluster.broker("broker-b")
    async with producing() as mq:

        async def queues() -> list[MessageQueue]:
            return [
                (await mq.send("T", b"x", order_key=f"key {number}")).queue for number in range(20)
            ]

        before = await queues()
        await on_io(mq, cluster.nobody_leads, broker)
        during = asyncio.ensure_future(queues())
        await asyncio.sleep(0)
        await on_io(mq, cluster.lead, follower)
        assert await during == before


@pytest.mark.feature("F179")
async def test_who_comes_later_waits_behind_and_a_dead_leader_is_left_in_peace(
    cluster, broker, producing, tools
):
    """Also where the name server does not know yet that it is dead."""
    queue = MessageQueue("T", "broker-a", 2)
    async with producing() as mq:
        await mq.send("T", b"0", queue=queue)
        cluster.down.add(broker.address)
        futures = []
        for number in range(1, 4):
            futures.append(await mq.send_async("T", b"%d" % number, queue=queue))
            await looked(cluster, tools, broker, 1)
        (wire,) = cluster.wires_to(broker)
        sent = [code for code, _ in wire.deadlines if code == SendRecords.code]
        await on_io(mq, cluster.down.clear)
        for future in futures:
            await future
    assert len(sent) == 1, "the one before"
    assert [one.body for one in broker.stored("T", 2)] == tools.numbers(4)


async def test_what_may_go_anywhere_goes_to_another_broker(cluster, broker, follower, producing):
    other = cluster.broker("broker-b")
    async with producing() as mq:
        await mq.send("T", b"first")
        await on_io(mq, cluster.nobody_leads, broker)
        results = await mq.send_many("T", [b"x"] * 20)
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    assert len(other.stored("T")) >= 20


async def test_a_batch_waits_as_a_whole(cluster, broker, follower, producing, tools):
    async with producing() as mq:
        await mq.send("T", b"first")
        await on_io(mq, cluster.nobody_leads, broker)
        sending = asyncio.ensure_future(mq.send_batch("T", tools.numbers(50)))
        await looked(cluster, tools, broker)
        await on_io(mq, cluster.lead, follower)
        results = await sending
    assert len({result.queue for result in results}) == 1
    (frame,) = follower.frames
    assert len(frame.sizes) // 4 == 50


async def test_a_producer_that_starts_while_nobody_leads(
    cluster, broker, follower, producing, tools
):
    cluster.nobody_leads(broker)
    async with producing() as mq:
        sending = asyncio.ensure_future(mq.send("T", b"x"))
        await looked(cluster, tools, broker)
        await on_io(mq, cluster.lead, follower)
        await sending
    assert [frame.attempt for frame in follower.frames] == [1], "it was sent to nobody before"


@pytest.mark.feature("F168", "F230")
@pytest.mark.parametrize("lost", [False, True])
async def test_when_its_time_is_over_the_error_says_what_was_met(
    cluster, broker, follower, producing, lost
):
    """Not stored, unless the first attempt may have been."""

    def dies(_request):
        cluster.nobody_leads(broker, down=lost)
        if lost:
            raise Cut
        return Answer(Code.SERVICE_NOT_AVAILABLE, remark="the broker changes its role")

    broker.faults[SendRecords] = always(dies)
    async with producing() as mq:
        kind = UnknownOutcome if lost else Unavailable
        why = "connection was lost" if lost else "changes its role"
        with pytest.raises(kind, match=rf"no leader within 1\.5 s, 1 attempts.*{why}"):
            await mq.send("T", b"x", timeout_ms=1_500)
    assert not follower.frames


@pytest.mark.feature("F230")
async def test_a_later_refusal_does_not_say_that_nothing_was_stored(cluster, broker, producing):
    broker.faults[SendRecords] = [Cut, Answer(Code.DISK_FULL, remark="full")]
    async with producing() as mq:
        with pytest.raises(UnknownOutcome, match=r"full.*may be stored.*lost"):
            await mq.send("T", b"x", order_key="k")


@pytest.mark.feature("F293")
async def test_an_unknown_topic_is_looked_for_no_longer_than_a_send_may_take(
    cluster, broker, producing
):
    """Its broker may be the one that has no leader now."""
    cluster.nobody_leads(broker)
    async with producing(send_timeout_ms=300, create_topic_key="UNKNOWN") as mq:
        sending = asyncio.ensure_future(mq.send("New", b"x"))
        await asyncio.wait([sending], timeout=WAIT_S)
        assert sending.done()
        with pytest.raises(TopicNotFound):
            await sending


@pytest.mark.feature("F165")
async def test_closing_waits_no_longer_than_a_send_may_take(cluster, broker, follower, producing):
    async with producing(send_timeout_ms=300) as mq:
        await mq.send("T", b"first", timeout_ms=60_000)
        await on_io(mq, lambda: cluster.nobody_leads(broker, down=False))
        sent = await mq.send_async("T", b"x", timeout_ms=60_000)
    with pytest.raises(Unavailable, match="closed"):
        await sent


async def test_a_oneway_message_is_lost_where_nobody_leads(cluster, broker, follower, producing):
    async with producing() as mq:
        await mq.send("T", b"first")
        await on_io(mq, cluster.nobody_leads, broker)
        await mq._client.io.run(mq._client.session.routes.refresh("T"))
        await mq.send_oneway("T", b"x")
        await on_io(mq, cluster.lead, follower)
        await mq.send("T", b"last")
    assert {one.body for one in follower.stored("T")} == {b"first", b"last"}


# -- leaders that keep their connections and answer nothing ----------------------------------------


@pytest.fixture
def freeze(broker, monkeypatch):
    """Stops the leader's process: connections stand, and nothing is answered. Nobody waits long."""
    monkeypatch.setattr(leader_wait, "SILENT_MS", 0)
    monkeypatch.setattr(leader_wait, "REFRESH_MS", 20)
    return lambda: broker.faults.__setitem__(SendRecords, always(Frozen))


@pytest.mark.feature("F168", "F230")
async def test_what_a_frozen_leader_had_goes_to_the_next_one(
    cluster, broker, follower, producing, freeze, tools
):
    async with producing() as mq:
        await mq.send("T", b"before")
        freeze()
        sending = asyncio.ensure_future(mq.send("T", b"x"))
        await looked(cluster, tools, broker)
        assert not sending.done(), "a leader that is slow keeps what it has"
        await on_io(mq, cluster.lead, follower)
        result = await sending
    (frame,) = follower.frames
    assert frame.attempt == 2, "so that the new leader looks for it"
    assert result.message_id in {one.message_id for one in follower.stored("T")}


@pytest.mark.feature("F168", "F230")
async def test_it_goes_to_the_next_leader_of_that_broker_and_not_to_another_broker(
    cluster, broker, follower, producing, freeze, tools
):
    """The next leader may have it already, and looks for it; another broker cannot know."""
    other = cluster.broker("broker-b")
    async with producing() as mq:
        freeze()
        sending = [asyncio.ensure_future(mq.send("T", b"x")) for _ in range(8)]
        await looked(cluster, tools, broker)
        await on_io(mq, cluster.lead, follower)
        await asyncio.gather(*sending)
    assert {frame.attempt for frame in other.frames} == {1}
    assert {frame.attempt for frame in follower.frames} == {2}
