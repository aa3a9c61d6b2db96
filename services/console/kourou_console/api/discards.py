"""Letting dead letters go.

Lives here: that, with a preview. May not live here: looking at them and sending them again
(kourou_console.api.dead_letters).

State: none. What is dealt with is a mark in each dead-letter queue, the group's own progress there;
the messages stay until the log is deleted.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.client.admin_dead_letters import DeadLetter
from kourou.model.limits import CONSOLE_DISCARDS_MAX
from kourou.model.queue import MessageQueue
from kourou_console.gateway import Gateway
from kourou_console.lists import Done, Name, not_there
from kourou_console.operation import BodyKind, Operation


class DiscardWanted(msgspec.Struct, frozen=True):
    """`preview`: only tell how many would be listed no more."""

    preview: bool = False


class DiscardBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Those of a group with these ids and all before them in their queues; without ids the oldest
    thousand.
    """

    group: Name
    ids: Annotated[list[Name], msgspec.Meta(max_length=CONSOLE_DISCARDS_MAX)] = []


class Mark(msgspec.Struct, frozen=True):
    """A dead-letter queue and from where on its letters are listed."""

    broker: str
    queue: int
    offset: int


class Discarded(Done, frozen=True, kw_only=True):
    """How many letters are listed no more, and the marks."""

    group: str
    letters: int
    marks: list[Mark]


async def discard(gateway: Gateway, parameters: DiscardWanted, body: DiscardBody) -> Discarded:
    """Move the group's marks behind these letters. Raises 404 for an id that is not listed."""
    admin = gateway.admin.dead_letters
    listed = await admin.of(body.group, count_max=CONSOLE_DISCARDS_MAX)
    chosen = list(listed)
    if body.ids:
        by_id = {one.message.message_id: one for one in listed}
        unknown = [one for one in body.ids if one not in by_id]
        if unknown:
            raise not_there(f"{body.group} has no dead letter {unknown[0]!r} listed", ())
        chosen = [by_id[one] for one in body.ids]
    marks = _marks(chosen)
    gone = sum(one.message.offset < marks.get(one.message.queue, 0) for one in listed)
    if not parameters.preview and chosen:
        await admin.deal_with(body.group, chosen)
    will = "would be" if parameters.preview else "are"
    says = [f"{gone:,} dead letters of {body.group} {will} listed no more."]
    if gone > len(chosen):
        says.append(f"{gone - len(chosen):,} of them lie before those that were named.")
    says.append("They stay in the log until it is deleted.")
    return Discarded(
        group=body.group,
        preview=parameters.preview,
        says=says,
        letters=gone,
        marks=[
            Mark(queue.broker_name, queue.queue_id, offset)
            for queue, offset in sorted(marks.items())
        ],
        as_of_ms=gateway.clock.now_ms(),
    )


def _marks(letters: list[DeadLetter]) -> dict[MessageQueue, int]:
    found: dict[MessageQueue, int] = {}
    for one in letters:
        queue = one.message.queue
        found[queue] = max(found.get(queue, 0), one.message.offset + 1)
    return found


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/dead-letters/discards",
        "discard_dead_letters",
        "Let dead letters go: they stay in the log until it is deleted, and are listed no more.",
        "Dead letters",
        discard,
        Discarded,
        DiscardWanted,
        DiscardBody,
        BodyKind.JSON,
        changes=True,
        administers=True,
    ),
)
