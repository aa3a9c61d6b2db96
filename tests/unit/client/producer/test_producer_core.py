"""Where messages go, and what is refused before it travels."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kourou import Message
from kourou.client.producer import producer_core as producer_module
from kourou.errors import BadRequest, NoPermission, TopicNotFound
from kourou.model.topic import MessageQueue


@pytest.mark.feature("F162", "F010", "F058")
async def test_messages_take_turns_over_queues_and_brokers(cluster, producing):
    brokers = [cluster.broker("broker-a"), cluster.broker("broker-b")]
    cluster.topics["T"] = (3, 3)
    async with producing() as mq:
        results = [await mq.send("T", b"x") for _ in range(12)]
    assert all(len(broker.stored("T")) == 6 for broker in brokers)
    assert len({result.queue for result in results}) == 6


async def test_without_a_default_topic_an_unknown_topic_is_an_error(cluster, producing):
    cluster.broker()
    del cluster.topics["TBW102"]
    async with producing() as mq:
        with pytest.raises(TopicNotFound):
            await mq.send("New", b"x")


@pytest.mark.feature("F163")
async def test_three_ways_to_choose_the_queue(cluster, producing):
    cluster.broker()
    cluster.topics["T"] = (8, 8)
    async with producing() as mq:
        queue = MessageQueue("T", "broker-a", 5)
        assert (await mq.send("T", b"", queue=queue)).queue == queue
        keyed = {(await mq.send("T", b"", order_key="order-1")).queue for _ in range(5)}
        assert len(keyed) == 1
        result = await mq.send(
            "T", b"x", keys="k", selector=lambda qs, m, arg: qs[arg + len(m.keys)], argument=2
        )
        assert result.queue.queue_id == 3
        with pytest.raises(BadRequest, match="is not a writable queue of topic"):
            await mq.send("T", b"", queue=MessageQueue("T", "broker-a", 8))


async def test_topics_of_the_brokers_own(cluster, producing):
    cluster.broker()
    async with producing() as mq:
        with pytest.raises(NoPermission):
            await mq.send("SCHEDULE_TOPIC_XXXX", b"")
        with pytest.raises(BadRequest):
            await mq.send("no such/topic", b"")


@pytest.mark.feature("F248")
async def test_every_way_to_send_can_delay(one_queue, producing):
    async with producing(delay_levels="1s 10m") as mq:
        await mq.send("T", b"", delay_level=3)
        await mq.send("T", b"", delay=timedelta(minutes=10), tag="t")
        await (await mq.send_async("T", b"", delay_level=1))
        await mq.send_oneway("T", b"", delay_level=40)
        await mq.send_many([Message("T", b"", delay_level=2), Message("T", b"")])
        with pytest.raises(BadRequest, match="batch"):
            await mq.send_batch("T", [Message("T", b"", delay_level=1)])
        with pytest.raises(BadRequest, match="11:00"):
            await mq.send("T", b"", delay=timedelta(minutes=11))
    levels = [one.queue_id + 1 for one in one_queue.stored("SCHEDULE_TOPIC_XXXX")]
    assert levels == [1, 2, 2, 3, 18], "a level above the last is the last"
    at_once = [one for one in one_queue.stored("T") if "REAL_TOPIC" not in one.properties]
    assert ["DELAY" in one.properties for one in at_once] == [False]


async def test_wait_false_asks_for_an_early_answer(cluster, producing):
    broker = cluster.broker()
    async with producing() as mq:
        await mq.send("T", b"", wait_store_ok=False)
        await mq.send("T", b"")
    assert [frame.wait for frame in broker.frames] == [False, True]
    assert "WAIT" not in broker.stored("T")[0].properties


@pytest.mark.parametrize("timeout_ms", [0, -1, 0.5, 500.0, True, "500", 120_001])
async def test_what_is_no_time_is_refused_at_once(one_queue, producing, timeout_ms):
    async with producing() as mq:
        with pytest.raises(BadRequest, match="timeout_ms"):
            await mq.send("T", b"", timeout_ms=timeout_ms)
        with pytest.raises(BadRequest, match="timeout_ms"):
            await mq.send_batch("T", [b""], timeout_ms=timeout_ms)
    assert not one_queue.frames


async def test_timeouts_that_are_computed_do_not_fill_the_memory(cluster, producing, monkeypatch):
    monkeypatch.setattr(producer_module, "_TERMS_MAX", 8)
    monkeypatch.setattr(producer_module, "_SPECIAL_TARGETS_MAX", 8)
    cluster.broker()
    cluster.topics["T"] = (2, 2)
    async with producing() as mq:
        for timeout_ms in range(5_000, 5_040):
            await mq.send("T", b"", timeout_ms=timeout_ms, order_key="k")
        core = mq._core
        assert len(core._terms) <= 8
        assert len(core.known("T").special) <= 8


async def test_a_producer_joins_its_group_also_where_the_route_is_known_already(
    one_queue, producing, tools
):
    """Its brokers ask members of the group, and push replies to them, so they have to know it."""
    async with producing() as mq:
        await mq.admin.topics.route("T")
        await mq.send("T", b"x")
        await tools.until(one_queue, lambda: "p" in one_queue.producers)


async def test_an_unknown_topic_is_waited_for_while_a_broker_has_no_leader(
    cluster, broker, producing
):
    """Name servers hear of topics from leaders only."""
    follower = cluster.follower(broker)
    cluster.nobody_leads(broker)
    topics = dict(cluster.topics)
    cluster.topics.clear()

    def lead() -> None:
        cluster.topics.update(topics)
        cluster.lead(follower)

    async with producing() as mq:
        mq._client.io.loop.call_soon_threadsafe(mq._client.io.loop.call_later, 0.1, lead)
        assert (await mq.send("T", b"x")).queue.broker_name == "broker-a"
    assert len(follower.stored("T")) == 1
