"""What is counted while the leader of a group dies; the act itself is in the demo's own test."""

from __future__ import annotations

import asyncio

from kourou.clock import SystemClock
from kourou.errors import Unavailable
from kourou.model.message import SendResult, SendStatus
from kourou_demo.flights import Flight
from kourou_demo.lost_leader import TARGETS, Traffic

COUNT = 30


class Group:
    """Stands for a client: its leader may be gone, and then a send waits for another one."""

    def __init__(self, status: SendStatus = SendStatus.SEND_OK) -> None:
        self.status = status
        self.led = asyncio.Event()
        self.led.set()
        self.asked = 0

    async def send(self, *_: object, **__: object) -> SendResult:
        self.asked += 1
        await self.led.wait()
        return SendResult(self.status, "id", "id", None, 0)  # type: ignore[arg-type]


class Clock(SystemClock):
    """Stands still until it is moved."""

    ms = 1_000

    def monotonic_ms(self) -> int:
        return self.ms


def traffic(clock: Clock | None = None) -> Traffic:
    flights = [
        Flight(row, "2013-02-08T10:00:00Z", "2013-02-08", "UA", row, "EWR", "IAH", 1_400)
        for row in range(COUNT)
    ]
    return Traffic(flights, clock or Clock())


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_the_last_third_waits_for_the_killed_member() -> None:
    some, group = traffic(), Group()
    sending = asyncio.create_task(some.send(group))  # type: ignore[arg-type]
    await settled()
    assert some.acknowledged == set(range(20))
    some.member_is_back.set()
    await sending
    assert some.acknowledged == set(range(COUNT))
    assert some.failover_ms == 0, "nobody was killed"


async def test_the_time_is_that_of_a_send_begun_when_the_leader_was_gone() -> None:
    clock, group = Clock(), Group()
    some = traffic(clock)
    group.led.clear()
    sending = asyncio.create_task(some.send(group))  # type: ignore[arg-type]
    await settled()
    some.kill_begins()
    some.leader_is_gone = True
    clock.ms = 1_700
    some.answered(7, started_without=False)
    assert (group.asked, some.failover_ms) == (TARGETS, 0), "an answer that was still on its way"
    group.led.set()
    await settled()
    assert some.failover_ms == 700
    clock.ms = 9_000
    some.member_is_back.set()
    await sending
    assert some.failover_ms == 700


async def test_only_what_a_majority_has_is_acknowledged() -> None:
    some = traffic()
    some.member_is_back.set()
    await some.send(Group(SendStatus.FLUSH_SLAVE_TIMEOUT))  # type: ignore[arg-type]
    assert not some.acknowledged


async def test_a_send_that_fails_is_told_of() -> None:
    class Nobody(Group):
        async def send(self, *_: object, **__: object) -> SendResult:
            raise Unavailable("nobody leads")

    some = traffic()
    await some.send(Nobody())  # type: ignore[arg-type]
    assert some.failures == ["a send failed: nobody leads"] * TARGETS


def test_what_was_heard_is_counted_by_flight() -> None:
    some = traffic()
    some.acknowledged |= {1, 2, 3}
    for row in (1, 1, 3, 8):
        some.hear(row)
    assert (some.lost, some.redelivered) == (1, 1)
