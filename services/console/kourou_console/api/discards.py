"""Discards dead letters.

A dead letter is identified by its offset ID, which is that of one position. If a message was
redelivered and dead-lettered again, two dead letters have the same producer's ID, and only one of
them may be meant.

State: none. The position up to which dead letters are handled is a mark in each dead-letter queue
(the group's own offset there); the messages stay until the log is deleted.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated

import msgspec

from kourou.client.admin.dead_letters import StoredDeadLetter
from kourou.client.admin.messages import MessageNotFound
from kourou.errors import BadRequest, Unavailable
from kourou.model.limits import CONSOLE_DISCARDS_MAX
from kourou.model.queue import MessageQueue
from kourou_console.gateway import Gateway
from kourou_console.letters import Waiting, every_letter, waiting
from kourou_console.lists import Done, Missing, Name
from kourou_console.operation import BodyKind, Operation
from kourou_console.problems import Refused

AT_ONCE = 16


class DiscardWanted(msgspec.Struct, frozen=True):
    """`preview`: only report how many dead letters would be discarded."""

    preview: bool = False


class DiscardBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Those of a group with these ids, as the list has them, and all before them in their queues;
    without ids the oldest thousand.
    """

    group: Name
    ids: Annotated[list[Name], msgspec.Meta(max_length=CONSOLE_DISCARDS_MAX)] = []


class Mark(msgspec.Struct, frozen=True):
    """A dead-letter queue and the offset from which on its dead letters are unhandled."""

    broker: str
    queue: int
    offset: int


class Discarded(Done, frozen=True, kw_only=True):
    """The number of discarded dead letters, and the marks."""

    group: str
    letters: int
    marks: list[Mark]


async def discard(gateway: Gateway, parameters: DiscardWanted, body: DiscardBody) -> Discarded:
    """Move the group's marks past these dead letters. Raises 404 for an ID that is not listed."""
    found = await waiting(gateway, body.group)
    ids = set(body.ids)
    chosen = _Chosen()
    if ids:
        await _named(gateway, found, ids, chosen)
    else:
        await _oldest(gateway, found, chosen)
    last = chosen.last
    gone = sum(one.message.offset + 1 - found.marks[queue] for queue, one in last.items())
    if not parameters.preview and last:
        await gateway.admin.dead_letters.deal_with(body.group, last.values())
    will = "would be" if parameters.preview else "are"
    says = [f"{gone:,} dead letters of {body.group} {will} discarded."]
    if ids and gone > len(ids):
        says.append(f"{gone - len(ids):,} of them are older than the selected ones.")
    says.append("They stay in the log until it expires.")
    return Discarded(
        group=body.group,
        preview=parameters.preview,
        says=says,
        letters=gone,
        marks=[
            Mark(queue.broker_name, queue.queue_id, one.message.offset + 1)
            for queue, one in sorted(last.items())
        ],
        as_of_ms=gateway.clock.now_ms(),
        missing=chosen.missing,
    )


class _Chosen:
    """The last selected dead letter of each queue, which is sufficient for the marks."""

    def __init__(self) -> None:
        self.last: dict[MessageQueue, StoredDeadLetter] = {}
        self.missing: list[Missing] = []

    def take(self, letter: StoredDeadLetter) -> None:
        """Select a dead letter."""
        queue = letter.message.queue
        former = self.last.get(queue)
        if former is None or former.message.offset < letter.message.offset:
            self.last[queue] = letter


async def _oldest(gateway: Gateway, found: Waiting, chosen: _Chosen) -> None:
    count = 0
    async for page in every_letter(gateway, found):
        chosen.missing += page.missing + page.damaged
        for letter in page.letters[: CONSOLE_DISCARDS_MAX - count]:
            chosen.take(letter)
        count += len(page.letters)
        if count >= CONSOLE_DISCARDS_MAX:
            return


async def _named(gateway: Gateway, found: Waiting, ids: set[str], chosen: _Chosen) -> None:
    """Select the dead letters with these offset IDs, by requesting each from its broker."""
    gate = asyncio.Semaphore(AT_ONCE)
    unknown: list[str] = []

    async def one(letter_id: str) -> None:
        async with gate:
            try:
                message = await gateway.admin.messages.by_offset_id(letter_id)
            except (BadRequest, MessageNotFound):
                unknown.append(letter_id)
                return
        if message.queue in found.silent:
            raise Unavailable(f"{message.queue!s}: {found.silent[message.queue]}")
        if found.has(message):
            chosen.take(StoredDeadLetter(message))
        else:
            unknown.append(letter_id)

    await asyncio.gather(*map(one, ids))
    if unknown:
        raise Refused(
            HTTPStatus.NOT_FOUND,
            f"{found.group} has no dead letter {min(unknown)!r} listed",
            hint="use the `id` of a listed dead letter; discarded ones are not listed",
        )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/dead-letters/discards",
        "discard_dead_letters",
        "Discard dead letters: they are no longer listed, and stay in the log until it expires.",
        "Dead letters",
        discard,
        Discarded,
        DiscardWanted,
        DiscardBody,
        BodyKind.JSON,
    ),
)
