"""The latest are the newest of all queues, whatever queue they lie in."""

from __future__ import annotations

from weakref import WeakSet

from hypothesis import given
from hypothesis import strategies as st

from kourou.client.consumer.pull_consumer import PullResult, UnreadableMessages
from kourou.client.consumer.received import ReceivedMessage
from kourou.errors import Unavailable
from kourou.model.limits import MESSAGES_PAGE_BYTES_MAX, MESSAGES_PER_PAGE_MAX
from kourou.model.topic import MessageQueue
from kourou_console.messages.pages import FIRST_STEP, QUEUES_AT_ONCE, newest_messages
from kourou_rigs.queues_read import QueuesRead, message_at

LARGE_BYTES = 4 << 20


class Broken(QueuesRead):
    """Some of its places cannot be read; it counts what it hands out."""

    def __init__(self, topic: str, queues: int, *broken: int) -> None:
        super().__init__(topic, queues)
        self.broken = broken
        self.handed_out = 0

    async def read(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        wanted: object = "*",
        count_max: int = 32,
        size_bytes_max: int = 0,
        wait_ms: int = 0,
    ) -> PullResult:
        if offset in self.broken:
            raise UnreadableMessages("broken", offset + 1)
        ends = [one for one in self.broken if one > offset]
        count_max = min([count_max, *(one - offset for one in ends)])
        result = await super().read(queue, offset, count_max=count_max)
        self.handed_out += len(result.messages)
        return result


def put(
    queues: QueuesRead, queue: MessageQueue, *, stored_ms: int, size: int = 100, position: int = 0
) -> None:
    """One more message, of this size and at this place of the log."""
    messages = queues.messages[queue]
    one = message_at(queue, len(messages), stored_ms=stored_ms)
    one.size = size
    one.stored().position = position
    messages.append(one)


def offsets(messages: list[ReceivedMessage]) -> list[tuple[int, int]]:
    """By queue and offset."""
    return [(one.queue.queue_id, one.offset) for one in messages]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=40),
    st.integers(1, 8),
    st.integers(1, 6),
)
async def test_the_newest_of_all_queues_newest_first(
    steps: list[tuple[int, int]], count: int, read_max: int
) -> None:
    queues = QueuesRead("t", 3, read_max=read_max)
    every = list(queues.messages)
    now_ms = 0
    for which, later_ms in steps:
        now_ms += later_ms
        queues.put(every[which], stored_ms=now_ms)
    found = await newest_messages(queues.face(), every, count)
    # One log: of the same millisecond the one that lies further on is the newer.
    wanted = sorted(
        (one.store_timestamp, one.position, one.queue, one.offset)
        for messages in queues.messages.values()
        for one in messages
    )
    shown = [(one.store_timestamp, one.position, one.queue, one.offset) for one in found.messages]
    assert shown == wanted[::-1][:count]
    assert (found.total, found.missing) == (len(steps), [])


async def test_what_was_deleted_is_not_counted() -> None:
    queues = QueuesRead("t", 1)
    (queue,) = queues.messages
    for number in range(5):
        queues.put(queue, stored_ms=number)
    queues.low[queue] = 3
    found = await newest_messages(queues.face(), [queue], 10)
    assert [one.offset for one in found.messages] == [4, 3]
    assert found.total == 2


async def test_a_queue_that_cannot_be_read_is_named() -> None:
    queues = QueuesRead("t", 2)
    away, other = queues.messages
    for queue in (away, other):
        for number in range(3):
            queues.put(queue, stored_ms=number)
    queues.failing[away] = [Unavailable("its broker is away")]
    found = await newest_messages(queues.face(), [away, other], 10)
    assert offsets(found.messages) == [(1, 2), (1, 1), (1, 0)]
    assert found.total is None
    assert [one.what for one in found.missing] == [str(away)]


async def test_damaged_places_are_passed_over_and_older_ones_shown() -> None:
    queues = Broken("t", 1, 3, 6)
    (queue,) = queues.messages
    for number in range(8):
        put(queues, queue, stored_ms=number)
    found = await newest_messages(queues.face(), [queue], 4)
    assert offsets(found.messages) == [(0, 7), (0, 5), (0, 4), (0, 2)]
    assert {one.what for one in found.missing} == {f"{queue!s}@3", f"{queue!s}@6"}


async def test_a_queue_of_damaged_places_is_not_read_to_its_beginning() -> None:
    queues = Broken("t", 1, *range(1_000))
    (queue,) = queues.messages
    for number in range(1_000):
        put(queues, queue, stored_ms=number)
    found = await newest_messages(queues.face(), [queue], 5)
    assert found.messages == []
    assert 5 <= len(found.missing) <= 10


async def test_of_large_ones_the_newest_are_kept() -> None:
    queues = Broken("t", 1)
    (queue,) = queues.messages
    for number in range(24):
        put(queues, queue, stored_ms=number, size=LARGE_BYTES)
    found = await newest_messages(queues.face(), [queue], 50)
    assert offsets(found.messages) == [(0, 23), (0, 22)]
    assert found.total == 24
    assert queues.handed_out <= FIRST_STEP + 2


async def test_one_that_is_larger_than_all_may_be_is_shown_alone() -> None:
    queues = QueuesRead("t", 1)
    (queue,) = queues.messages
    for number in range(3):
        put(queues, queue, stored_ms=number, size=MESSAGES_PAGE_BYTES_MAX + 1)
    found = await newest_messages(queues.face(), [queue], 3)
    assert offsets(found.messages) == [(0, 2)]
    assert found.total == 3


async def test_many_queues_of_large_ones_are_read_at_their_ends_only() -> None:
    queues = Broken("t", QUEUES_AT_ONCE)
    for number in range(200):
        for queue in queues.messages:
            put(queues, queue, stored_ms=number, size=LARGE_BYTES, position=number)
    found = await newest_messages(queues.face(), list(queues.messages), MESSAGES_PER_PAGE_MAX)
    assert [one.store_timestamp for one in found.messages] == [199, 199]
    assert queues.handed_out <= QUEUES_AT_ONCE * FIRST_STEP


async def test_no_more_is_read_than_can_be_among_the_newest() -> None:
    queues = Broken("t", 2)
    busy, quiet = queues.messages
    for number in range(1_000):
        put(queues, quiet, stored_ms=number)
        put(queues, busy, stored_ms=5_000, position=number)
    found = await newest_messages(queues.face(), [quiet, busy], 10)
    assert offsets(found.messages) == [(0, 999 - back) for back in range(10)]
    assert queues.handed_out <= 3 * 10


async def test_a_read_that_brings_more_than_its_step_shows_nothing_twice() -> None:
    queues = QueuesRead("t", 1)
    (queue,) = queues.messages
    for number in range(6):
        queues.put(queue, stored_ms=number, tag="hidden" if number == 3 else "")
    found = await newest_messages(queues.face(), [queue], 4)
    assert offsets(found.messages) == [(0, 5), (0, 4), (0, 2), (0, 1)]


async def test_no_older_one_is_shown_for_a_newer_one_that_had_no_room() -> None:
    queues = QueuesRead("t", 2)
    large, small = queues.messages
    put(queues, small, stored_ms=1)
    put(queues, large, stored_ms=2, size=2_000)
    put(queues, large, stored_ms=3, size=MESSAGES_PAGE_BYTES_MAX - 1_000)
    found = await newest_messages(queues.face(), [large, small], 3)
    assert offsets(found.messages) == [(0, 1)]


async def test_a_clock_that_went_back_does_not_change_the_order_of_a_queue() -> None:
    queues = QueuesRead("t", 2)
    back, other = queues.messages
    for position, stored_ms in enumerate((10, 20, 5)):
        put(queues, back, stored_ms=stored_ms, position=position)
    put(queues, other, stored_ms=7, position=9)
    found = await newest_messages(queues.face(), [back, other], 4)
    assert offsets(found.messages) == [(1, 0), (0, 2), (0, 1), (0, 0)]


class _OfAPull(ReceivedMessage):
    """One that keeps alive all that was pulled with it."""

    def alone(self) -> ReceivedMessage:
        return message_at(self.queue, self.offset)


async def test_what_is_kept_keeps_no_pull_alive() -> None:
    queues = QueuesRead("t", 1)
    (queue,) = queues.messages
    stored = message_at(queue, 0).stored()
    queues.messages[queue].append(_OfAPull(queue, 0, 100, _stored=stored))
    found = await newest_messages(queues.face(), [queue], 1)
    assert [type(one) for one in found.messages] == [ReceivedMessage]


async def test_of_large_ones_in_one_step_few_are_held_at_a_time() -> None:
    queues = QueuesRead("t", 1, read_max=1)
    (queue,) = queues.messages
    held: WeakSet[ReceivedMessage] = WeakSet()
    most = 0

    class Large(ReceivedMessage):
        def alone(self) -> ReceivedMessage:
            nonlocal most
            one = message_at(self.queue, self.offset, stored_ms=self.offset)
            one.size = self.size
            held.add(one)
            most = max(most, len(held))
            return one

    for offset in range(100):
        stored = message_at(queue, offset, stored_ms=offset).stored()
        size = LARGE_BYTES if offset < 80 else 100
        queues.messages[queue].append(Large(queue, offset, size, _stored=stored))
    found = await newest_messages(queues.face(), [queue], 100)
    assert offsets(found.messages) == [(0, number) for number in range(99, 78, -1)]
    assert most <= 20 + 5
