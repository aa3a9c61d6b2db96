"""The first act of the demo: publish, kill a consumer, query the day of an aircraft, reset offsets.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou.clock import Clock
from kourou.errors import Rejected
from kourou.model.message import Message, SendResult, SendStatus
from kourou_demo.flights import Event, Flight
from kourou_demo.followed import Followed
from kourou_demo.ledger import Ledger, distinct
from kourou_demo.picture import MemberPicture, Picture, Rate
from kourou_demo.progress_waits import ProgressWaits
from kourou_demo.spark_watch import SparkWatch
from kourou_demo.terms import GROUP, TOPIC
from kourou_demo.verdict import Numbers
from kourou_demo.view import View

CHUNK = 1_000
"""Messages per call of the client."""

CHUNKS_UNDER_WAY = 4
FIRST = 200
"""Number of flights that are sent before all others."""

NEXT = 10_000
"""Number of flights that must also be rows before the rest is sent, if they are a small part of
all; they give Spark batches of a usual size.
"""

KILL_AT = 0.3
"""The second consumer is killed when the group has received this share of all events."""

REPLAY_FROM = 0.8
"""The offsets are reset to the hour in which this share of the year had passed."""

KEY_RESULTS_MAX = 64


@dataclass(slots=True)
class Member:
    """A consumer as the story sees it: its ledger, and how to kill it."""

    name: str
    ledger: Ledger
    kill: Callable[[], object]
    killed: bool = False
    base: int = 0
    rate: Rate = field(default_factory=Rate)

    @property
    def delivered(self) -> int:
        """Deliveries in this part of the story."""
        return self.ledger.count - self.base


class Story:
    """Runs the first act; usable once."""

    def __init__(
        self,
        client: Client,
        events: Sequence[Event],
        members: Sequence[Member],
        view: View,
        clock: Clock,
        spark: SparkWatch | None,
        followed: Followed,
    ) -> None:
        self._client = client
        self._events = events
        self._members = members
        self._view = view
        self._clock = clock
        self._spark = spark
        self._followed = followed
        self._ids: dict[int, str] = {}
        self._publish_rate = Rate()
        self.numbers = Numbers(events=len(events))
        self._waits = ProgressWaits(clock, self.numbers.faults)

    async def tell(self) -> Numbers:
        """Run all parts in order; returns the counts."""
        await self._fly()
        await self._find_one_day()
        await self._go_back()
        return self.numbers

    @property
    def sent(self) -> dict[str, bytes]:
        """The bodies of all flights by message ID."""
        return {self._ids[place]: self._events[place].body for place in self._ids}

    # -- publish and consume ----------------------------------------------------------------------
    async def _fly(self) -> None:
        count = len(self._events)
        self._view.chapter(f"{count:,} flights of 2013, published and consumed by a group of two")
        await self._wait_until_joined()
        started = await self._publish_first()
        watcher = asyncio.create_task(self._watch_deliveries())
        try:
            await self._publish(started)
            await watcher
        finally:
            watcher.cancel()
        parts = [member.ledger.rows() for member in self._members]
        delivered = distinct(parts)
        self.numbers.consumed_unique = len(delivered)
        self.numbers.redelivered = sum(len(part) for part in parts) - len(delivered)
        stats = await self._client.admin.topics.stats(TOPIC)
        self.numbers.stored = sum(one.max_offset - one.min_offset for one in stats.values())
        self._view.note(
            f"{len(delivered):,} distinct events delivered; "
            f"{self.numbers.redelivered:,} of them redelivered after the kill"
        )

    async def _wait_until_joined(self) -> None:
        """Wait until the broker knows all consumers; then all share the queues from the start."""

        async def known() -> int:
            try:
                return len(await self._client.admin.groups.members(GROUP))
            except Rejected:
                return 0  # no consumer has joined yet

        await self._waits.reach("the group", known, len(self._members))

    async def _publish_first(self) -> int:
        """Publish a few flights and wait for Spark's first batches, which load and compile its
        code.

        Returns the number of flights sent.
        """
        await self._publish_chunk(0, FIRST)
        if self._spark is None:
            return FIRST
        seconds = await self._spark.wait_for_rows(FIRST, self._waits)
        if seconds is not None:
            self._view.note(f"Spark processed the first {FIRST} flights in {seconds:.0f} s")
        if len(self._events) < 10 * NEXT:
            return FIRST
        await self._publish_range(FIRST, NEXT)
        await self._spark.wait_for_rows(NEXT, self._waits)
        return NEXT

    async def _publish(self, started: int) -> None:
        await self._publish_range(started, len(self._events))
        if self._spark is not None:
            self.numbers.spark.while_sent = self._spark.rows
            self._view.note(
                f"when the last flight was sent, Spark had written {self._spark.rows:,} rows"
            )

    async def _publish_range(self, start: int, end: int) -> None:
        under_way: set[asyncio.Task[None]] = set()
        for at in range(start, end, CHUNK):
            if len(under_way) >= CHUNKS_UNDER_WAY:
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            under_way.add(asyncio.create_task(self._publish_chunk(at, min(CHUNK, end - at))))
        for task in under_way:
            await task

    async def _publish_chunk(self, at: int, count: int) -> None:
        events = self._events[at : at + count]
        messages = [
            Message(
                TOPIC,
                event.body,
                event.tag,
                event.keys,
                self._followed.properties(event.row, event.properties),
            )
            for event in events
        ]
        self._note_results(at, await self._client.send_many(messages))

    def _note_results(self, at: int, results: Sequence[SendResult]) -> None:
        self.numbers.published += sum(one.status is SendStatus.SEND_OK for one in results)
        for place, result in enumerate(results):
            self._ids[at + place] = result.message_id

    async def _watch_deliveries(self) -> None:
        """Show the progress, kill the second consumer on the way, and wait for the first one."""
        goal = len(self._events)
        victim = self._members[-1]

        def moved() -> int:
            published = self.numbers.published
            delivered = sum(member.delivered for member in self._members)
            rate = self._publish_rate.read(self._clock.monotonic_ms() / 1000, published)
            self._show(goal, published, rate)
            due = delivered >= (KILL_AT * goal if victim.delivered else goal)
            if due and not victim.killed:
                victim.kill()
                victim.killed = True
                self._view.note(f"killed {victim.name} (SIGKILL) after {delivered:,} deliveries")
            return published + delivered

        await self._waits.wait("the group", moved, self._all_delivered)

    def _all_delivered(self) -> bool:
        if self.numbers.published < len(self._events) or not self._members[-1].killed:
            return False
        if sum(member.delivered for member in self._members) < len(self._events):
            return False
        return len(distinct([member.ledger.rows() for member in self._members])) == len(
            self._events
        )

    # -- one aircraft's day -----------------------------------------------------------------------
    async def _find_one_day(self) -> None:
        tail, date = busiest_day(self._events)
        self._view.chapter(f"query by key: the flights of aircraft {tail} on {date}")
        day = [place for place, event in enumerate(self._events) if event.date == date]
        expected = sum(self._events[place].tail == tail for place in day)
        first, last = [await self._stored(place) for place in (day[0], day[-1])]
        found = await self._client.admin.messages.by_key(
            TOPIC,
            tail,
            begin_ms=first.store_timestamp,
            end_ms=last.store_timestamp,
            count_max=KEY_RESULTS_MAX,
        )
        decode = msgspec.json.Decoder(Flight).decode
        flights = sorted(
            {flight.row: flight for flight in (decode(one.raw_body) for one in found)}.values(),
            key=lambda flight: flight.time,
        )
        flights = [flight for flight in flights if flight.date == date and flight.tail == tail]
        self.numbers.queried = len(flights)
        self.numbers.queried_expected = expected
        self._view.table(
            f"{tail}, {date}",
            ("UTC", "flight", "from", "to", "miles", "delay"),
            [_board_line(flight) for flight in flights],
        )

    async def _stored(self, place: int) -> ReceivedMessage:
        return await self._client.admin.messages.by_unique_key(TOPIC, self._ids[place])

    # -- reset of offsets -------------------------------------------------------------------------
    async def _go_back(self) -> None:
        hour = self._events[int(len(self._events) * REPLAY_FROM)].hour
        start = next(place for place, event in enumerate(self._events) if event.hour == hour)
        self._view.chapter(
            f"replay: reset the group to the first flight of {hour.replace('T', ' ')}:00"
        )
        await self._wait_until_committed()
        for member in self._members:
            member.base = member.ledger.count
            member.rate = Rate()
        stored_ms = (await self._stored(start)).store_timestamp
        moved = await self._client.admin.offsets.reset(GROUP, TOPIC, stored_ms)
        stats = await self._client.admin.topics.stats(TOPIC)
        expected = sum(stats[queue].max_offset - offset for queue, offset in moved.items())
        self.numbers.replayed_expected = expected
        self._view.note(f"reset {len(moved)} queues; the group's backlog is {expected:,} events")
        reader = self._members[0]

        def moved_on() -> int:
            self._show(expected, expected, None)
            return reader.delivered

        def all_read() -> bool:
            return len(distinct([reader.ledger.rows(reader.base)])) >= expected

        await self._waits.wait("the replay", moved_on, all_read)
        replayed = distinct([reader.ledger.rows(reader.base)])
        self.numbers.replayed = len(replayed)
        wanted = {event.row for event in self._events[start:]}
        missing = wanted - set(replayed.tolist())
        if missing:
            self.numbers.faults.append(
                f"{len(missing)} events after that time were not consumed again"
            )

    async def _wait_until_committed(self) -> None:
        async def caught_up() -> int:
            return -await self._client.admin.offsets.lag(GROUP, TOPIC)

        await self._waits.reach("committing", caught_up, 0)

    # -- progress ---------------------------------------------------------------------------------
    def _show(self, goal: int, available: int, publish_rate: float | None) -> None:
        now_s = self._clock.monotonic_ms() / 1000
        members = [
            MemberPicture(
                member.name,
                member.delivered,
                member.rate.read(now_s, member.delivered),
                member.killed,
            )
            for member in self._members
            if publish_rate is not None or not member.killed
        ]
        tables = []
        if publish_rate is not None and self._spark is not None:
            tables = self._spark.pictures()
        self._view.show(Picture(goal, available, publish_rate, members, tables))


def busiest_day(events: Sequence[Event]) -> tuple[str, str]:
    """The aircraft and day with the most flights; the earliest such day."""
    flights = Counter((event.tail, event.date) for event in events if event.tail)
    (tail, date), _ = min(flights.items(), key=lambda item: (-item[1], item[0][1], item[0][0]))
    return tail, date


def _board_line(flight: Flight) -> tuple[str, ...]:
    delay = flight.departure_delay
    late = "cancelled" if delay is None else f"{delay:+d} min"
    return (
        flight.time[11:16],
        f"{flight.carrier}{flight.flight}",
        flight.origin,
        flight.dest,
        str(flight.distance_miles),
        late,
    )
