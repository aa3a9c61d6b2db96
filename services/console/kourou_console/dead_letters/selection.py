"""Unhandled dead letters: pages, causes and selections of them.

State: none; the mark is at the brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec

from kourou.client.admin.dead_letters import StoredDeadLetter
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Sql
from kourou.errors import KourouError, TopicNotFound
from kourou.model.names import check_group, dlq_topic
from kourou.model.topic import MessageQueue
from kourou.model.units import NEVER_MS
from kourou_console.gateway import Gateway
from kourou_console.leases.leases import wanted_of
from kourou_console.lists import Missing, why
from kourou_console.messages.pages import page_by_time

PAGE = 64
AT_ONCE = 16


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters; they match all given fields. Without fields: all of them."""

    #: As `causes` contains it.
    cause: str | None = None
    origin_topic: str | None = None
    tag: tuple[str, ...] = ()
    sql: str | None = None
    key: str | None = None
    #: By the time at which they became dead letters.
    from_ms: int | None = None
    until_ms: int | None = None

    def takes(self, dead_letter: StoredDeadLetter) -> bool:
        """Whether the dead letter is selected. Tag and SQL filters were applied by the broker."""
        message = dead_letter.message
        return (
            (self.cause is None or dead_letter.cause == self.cause)
            and (self.origin_topic is None or dead_letter.topic == self.origin_topic)
            and (self.key is None or self.key in message.keys)
            and (self.from_ms is None or message.store_timestamp >= self.from_ms)
            and (self.until_ms is None or message.store_timestamp <= self.until_ms)
        )

    @property
    def wanted(self) -> str | Sql:
        """The filter for brokers. Raises BadRequest."""
        return wanted_of(self.tag, self.sql)


@dataclass(slots=True)
class UnhandledDeadLetters:
    """The ranges of a group's dead-letter queues, from the mark to the end; may be empty."""

    group: str
    marks: dict[MessageQueue, int] = field(default_factory=dict)
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    #: Queues whose brokers did not reply, and why: they have neither mark nor end.
    silent: dict[MessageQueue, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of unhandled dead letters, without those of silent queues."""
        return sum(self.ends[queue] - mark for queue, mark in self.marks.items())

    @property
    def missing(self) -> list[Missing]:
        """The silent queues, for the response."""
        return [Missing(str(queue), said) for queue, said in sorted(self.silent.items())]

    def has(self, message: ReceivedMessage) -> bool:
        """Whether the message is an unhandled dead letter."""
        mark = self.marks.get(message.queue)
        return mark is not None and mark <= message.offset


async def unhandled_dead_letters(gateway: Gateway, group: str) -> UnhandledDeadLetters:
    """The group's unhandled dead letters. A silent broker affects only its own queues."""
    reading = gateway.admin.reading
    found = UnhandledDeadLetters(check_group(group))
    gate = asyncio.Semaphore(AT_ONCE)
    try:
        queues = await reading.queues(dlq_topic(group))
    except TopicNotFound:
        return found

    async def one(queue: MessageQueue) -> None:
        async with gate:
            try:
                low, high = await reading.bounds(queue)
                mark = await reading.committed(group, queue)
            except KourouError as error:
                found.silent[queue] = why(error)
                return
        found.marks[queue] = min(max(low, mark or 0), high)
        found.ends[queue] = high

    await asyncio.gather(*map(one, queues))
    return found


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Some dead letters, the oldest first, and the offsets of the next page, if any."""

    dead_letters: list[StoredDeadLetter]
    offsets: dict[MessageQueue, int] | None
    missing: list[Missing]
    #: Positions that were skipped.
    damaged: list[Missing]


async def dead_letters_from(
    gateway: Gateway,
    offsets: dict[MessageQueue, int],
    count: int,
    wanted: str | Sql = "*",
) -> DeadLetterPage:
    """The next dead letters from these offsets on."""
    page = await page_by_time(
        gateway.admin.reading, offsets, until_ms=NEVER_MS, count=count, wanted=wanted
    )
    dead_letters = [StoredDeadLetter(one) for one in page.messages]
    return DeadLetterPage(dead_letters, page.offsets, page.missing, page.damaged)


async def every_dead_letter(
    gateway: Gateway, found: UnhandledDeadLetters, wanted: str | Sql = "*"
) -> AsyncIterator[DeadLetterPage]:
    """All dead letters as of the creation of `found`, page by page; missing queues first."""
    if found.silent:
        yield DeadLetterPage([], found.marks, found.missing, [])
    offsets: dict[MessageQueue, int] | None = found.marks
    while offsets:
        page = await dead_letters_from(gateway, offsets, PAGE, wanted)
        kept = [
            one for one in page.dead_letters if one.message.offset < found.ends[one.message.queue]
        ]
        yield DeadLetterPage(kept, page.offsets, page.missing, page.damaged)
        offsets = page.offsets
        if offsets is not None and all(
            offset >= found.ends[queue] for queue, offset in offsets.items()
        ):
            return
        if page.missing:
            return
