"""Browse a queue: messages from an offset on."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.errors import TopicNotFound
from kourou.model.limits import MESSAGES_PAGE_BYTES_MAX, MESSAGES_PER_PAGE_MAX, TOPIC_QUEUES_MAX
from kourou.model.message import PullStatus
from kourou.model.names import check_topic
from kourou.model.queue import MessageQueue
from kourou_console.gateway import Gateway
from kourou_console.lists import Missing, Name
from kourou_console.messages.bodies import Budget
from kourou_console.messages.views import PREVIEW_BYTES, BodyMax, MessageView, views_of
from kourou_console.operation import Operation

READ_BYTES = 4 << 20


class BrowseParams(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, and the offset to start at."""

    topic: Name
    broker: Name
    queue: Annotated[int, msgspec.Meta(ge=0, le=TOPIC_QUEUES_MAX)]
    #: A negative offset counts from the end: -20 is the last 20 messages.
    offset: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = -20
    count: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_PER_PAGE_MAX)] = 20
    body_max: BodyMax = PREVIEW_BYTES


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a queue; `next_offset` is that of the next page. `total` counts what is kept."""

    items: list[MessageView]
    total: int
    truncated: bool
    min_offset: int
    max_offset: int
    next_offset: int
    as_of_ms: int
    missing: list[Missing] = []


async def browse_queue(gateway: Gateway, parameters: BrowseParams) -> QueuePage:
    """Messages from an offset on."""
    reading = gateway.admin.reading
    queue = MessageQueue(check_topic(parameters.topic), parameters.broker, parameters.queue)
    if queue not in await reading.queues(queue.topic):
        raise TopicNotFound(f"queue {queue!s} not found", hint="check the topic's route")
    low, high = await reading.bounds(queue)
    offset = parameters.offset
    offset = max(low, high + offset) if offset < 0 else min(max(low, offset), high)
    missing: list[Missing] = []
    items: list[MessageView] = []
    budget = Budget()
    # A read may end early, because of its size or a damaged record.
    while len(items) < parameters.count and offset < high:
        try:
            result = await reading.read(
                queue,
                offset,
                count_max=parameters.count - len(items),
                size_bytes_max=READ_BYTES,
            )
        except UnreadableMessages as error:
            missing.append(Missing(f"{queue!s}@{offset}", str(error)))
            offset = max(offset + 1, error.next_offset)
            continue
        if result.status is PullStatus.NO_NEW_MESSAGE:
            break
        items += await views_of(result.messages, budget, parameters.body_max)
        offset = max(result.next_offset, offset + 1)
        if len(missing) >= MESSAGES_PER_PAGE_MAX or not budget.left:
            break
    return QueuePage(
        items=items,
        total=high - low,
        truncated=offset < high,
        min_offset=low,
        max_offset=high,
        next_offset=offset,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/topics/{topic}/queues/{broker}/{queue}/messages",
        "browse_queue",
        "Messages of one queue from an offset on, also of retry, dead-letter and system topics. "
        "Reading does not change the offsets of any group. A page ends where its bodies have "
        f"{MESSAGES_PAGE_BYTES_MAX >> 20} MiB; continue at `next_offset`.",
        "Messages",
        browse_queue,
        QueuePage,
        parameters=BrowseParams,
    ),
)
