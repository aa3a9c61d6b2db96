"""A burst is found whole, whoever swallows the descriptor's signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import zmq

from kourou.transport.zmq_socket import EdgeReader

Pair = tuple[zmq.Socket[bytes], zmq.Socket[bytes]]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
        await asyncio.sleep(0)


class Taker:
    """Takes at most `limit` messages a look."""

    def __init__(self, socket: zmq.Socket[bytes], limit: int = 1_000) -> None:
        self.socket = socket
        self.limit = limit
        self.taken: list[bytes] = []
        self.looks: list[int] = []

    def look(self) -> bool:
        before = len(self.taken)
        try:
            for _ in range(self.limit):
                self.taken.append(self.socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            self.looks.append(len(self.taken) - before)
            return False
        self.looks.append(self.limit)
        return True


async def test_what_arrived_before_the_start_is_found(pair: Pair) -> None:
    first, second = pair
    second.send(b"early")
    first.poll()  # it is there, and the descriptor's signal may be spent by asking
    taker = Taker(first)
    reader = EdgeReader(asyncio.get_running_loop(), first, taker.look)
    reader.start()
    await until(lambda: taker.taken == [b"early"])
    reader.stop()


@pytest.mark.parametrize("limit", [1, 7, 1_000])
async def test_nothing_is_left_behind(pair: Pair, limit: int) -> None:
    first, second = pair
    taker = Taker(first, limit)
    reader = EdgeReader(asyncio.get_running_loop(), first, taker.look)
    reader.start()
    for number in range(300):
        second.send(b"%d" % number)
        if number % 50 == 0:
            await asyncio.sleep(0)
    await until(lambda: len(taker.taken) == 300)
    assert taker.taken == [b"%d" % number for number in range(300)]
    assert max(taker.looks) <= limit
    reader.stop()


async def test_a_signal_swallowed_by_sending_is_noticed(pair: Pair) -> None:
    """Each round sends outside of a look, which eats signals; `touched` makes up for it."""
    first, second = pair
    taker = Taker(first)
    reader = EdgeReader(asyncio.get_running_loop(), first, taker.look)
    reader.start()
    for number in range(200):
        second.send(b"%d" % number)
        first.send(b"noise")
        reader.touched()
        await asyncio.sleep(0)
    await until(lambda: len(taker.taken) == 200)
    reader.stop()


async def test_a_look_may_stop_its_reader(pair: Pair) -> None:
    first, second = pair
    calls = 0

    def look() -> bool:
        nonlocal calls
        calls += 1
        reader.stop()
        first.close()
        return True

    reader = EdgeReader(asyncio.get_running_loop(), first, look)
    reader.start()
    await until(lambda: calls == 1)
    reader.stop()
    reader.touched()
    await asyncio.sleep(0)
    assert calls == 1
    assert second.closed is False
