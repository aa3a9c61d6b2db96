"""The units of a consume queue: positions, sizes, tag codes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.model.limits import QUEUE_LOOK_UNITS_MAX
from kourou.model.queue import MessageQueue
from kourou_console.gateway import Gateway
from kourou_console.lists import Listing, Name
from kourou_console.operation import Operation

UNITS = 32


class QueueUnitView(msgspec.Struct, frozen=True, kw_only=True):
    """One unit; `passes`: the given group would get its message."""

    offset: int
    position: int
    size_bytes: int
    tag_code: str
    passes: bool


class UnitList(Listing[QueueUnitView], frozen=True, kw_only=True):
    """Units from an offset on, and the queue's bounds."""

    min_offset: int
    max_offset: int
    expression: str | None


class UnitsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The queue and the first offset; `group`: evaluate this group's subscription."""

    topic: Name
    broker: Name
    queue: Annotated[int, msgspec.Meta(ge=0, le=65_535)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    count: Annotated[int, msgspec.Meta(ge=1, le=QUEUE_LOOK_UNITS_MAX)] = UNITS
    group: Name | None = None


async def units(gateway: Gateway, parameters: UnitsWanted) -> UnitList:
    """Units of one queue."""
    queue = MessageQueue(parameters.topic, parameters.broker, parameters.queue)
    found = await gateway.admin.messages.units(
        queue, parameters.offset, count=parameters.count, group=parameters.group
    )
    items = [
        QueueUnitView(
            offset=parameters.offset + place,
            position=one.physic_offset,
            size_bytes=one.physic_size,
            tag_code=str(one.tags_code),
            passes=one.eval,
        )
        for place, one in enumerate(found.units)
    ]
    return UnitList(
        items=items,
        total=max(0, found.max_index - found.min_index),
        truncated=parameters.offset + len(items) < found.max_index,
        as_of_ms=gateway.clock.now_ms(),
        min_offset=found.min_index,
        max_offset=found.max_index,
        expression=None if found.subscription is None else found.subscription.expression,
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/topics/{topic}/queues/{broker}/{queue}/units",
        "queue_units",
        "Consume queue entries: log position, size, tag code.",
        "Topics",
        units,
        UnitList,
        UnitsWanted,
    ),
)
