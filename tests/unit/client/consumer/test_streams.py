"""Messages as an iteration, and what moving on means."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kourou.client.consumer.received import ReceivedMessage
from kourou.client.consumer.streams import BlockingStreamRunner, StreamRunner
from kourou.client.introspection.running_info import ConsumeLog
from kourou.model.topic import MessageQueue
from kourou_rigs.clock import ManualClock

CLOCK = ManualClock()
LOG = ConsumeLog(CLOCK, logging.INFO)


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
    queue = MessageQueue("T", "b", 0)
    return [
        ReceivedMessage(queue, offset, 10, _properties={"UNIQ_KEY": f"K{offset}"})
        for offset in range(count)
    ]


@pytest.fixture
def reports():
    return Reports()


@pytest.fixture
async def stream(reports):
    def make(*, auto_ack=True):
        return StreamRunner(asyncio.get_running_loop(), reports, LOG, auto_ack=auto_ack)

    return make


async def test_asking_for_the_next_acknowledges_this_one(reports, stream):
    runner = stream()
    runner.submit(messages(3))
    seen = []
    async for message in runner:
        assert reports.done == seen
        seen.append(message.offset)
        if len(seen) == 3:
            break
    assert reports.done == [0, 1], "the loop was left in the middle of the third"


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("auto_ack", [True, False])
async def test_a_block_that_is_broken_off_asks_for_a_retry(reports, stream, error, auto_ack):
    runner = stream(auto_ack=auto_ack)
    runner.submit(messages(2))
    message = await anext(runner)
    with pytest.raises(error):
        async with message:
            raise error("stop")
    assert reports.errors == [(0, "stop")]
    await anext(runner)
    assert reports.done == [], "moving on does not acknowledge what was not consumed"


@pytest.mark.feature("F375")
async def test_what_was_consumed_is_logged_with_its_time(reports, stream, caplog):
    caplog.set_level(logging.INFO, "kourou.client.consume")
    runner = stream()
    runner.submit(messages(3))
    first = await anext(runner)
    CLOCK.advance(5)
    second = await anext(runner)
    second.retry()
    await anext(runner)
    assert caplog.messages == [f"message-consumed: consumed {first} in 5 ms"]


async def test_messages_of_lost_queues_are_passed_over(reports, stream):
    runner = stream()
    reports.unwanted = {0, 1}
    runner.submit(messages(3))
    assert (await anext(runner)).offset == 2


async def test_closing_ends_the_iteration(reports, stream):
    runner = stream()
    waiting = asyncio.ensure_future(anext(runner, None))
    await asyncio.sleep(0)
    assert await runner.close(0)
    assert await waiting is None
    runner.submit(messages(1))
    assert [message.offset async for message in runner] in ([], [0])


async def test_an_end_for_a_loop_that_is_gone(reports):
    loop = asyncio.new_event_loop()
    runner = StreamRunner(loop, reports, LOG, auto_ack=True)
    loop.close()
    runner.submit(messages(1))
    assert await runner.close(0)


async def test_blocking(reports):
    runner = BlockingStreamRunner(reports, LOG, auto_ack=True)
    runner.submit(messages(3))
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
    runner = BlockingStreamRunner(reports, LOG, auto_ack=True)
    waiting = asyncio.get_running_loop().run_in_executor(None, lambda: list(runner))
    assert await runner.close(0)
    assert await waiting == []
    assert list(runner) == [], "whoever asks again is told again"
