"""The latest are the newest of all queues, whatever queue they lie in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.client.pull_consumer import UnreadableMessages
from kourou.errors import Unavailable
from kourou.model.limits import MESSAGES_PAGE_BYTES_MAX
from kourou.testing.queues_read import QueuesRead, message_at
from kourou_console.latest import latest


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=40),
    st.integers(1, 8),
    st.integers(1, 6),
)
@settings(max_examples=60)
async def test_the_newest_of_all_queues_newest_first(
    steps: list[tuple[int, int]], count: int, read_max: int
) -> None:
    queues = QueuesRead("t", 3, read_max=read_max)
    every = list(queues.messages)
    now_ms = 0
    for which, later_ms in steps:
        now_ms += later_ms
        queues.put(every[which], stored_ms=now_ms)
    found = await latest(queues.face(), every, count)
    wanted = sorted(
        (one.store_timestamp, one.queue, one.offset)
        for messages in queues.messages.values()
        for one in messages
    )
    shown = [(one.store_timestamp, one.queue, one.offset) for one in found.messages]
    assert shown == wanted[::-1][:count]
    assert (found.total, found.missing) == (len(steps), [])


async def test_what_was_deleted_is_not_counted() -> None:
    queues = QueuesRead("t", 1)
    (queue,) = queues.messages
    for number in range(5):
        queues.put(queue, stored_ms=number)
    queues.low[queue] = 3
    found = await latest(queues.face(), [queue], 10)
    assert [one.offset for one in found.messages] == [4, 3]
    assert found.total == 2


async def test_a_queue_that_cannot_be_read_is_named_and_damaged_places_are_passed_over() -> None:
    queues = QueuesRead("t", 2)
    away, damaged = queues.messages
    for queue in (away, damaged):
        for number in range(3):
            queues.put(queue, stored_ms=number)
    queues.failing[away] = [Unavailable("its broker is away")]
    queues.failing[damaged] = [UnreadableMessages("broken", 1)]
    found = await latest(queues.face(), [away, damaged], 10)
    assert [(one.queue, one.offset) for one in found.messages] == [(damaged, 2), (damaged, 1)]
    assert found.total is None
    assert {one.what for one in found.missing} == {str(away), f"{damaged!s}@0"}


async def test_few_large_ones_are_kept() -> None:
    queues = QueuesRead("t", 1)
    (queue,) = queues.messages
    for offset in range(3):
        one = message_at(queue, offset, stored_ms=offset)
        one.size = MESSAGES_PAGE_BYTES_MAX
        queues.messages[queue].append(one)
    found = await latest(queues.face(), [queue], 3)
    assert [one.offset for one in found.messages] == [2]
    assert found.total == 3
