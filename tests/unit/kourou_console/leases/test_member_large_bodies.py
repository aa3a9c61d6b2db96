"""What one receive hands out is bounded by what its answer has of bodies; the rest waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kourou.model.limits import RECEIVE_BYTES_MAX
from kourou.model.message import SysFlag
from kourou_console.api import leases as api
from kourou_console.gateway import Gateway
from kourou_console.leases.leases import Leases
from kourou_console.leases.member import GroupMember
from kourou_console.messages.views import Budget


async def receive(gateway: Gateway, group: str, topic: str, **body: Any) -> Any:
    where = api.InGroupTopic(group, topic)
    return await api.receive_messages(gateway, where, api.Receive(**{"wait_ms": 10_000, **body}))


def member_of(gateway: Gateway, group: str) -> GroupMember:
    [member] = [one for one in gateway.part(Leases) if one.group == group]
    return member


async def until(true: Callable[[], bool]) -> None:
    """Let the loop go on until something is so."""
    while not true():  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(0)


async def taken(gateway: Gateway, group: str, topic: str) -> list[list[api.Leased]]:
    """Receives until eight messages came, each acknowledged; a receive of nothing fails."""
    answers: list[list[api.Leased]] = []
    while sum(map(len, answers)) < 8:
        found = await receive(gateway, group, topic, max=32)
        assert found.items
        answers.append(found.items)
        for one in found.items:
            await api.ack_lease(gateway, api.OneLease(one.lease))
    return answers


async def test_zeros_come_one_by_one_and_are_not_inflated_before(
    gateway, group, topic, monkeypatch
):
    budgets: list[Budget] = []

    class Kept(Budget):
        def __init__(self, left: int, *, counting: int) -> None:
            super().__init__(left, counting=counting)
            budgets.append(self)

    monkeypatch.setattr(api, "Budget", Kept)
    for _ in range(8):
        await gateway.client.send(topic, bytes(2_000_000))
    answers = await taken(gateway, group, topic)
    assert [len(one) for one in answers] == [1] * 8
    assert all(one.message.body == "\0" * 2_000_000 for [one] in answers)
    assert {one.attempt for [one] in answers} == {1}
    offsets = [one.message.offset for [one] in answers]
    assert offsets == sorted(offsets)
    assert {one.inflated for one in budgets} == {2_000_000}
    await api.leave_group(gateway, api.InGroup(group))
    assert await gateway.admin.offsets.lag(group, topic) == 0


async def test_several_share_an_answer_as_far_as_it_goes(gateway, group, topic):
    for _ in range(8):
        await gateway.client.send(topic, b"a" * 1_500_000)
    answers = await taken(gateway, group, topic)
    assert max(len(one) for one in answers) <= 2
    for items in answers:
        assert len(msgspec.json.encode(items)) <= RECEIVE_BYTES_MAX + 16_384


async def test_what_did_not_fit_is_under_no_lease(gateway, group, topic):
    await receive(gateway, group, topic, wait_ms=0)
    for _ in range(8):
        await gateway.client.send(topic, bytes(2_000_000))
    member = member_of(gateway, group)
    await until(lambda: member.book.ready(topic) == 8)
    found = await receive(gateway, group, topic, max=32)
    assert (len(found.items), found.truncated) == (1, True)
    assert (member.book.out, member.book.ready(topic)) == (1, 7)
    second = await receive(gateway, group, topic, max=32)  # at once, to whoever asks
    assert (second.items[0].attempt, len(second.items)) == (1, 1)


async def test_who_goes_while_bodies_are_inflated_has_no_lease(gateway, group, topic, monkeypatch):
    await receive(gateway, group, topic, wait_ms=0)
    await gateway.client.send_many(topic, ["a", "b"])
    member = member_of(gateway, group)
    await until(lambda: member.book.ready(topic) == 2)
    looked = 0
    view_of = api.view_of

    async def second_never_comes(*args: Any, **more: Any) -> Any:
        nonlocal looked
        looked += 1
        if looked == 2:
            await asyncio.get_running_loop().create_future()
        return await view_of(*args, **more)

    monkeypatch.setattr(api, "view_of", second_never_comes)
    asking = asyncio.ensure_future(receive(gateway, group, topic, max=2))
    await until(lambda: looked == 2)
    assert (member.book.out, member.book.ready(topic)) == (2, 0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (member.book.out, member.book.ready(topic)) == (0, 2)
    monkeypatch.setattr(api, "view_of", view_of)
    again = await receive(gateway, group, topic, max=2)
    assert [(one.message.body, one.attempt) for one in again.items] == [("a", 1), ("b", 1)]


async def test_a_lease_that_ended_while_bodies_were_inflated_is_not_told(
    cluster, gateway, group, topic, monkeypatch
):
    await receive(gateway, group, topic, wait_ms=0)
    await gateway.client.send_many(topic, ["a", "b"])
    member = member_of(gateway, group)
    await until(lambda: member.book.ready(topic) == 2)
    view_of = api.view_of
    looked = 0

    async def slowly(*args: Any, **more: Any) -> Any:
        nonlocal looked
        looked += 1
        if looked == 2:
            cluster.clock.advance(seconds=31)
            await member.look()
        return await view_of(*args, **more)

    monkeypatch.setattr(api, "view_of", slowly)
    found = await receive(gateway, group, topic, max=2, invisible_ms=30_000)
    assert [one.message.body for one in found.items] == ["a"]
    assert (member.book.out, member.book.ready(topic)) == (0, 2)


async def test_what_can_never_be_read_lies_aside(gateway, group, topic, monkeypatch):
    view_of = api.view_of

    async def marked(message: Any, *args: Any, **more: Any) -> Any:
        if message.offset == 0:
            message.stored().sys_flag |= int(SysFlag.COMPRESSED)
        return await view_of(message, *args, **more)

    monkeypatch.setattr(api, "view_of", marked)
    await gateway.client.send_many(topic, ["a", "b"])
    bodies: list[str | None] = []
    while not bodies:
        bodies += [one.message.body for one in (await receive(gateway, group, topic, max=2)).items]
    assert bodies == ["b"]
    [dead_letter] = await gateway.admin.dead_letters.of(group)
    assert "it cannot be read" in (dead_letter.reason or "")
