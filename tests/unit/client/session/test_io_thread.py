"""Where a client's conversations run: a thread, shared and counted, or the loop that opened it."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from kourou import Client
from kourou.client.session import io_thread
from kourou.client.session.io_thread import ClientClosed, ThreadQueue, background


async def where() -> str:
    return threading.current_thread().name


@pytest.fixture
def thread():
    thread = io_thread.acquire("test:1")
    yield thread
    io_thread.release(thread)


async def test_cancelling_here_cancels_there(thread):
    started, cancelled = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def endless():
        loop.call_soon_threadsafe(started.set)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    task = asyncio.ensure_future(thread.run(endless()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await loop.run_in_executor(None, cancelled.wait, 5)


@pytest.mark.feature("F285")
def test_one_thread_for_one_set_of_name_servers(thread):
    again = io_thread.acquire("test:1")
    other = io_thread.acquire("test:2")
    assert again is thread
    assert other is not thread
    io_thread.release(other)
    io_thread.release(again)
    assert other.loop.is_closed()
    assert not thread.loop.is_closed(), "its first user still has it"


async def test_after_the_last_user_it_is_closed():
    thread = io_thread.acquire("test:3")
    ended = threading.Event()

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    thread.submit(endless())
    await thread.run(where())
    io_thread.release(thread)
    assert ended.is_set(), "what still ran was cancelled"
    with pytest.raises(ClientClosed):
        await thread.run(where())


# -- the loop that opened a client ----------------------------------------------------------------

ALONE = "127.0.0.1:9877"
"""Name servers that no other test's client shares a thread with."""


def threads_of_clients() -> list[str]:
    return [one.name for one in threading.enumerate() if ALONE in one.name]


async def test_a_client_that_only_sends_has_no_thread(broker, cluster):
    async with Client(ALONE, dial=cluster.dial) as mq:
        await asyncio.gather(*(mq.send("T", b"%d" % number) for number in range(100)))
        await mq.send_batch("T", [b"a", b"b"])
        assert await mq.admin.topics.list()
        assert threads_of_clients() == []
    assert len(broker.stored("T")) == 102


async def test_consuming_starts_one_and_closing_ends_it(broker, cluster, tools):
    inbox = tools.Inbox(2)
    async with Client(ALONE, dial=cluster.dial, group="g") as mq:
        async with mq.listen("T", inbox.handle), mq.listen("T", inbox.handle, group="h"):
            assert len(threads_of_clients()) == 1
            assert list(broker.members["g"]) == list(broker.members["h"]) == [mq.client_id]
            await mq.send("T", b"x")
            await inbox.full.wait()
        await mq.pull_consumer("i")
        async with mq.listen("T", inbox.handle, group="j", ordered=True):
            assert len(threads_of_clients()) == 1
    assert threads_of_clients() == []


async def test_another_loop_may_send_while_that_one_runs(broker, cluster):
    async with Client(ALONE, dial=cluster.dial) as mq:

        async def send_there():
            return [await mq.send("T", b"%d" % number) for number in range(10)]

        results = await asyncio.to_thread(asyncio.run, send_there())
        assert len({one.message_id for one in results}) == len(broker.stored("T")) == 10


def test_when_that_loop_has_ended_calls_say_so(broker, cluster):
    mq = Client(ALONE, dial=cluster.dial)
    asyncio.run(mq.open())
    for call in (lambda: mq.send("T", b"x"), lambda: mq.admin.topics.list(), mq.close):
        with pytest.raises(ClientClosed, match="event loop that opened this client has ended"):
            asyncio.run(call())


# -- background tasks ------------------------------------------------------------------------------


async def test_a_failure_is_logged_with_its_name(caplog):
    async def fail():
        raise ZeroDivisionError("ouch")

    task = background(fail(), "the heartbeat")
    with pytest.raises(ZeroDivisionError):
        await task
    await asyncio.sleep(0)
    assert "background task failed unexpectedly: the heartbeat" in caplog.text
    assert "ouch" in caplog.text


async def test_ending_and_cancelling_are_silent(caplog):
    async def end():
        return

    async def wait():
        await asyncio.Event().wait()

    await background(end(), "one")
    waiting = background(wait(), "two")
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert caplog.text == ""


async def test_what_is_current_where_it_starts_is_not_current_in_it():
    current = contextvars.ContextVar("current", default="nothing")
    current.set("a span of the application")
    seen = []

    async def look():
        seen.append(current.get())

    await background(look(), "looking")
    assert seen == ["nothing"]


# -- queues between threads ------------------------------------------------------------------------


class CountingLoop:
    """Counts wakeups and runs them when told."""

    def __init__(self) -> None:
        self.rung = []
        self.closed = False

    def call_soon_threadsafe(self, callback):
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.rung.append(callback)

    def turn(self):
        callbacks, self.rung = self.rung, []
        for callback in callbacks:
            callback()


def test_a_burst_rings_once():
    loop, taken = CountingLoop(), []
    handover = ThreadQueue(loop, taken.append)
    for number in range(5):
        assert handover.put(number)
    handover.put_many([5, 6])
    assert len(loop.rung) == 1
    loop.turn()
    assert taken == [[0, 1, 2, 3, 4, 5, 6]]


def test_what_comes_while_taking_is_taken_next():
    loop, taken = CountingLoop(), []

    def take(items):
        taken.append(items)
        if len(taken) == 1:
            handover.put("again")

    handover = ThreadQueue(loop, take)
    handover.put("first")
    loop.turn()
    loop.turn()
    assert taken == [["first"], ["again"]]


def test_a_closed_loop_is_reported():
    loop = CountingLoop()
    loop.closed = True
    assert ThreadQueue(loop, print).put(1) is False


async def test_many_threads_lose_nothing_and_keep_their_order():
    taken: list[tuple[int, int]] = []
    complete = asyncio.Event()

    def take(items):
        taken.extend(items)
        if len(taken) == 4 * 500:
            complete.set()

    handover = ThreadQueue(asyncio.get_running_loop(), take)

    def puts(thread):
        for number in range(500):
            handover.put((thread, number))

    threads = [threading.Thread(target=puts, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    await complete.wait()
    for thread in threads:
        thread.join()
    for thread in range(4):
        assert [number for owner, number in taken if owner == thread] == list(range(500))
