"""Crossing a thread border costs one wakeup a burst and loses nothing."""

from __future__ import annotations

import asyncio
import threading

from kourou.client.session.io_thread import ThreadQueue


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


def test_the_next_burst_rings_again():
    loop, taken = CountingLoop(), []
    handover = ThreadQueue(loop, taken.append)
    for number in range(2):
        handover.put(number)
        loop.turn()
    assert taken == [[0], [1]]


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
