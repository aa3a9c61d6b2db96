"""Leases over a real cluster: handed out, settled, expired, lost with their gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kourou.model.names import dlq_topic
from kourou.model.topic import MessageQueue
from kourou.testing.cluster import unique_name
from kourou_console.api import leases as api
from kourou_console.gateway import Gateway
from kourou_console.http.responses import HttpError
from kourou_console.leases.leases import Leases

MakeGateway = Callable[[], Awaitable[Gateway]]


async def receive(gateway: Gateway, group: str, topic: str, **body: Any) -> list[api.Leased]:
    where = api.InGroupTopic(group, topic)
    found = await api.receive_messages(gateway, where, api.Receive(**{"wait_ms": 10_000, **body}))
    return found.items


async def ack(gateway: Gateway, leased: api.Leased) -> str:
    return (await api.ack_lease(gateway, api.OneLease(leased.lease))).state


def bodies(items: list[api.Leased]) -> list[str | None]:
    return [one.message.body for one in items]


async def test_what_is_acknowledged_is_committed(gateway, group, topic):
    await gateway.client.send_many(topic, ["a", "b", "c"])
    items = await receive(gateway, group, topic, max=10)
    assert bodies(items) == ["a", "b", "c"]
    for one in items:
        assert await ack(gateway, one) == "acked"
    assert await ack(gateway, items[0]) == "acked"  # as said before
    await api.leave_group(gateway, api.InGroup(group))
    assert await gateway.admin.offsets.lag(group, topic) == 0


async def test_a_lease_that_expires_is_handed_out_again(cluster, gateway, group, topic):
    await gateway.client.send(topic, "a")
    [first] = await receive(gateway, group, topic, invisible_ms=30_000)
    assert await receive(gateway, group, topic, wait_ms=0) == []
    cluster.clock.advance(seconds=31)
    [second] = await receive(gateway, group, topic)
    assert (second.message.body, second.attempt) == ("a", 2)
    with pytest.raises(HttpError, match="expired") as refused:
        await ack(gateway, first)
    assert refused.value.status == 410
    assert await ack(gateway, second) == "acked"


async def test_an_extended_lease_lasts_longer(cluster, gateway, group, topic):
    await gateway.client.send(topic, "a")
    [one] = await receive(gateway, group, topic, invisible_ms=30_000)
    body = api.Extension(invisible_ms=120_000)
    extended = await api.extend_lease(gateway, api.OneLease(one.lease), body)
    assert extended.expires_ms is not None
    assert extended.expires_ms > one.expires_ms
    cluster.clock.advance(seconds=60)
    assert await receive(gateway, group, topic, wait_ms=0) == []
    assert await ack(gateway, one) == "acked"


async def test_a_retry_comes_again_from_the_broker(cluster, gateway, group, topic):
    await gateway.client.send(topic, "a", tag="t")
    [one] = await receive(gateway, group, topic)
    body = api.Retry(delay_level=1)
    assert (await api.retry_lease(gateway, api.OneLease(one.lease), body)).state == "retried"
    cluster.clock.advance(seconds=2)
    [again] = await receive(gateway, group, topic)
    assert (again.message.body, again.attempt, again.message.topic) == ("a", 2, topic)
    assert again.message.origin_id == one.message.offset_id
    with pytest.raises(HttpError, match="returned for a retry"):
        await ack(gateway, one)


async def test_a_dead_letter_lies_aside_with_its_reason(gateway, group, topic):
    await gateway.client.send(topic, "a")
    [one] = await receive(gateway, group, topic)
    body = api.DeadLettered(reason="no such order")
    state = await api.dead_letter_lease(gateway, api.OneLease(one.lease), body)
    assert state.state == "dead_lettered"
    [dead_letter] = await gateway.admin.dead_letters.of(group)
    assert (dead_letter.reason, dead_letter.topic) == ("no such order", topic)
    assert dead_letter.message.queue.topic == dlq_topic(group)


async def test_who_nobody_settles_is_a_dead_letter_in_the_end(cluster, gateway, group, topic):
    await gateway.client.send(topic, "poison")
    for attempt in range(1, 17):
        [one] = await receive(gateway, group, topic, invisible_ms=1_000)
        assert one.attempt == attempt
        cluster.clock.advance(seconds=2)
    assert await receive(gateway, group, topic, wait_ms=0) == []
    await api.leave_group(gateway, api.InGroup(group))
    [dead_letter] = await gateway.admin.dead_letters.of(group)
    assert dead_letter.reason == "its lease expired 16 times without an acknowledgement"


async def test_what_another_gateway_leased_comes_again_when_it_is_gone(
    make_gateway: MakeGateway, group, topic
):
    first, second = await make_gateway(), await make_gateway()
    await first.client.send_many(topic, ["a", "b"])
    leased = await receive(first, group, topic, max=2)
    await ack(first, leased[1])
    await first.close()
    assert bodies(await receive(second, group, topic, max=2)) == ["a", "b"]
    with pytest.raises(HttpError, match="another gateway") as refused:
        await ack(second, leased[0])
    assert refused.value.status == 404


async def test_gateways_share_a_group(make_gateway: MakeGateway, cluster, group):
    topic = cluster.create_topic(queues=2)
    first, second = await make_gateway(), await make_gateway()
    assert await receive(first, group, topic, wait_ms=0) == []
    assert await receive(second, group, topic, wait_ms=0) == []
    got: list[tuple[Gateway, api.Leased]] = []
    await first.client.send_many(topic, [str(number) for number in range(8)])
    while len(got) < 8:
        for one in (first, second):
            got += [(one, leased) for leased in await receive(one, group, topic, max=8, wait_ms=50)]
    assert sorted(str(leased.message.body) for _, leased in got) == list("01234567")
    assert {leased.message.queue for one, leased in got if one is first} in ({0}, {1})


async def test_a_lease_of_a_queue_that_went_elsewhere_is_lost(
    make_gateway: MakeGateway, cluster, group
):
    topic = cluster.create_topic(queues=2)
    first, second = await make_gateway(), await make_gateway()
    for queue in (0, 1):
        await first.client.send(topic, f"{queue}", queue=MessageQueue(topic, "broker-a", queue))
    leased: dict[str | None, api.Leased] = {}
    while len(leased) < 2:
        leased |= {one.message.body: one for one in await receive(first, group, topic, max=2)}
    [moved] = await receive(second, group, topic)  # its share of the queues is one of the two
    with pytest.raises(HttpError, match="is lost") as refused:
        await ack(first, leased.pop(moved.message.body))
    assert refused.value.status == 410
    [kept] = leased.values()
    assert await ack(first, kept) == "acked"
    assert await ack(second, moved) == "acked"


async def test_in_order_a_queue_waits_for_its_lease(cluster, gateway, group, topic):
    await gateway.client.send_many(topic, ["a", "b", "c"])
    [first] = await receive(gateway, group, topic, max=10, order=True)
    assert await receive(gateway, group, topic, max=10, order=True, wait_ms=0) == []
    await ack(gateway, first)
    [second] = await receive(gateway, group, topic, max=10, order=True)
    assert second.message.body == "b"
    await api.retry_lease(gateway, api.OneLease(second.lease), api.Retry())
    cluster.clock.advance(seconds=2)
    [again] = await receive(gateway, group, topic, order=True)
    assert (again.message.body, again.attempt) == ("b", 2)
    cluster.clock.advance(seconds=40)
    [third] = await receive(gateway, group, topic, order=True)
    assert (third.message.body, third.attempt) == ("b", 3)
    body = api.DeadLettered()
    await api.dead_letter_lease(gateway, api.OneLease(third.lease), body)
    [last] = await receive(gateway, group, topic, order=True)
    assert last.message.body == "c"
    await ack(gateway, last)
    await api.leave_group(gateway, api.InGroup(group))
    assert await gateway.admin.offsets.lag(group, topic) == 0


async def test_an_ordered_queue_goes_to_another_gateway_when_it_is_free(
    make_gateway: MakeGateway, cluster, group, topic
):
    first, second = await make_gateway(), await make_gateway()
    await first.client.send_many(topic, ["a", "b"])
    [one] = await receive(first, group, topic, order=True)
    assert await receive(second, group, topic, order=True, wait_ms=0) == []
    await ack(first, one)
    await first.close()
    [two] = await receive(second, group, topic, order=True)
    assert two.message.body == "b"


async def test_filters_are_the_groups_subscription(gateway, group, topic):
    await gateway.client.send(topic, "a", tag="x", properties={"size": "1"})
    await gateway.client.send(topic, "b", tag="y", properties={"size": "2"})
    [one] = await receive(gateway, group, topic, max=2, tags=("y",))
    assert one.message.body == "b"
    other = unique_name("group")
    [two] = await receive(gateway, other, topic, max=2, sql="size = 1")
    assert two.message.body == "a"
    with pytest.raises(HttpError, match="subscriptions clash") as refused:
        await receive(gateway, group, topic, tags=("x",))
    assert refused.value.status == 409


async def test_a_filter_that_is_not_the_other_members_is_refused(gateway, cluster, group, topic):
    async with cluster.async_client(group) as other, other.subscribe(topic, "x"):
        with pytest.raises(HttpError, match="subscriptions clash"):
            await receive(gateway, group, topic, tags=("y",))
        assert await receive(gateway, group, topic, tags=("x",), wait_ms=0) == []


async def test_a_group_that_nobody_asks_for_is_left(gateway, cluster, group, topic):
    leases = gateway.part(Leases)
    assert await receive(gateway, group, topic, wait_ms=0) == []
    await leases.look()
    assert [one.group for one in leases] == [group]
    cluster.clock.advance(minutes=3)
    await leases.look()
    assert list(leases) == []
    await gateway.client.send(topic, "a")
    [one] = await receive(gateway, group, topic, invisible_ms=240_000)
    cluster.clock.advance(minutes=3)
    await leases.look()
    assert [one.group for one in leases] == [group]  # it holds a lease
    await ack(gateway, one)
    await leases.look()
    assert list(leases) == []
    assert await gateway.admin.offsets.lag(group, topic) == 0


async def test_two_topics_of_one_group(gateway, cluster, group, topic):
    other = cluster.create_topic(queues=1)
    await gateway.client.send(topic, "a")
    assert bodies(await receive(gateway, group, topic)) == ["a"]
    await gateway.client.send(other, "b")
    assert bodies(await receive(gateway, group, other)) == ["b"]
    [use] = (await api.list_lease_groups(gateway, api.NoParameters())).items
    assert [(one.topic, one.leased) for one in use.topics] == sorted([(topic, 1), (other, 1)])


async def test_whoever_waits_is_told_at_once(gateway, group, topic):
    assert await receive(gateway, group, topic, wait_ms=0) == []
    waiting = asyncio.create_task(receive(gateway, group, topic, wait_ms=30_000))
    await asyncio.sleep(0)
    await gateway.client.send(topic, "a")
    assert bodies(await waiting) == ["a"]


async def test_several_acks_have_outcomes_of_their_own(gateway, group, topic):
    await gateway.client.send(topic, "a")
    [one] = await receive(gateway, group, topic)
    body = api.Acks([one.lease, "nonsense", one.lease[:-3] + "AAA"])
    found = await api.ack_leases(gateway, api.InGroup(group), body)
    assert [item.state for item in found.items] == ["acked", None, None]
    assert [item.error.status for item in found.items if item.error] == [404, 404]


async def test_who_waits_for_a_filter_that_cannot_judge_is_told_why(gateway, group, topic):
    source = "def match(message, context):\n    return True\n"
    await gateway.admin.filters.put(group, "every", source)
    await gateway.client.send(topic, "a")
    where = api.InGroupTopic(group, topic)
    body = api.Receive(filter="every", begin=api.Begin.FIRST)
    result = await api.receive_messages(gateway, where, body)
    while not result.missing:
        result = await api.receive_messages(gateway, where, body)
    assert result.items == []
    [one] = result.missing
    assert one.what == str(MessageQueue(topic, "broker-a", 0))
    assert "broker broker-a has no filter server online" in one.why
