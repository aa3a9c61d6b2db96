"""Messages as an iteration, and what moving on means."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.received import ReceivedMessage
from kourou.client.streams import BlockingStreamRunner, StreamRunner
from kourou.model.queue import MessageQueue


class Reports:
    def __init__(self) -> None:
        self.done: list[int] = []
        self.errors: list[tuple[int, str]] = []
        self.unwanted: set[int] = set()

    def finished(self, message):
        self.done.append(message.offset)

    def failed(self, message, error):
        self.errors.append((message.offset, str(error)))

    def wanted(self, message):
        return message.offset not in self.unwanted


def messages(count):
    return [ReceivedMessage(MessageQueue("T", "b", 0), offset, 10) for offset in range(count)]


@pytest.fixture
def reports():
    return Reports()


@pytest.fixture
async def stream(reports):
    def make(*, auto_ack=True):
        return StreamRunner(asyncio.get_running_loop(), reports, auto_ack=auto_ack)

    return make


async def test_asking_for_the_next_acknowledges_this_one(reports, stream):
    runner = stream()
    runner.hand(messages(3))
    seen = []
    async for message in runner:
        assert reports.done == seen
        seen.append(message.offset)
        if len(seen) == 3:
            break
    assert reports.done == [0, 1], "the loop was left in the middle of the third"


async def test_by_hand(reports, stream):
    runner = stream(auto_ack=False)
    runner.hand(messages(4))
    taken = [await anext(runner) for _ in range(4)]
    assert reports.done == []
    taken[2].ack()
    taken[2].ack()
    taken[2].retry()
    taken[1].retry(ValueError("later"))
    taken[0].retry()
    assert reports.done == [2], "only the first word counts"
    assert reports.errors == [(1, "later"), (0, "the application asked for a retry")]


async def test_with_a_message(reports, stream, caplog):
    runner = stream()
    runner.hand(messages(3))
    async for message in runner:
        async with message:
            if message.offset == 1:
                raise ValueError("no")
        if message.offset == 2:
            break
    assert reports.done == [0, 2]
    assert reports.errors == [(1, "no")]


async def test_a_cancelled_block_neither_acknowledges_nor_retries(reports, stream):
    runner = stream(auto_ack=False)
    runner.hand(messages(1))
    message = await anext(runner)
    with pytest.raises(asyncio.CancelledError):
        async with message:
            raise asyncio.CancelledError
    assert (reports.done, reports.errors) == ([], [])


async def test_messages_of_lost_queues_are_passed_over(reports, stream):
    runner = stream()
    reports.unwanted = {0, 1}
    runner.hand(messages(3))
    assert (await anext(runner)).offset == 2


async def test_it_waits_for_messages(reports, stream):
    runner = stream()
    waiting = asyncio.ensure_future(anext(runner))
    await asyncio.sleep(0)
    runner.hand(messages(1))
    assert (await waiting).offset == 0


async def test_closing_ends_the_iteration(reports, stream):
    runner = stream()
    waiting = asyncio.ensure_future(anext(runner, None))
    await asyncio.sleep(0)
    assert await runner.close(0)
    assert await waiting is None
    runner.hand(messages(1))
    assert [message.offset async for message in runner] in ([], [0])


async def test_an_end_for_a_loop_that_is_gone(reports):
    loop = asyncio.new_event_loop()
    runner = StreamRunner(loop, reports, auto_ack=True)
    loop.close()
    runner.hand(messages(1))
    assert await runner.close(0)


async def test_blocking(reports):
    runner = BlockingStreamRunner(reports, auto_ack=True)
    runner.hand(messages(3))
    reports.unwanted = {1}
    seen = []
    for message in runner:
        seen.append(message.offset)
        if len(seen) == 2:
            break
    assert (seen, reports.done) == ([0, 2], [0])
    with message:
        pass
    assert reports.done == [0, 2]


async def test_blocking_ends(reports):
    runner = BlockingStreamRunner(reports, auto_ack=True)
    waiting = asyncio.get_running_loop().run_in_executor(None, lambda: list(runner))
    assert await runner.close(0)
    assert await waiting == []
    assert list(runner) == [], "whoever asks again is told again"
