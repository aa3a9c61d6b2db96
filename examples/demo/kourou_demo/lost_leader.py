"""The demo's fourth act: the leader of a Raft group is killed while flights are sent to it.

A third of the flights are sent before the kill. The next third has to wait for a new leader, and
the last third is sent while the killed member is back as a follower.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.settings.client_settings import ConsumerSettings, ProducerSettings
from kourou.clock import Clock
from kourou.errors import KourouError
from kourou.model.message import SendStatus
from kourou.model.subscription import ConsumeFromWhere
from kourou.protocol.bodies.broker_bodies import ReplicasView
from kourou.service.processes import Child
from kourou_demo.flights import Flight
from kourou_demo.followed import Followed
from kourou_demo.group_of_three import MEMBERS, GroupOfThree
from kourou_demo.picture import MemberPicture, Picture, Rate
from kourou_demo.stage import TOPIC_QUEUES, Stage
from kourou_demo.terms import GROUP_BROKER, RADAR_GROUP, RADAR_TOPIC

TARGETS = 8
"""Sends in flight."""

KILLED_AFTER, BACK_BEFORE = 1 / 3, 2 / 3
"""Shares of the flights: the kill happens after the first, the restart before the second."""

SEND_TIMEOUT_MS = 30_000
"""An election takes one to two seconds; on a busy machine several may be needed."""


class Traffic:
    """Flights sent through the group, and the counts of producer and consumer.

    `failover_ms`: from the kill to the first acknowledgement of a send that started without a
    leader; 0 until then.
    """

    def __init__(
        self, flights: Sequence[Flight], clock: Clock, followed: Followed | None = None
    ) -> None:
        self._followed = followed or Followed()
        self.count = len(flights)
        self.acknowledged: set[int] = set()
        self.heard: Counter[int] = Counter()
        self.killed_ms = 0
        self.leader_is_gone = False
        self.failover_ms = 0
        self.failures: list[str] = []
        self.member_is_back = asyncio.Event()
        self._places = iter(list(enumerate(flights)))
        self._clock = clock

    @property
    def redelivered(self) -> int:
        """Deliveries beyond the first of each flight."""
        return self.heard.total() - len(self.heard)

    @property
    def lost(self) -> int:
        """Flights that were acknowledged but not delivered."""
        return len(self.acknowledged - self.heard.keys())

    def hear(self, row: int) -> None:
        """Record a delivery."""
        self.heard[row] += 1

    def kill_begins(self) -> None:
        """Record the time of the kill."""
        self.killed_ms = self._clock.monotonic_ms()

    async def send(self, client: Client) -> None:
        """Send all flights; the last third waits until the killed member is back."""
        await asyncio.gather(*(self._target(client) for _ in range(TARGETS)))

    async def _target(self, client: Client) -> None:
        for place, flight in self._places:
            if place >= BACK_BEFORE * self.count:
                await self.member_is_back.wait()
            started_without = self.leader_is_gone
            body = msgspec.json.encode(flight)
            try:
                result = await client.send(
                    RADAR_TOPIC,
                    body,
                    tag=flight.carrier,
                    keys=[flight.name],
                    properties=self._followed.properties(flight.row),
                )
            except KourouError as error:
                self.failures.append(f"a send failed: {error}")
                return
            if result.status is SendStatus.SEND_OK:
                self.answered(flight.row, started_without)

    def answered(self, row: int, started_without: bool) -> None:
        """Record an acknowledgement; `started_without`: the send started without a leader."""
        self.acknowledged.add(row)
        if started_without and not self.failover_ms:
            self.failover_ms = max(1, self._clock.monotonic_ms() - self.killed_ms)


async def lose_the_leader(stage: Stage, group: GroupOfThree) -> None:
    """Run this act and record the counts."""
    flights = [*stage.departed, *stage.cancelled]
    stage.view.chapter(
        f"act 4, failover: the leader of three brokers is killed while {len(flights):,} flights "
        "are sent"
    )
    stage.numbers.group.expected = len(flights)
    await group.runs()
    traffic = Traffic(flights, stage.clock, stage.followed)

    async def hear(message: ReceivedMessage) -> None:
        traffic.hear(message.body.row)

    async with _client(group) as client:
        await client.admin.topics.create(RADAR_TOPIC, queues=TOPIC_QUEUES)
        async with (
            client.listen(RADAR_TOPIC, hear, body_type=Flight),
            asyncio.TaskGroup() as tasks,
        ):
            sending = tasks.create_task(traffic.send(client))
            await _Act(stage, group, client, traffic).play()
            sending.cancel()  # the act may have ended early


def _client(group: GroupOfThree) -> Client:
    """A client that sends and consumes; it needs no configuration for failover."""
    return Client(
        group.address,
        producer=ProducerSettings(producer_group=RADAR_GROUP, send_timeout_ms=SEND_TIMEOUT_MS),
        consumer=ConsumerSettings(
            consumer_group=RADAR_GROUP,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ),
    )


class _Act:
    """The steps of the act while messages are sent and consumed."""

    def __init__(self, stage: Stage, group: GroupOfThree, client: Client, traffic: Traffic) -> None:
        self._stage = stage
        self._group = group
        self._client = client
        self._traffic = traffic
        self._rates = Rate(), Rate()

    async def play(self) -> None:
        """Run all steps in order; a step that makes no progress is a fault and ends the act."""
        traffic, view, numbers = self._traffic, self._stage.view, self._stage.numbers.group
        leader = await self._group.leader()
        pids = ", ".join(f"{child.name} (pid {child.pid})" for child in self._group.members)
        view.note(f"{pids}; leader: {leader.name}")
        view.note("a send is acknowledged when two of the three brokers have it on disk")
        due = KILLED_AFTER * traffic.count
        if not await self._flow("sending", lambda: len(traffic.acknowledged) >= due):
            return
        killed = await self._lose()
        if not await self._flow("the election", lambda: bool(traffic.failover_ms)):
            return
        numbers.failover_ms = traffic.failover_ms
        leader = await self._group.leader()
        view.note(
            f"new leader: {leader.name}; the next send was acknowledged "
            f"{numbers.failover_ms / 1000:.1f} s after the kill, and no send failed"
        )
        await self._group.start_again(killed)
        traffic.member_is_back.set()
        view.note(f"{killed.name} restarted as follower and catches up")
        await self._flow("the group", lambda: len(traffic.heard) >= traffic.count)
        await self._count(killed)

    async def _lose(self) -> Child:
        """Kill the current leader, and return it."""
        traffic = self._traffic
        self._stage.numbers.group.epoch_before = max(one.epoch for one in await self._members())
        leader = await self._group.leader()
        traffic.kill_begins()
        await self._group.kill(leader)
        traffic.leader_is_gone = True
        self._stage.view.note(
            f"killed {leader.name}, the leader (SIGKILL), after {len(traffic.acknowledged):,} "
            "acknowledged sends"
        )
        return leader

    async def _flow(self, what: str, done: Callable[[], bool]) -> bool:
        """Wait until `done`, showing progress; returns False if it is not reached."""
        traffic, stage = self._traffic, self._stage

        def moved() -> int:
            now_s = stage.clock.monotonic_ms() / 1000
            sent, heard = len(traffic.acknowledged), traffic.heard.total()
            radar = MemberPicture("radar", heard, self._rates[1].read(now_s, heard))
            rate = self._rates[0].read(now_s, sent)
            stage.view.show(Picture(traffic.count, sent, rate, [radar]))
            return sent + heard

        came = await stage.waits.wait(what, moved, lambda: done() or bool(traffic.failures))
        stage.numbers.faults += traffic.failures
        return came and not traffic.failures

    async def _count(self, killed: Child) -> None:
        traffic, view, numbers = self._traffic, self._stage.view, self._stage.numbers.group
        numbers.acknowledged, numbers.lost = len(traffic.acknowledged), traffic.lost
        numbers.redelivered = traffic.redelivered
        stats = await self._client.admin.topics.stats(RADAR_TOPIC)
        numbers.stored = sum(one.max_offset - one.min_offset for one in stats.values())
        await self._stage.waits.reach("copying", self._members_with_everything, MEMBERS)
        members = await self._members()
        end = min(one.confirmed for one in members)
        logs = await asyncio.to_thread(lambda: {self._group.log(n, end) for n in range(MEMBERS)})
        numbers.logs_are_equal = len(logs) == 1
        numbers.epoch_after = max(one.epoch for one in members)
        numbers.lag_bytes = max(one.lag_bytes or 0 for one in members)
        view.table(
            f"the group after failover; {killed.name} was the leader",
            ("broker", "role", "epoch", "log bytes", "lag"),
            [
                (
                    f"{one.broker_name}-{one.member}",
                    one.state or "leader",
                    str(one.epoch),
                    f"{one.end:,}",
                    f"{one.lag_bytes or 0:,}",
                )
                for one in sorted(members, key=lambda one: one.member)
            ],
        )
        view.note(
            f"{numbers.acknowledged:,} flights acknowledged, {numbers.lost} lost, "
            f"{numbers.stored_twice} stored twice; logs "
            f"{'are identical' if numbers.logs_are_equal else 'DIFFER'}"
        )

    async def _members(self) -> list[ReplicasView]:
        """The status of all members that reply."""
        found = await self._client.admin.replicas.of(GROUP_BROKER)
        return [one.view for one in found if one.view is not None]

    async def _members_with_everything(self) -> int:
        """The number of members that have the leader's complete log, committed."""
        members = await self._members()
        ends = {one.end for one in members if one.leads}
        return sum(one.end == one.confirmed and ends == {one.end} for one in members)
