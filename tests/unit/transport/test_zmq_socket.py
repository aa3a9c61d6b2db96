"""Options that keep sockets honest."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

from kourou.model import limits
from kourou.transport.curve_keys import AllowedKeys
from kourou.transport.wire import PATIENT, WireTimeouts
from kourou.transport.zmq_socket import (
    EdgeReader,
    close_domain,
    open_dealer,
    open_domain,
    open_router,
    process_context,
)
from kourou_rigs.forked import in_child
from kourou_rigs.waiting import until


@pytest.mark.parametrize(
    "timeouts",
    [PATIENT, WireTimeouts(100, 500, 1_000, 700, 500, 5_000, 32)],
    ids=["clients", "other"],
)
def test_a_dealer_has_the_timeouts_of_its_owner(timeouts: WireTimeouts) -> None:
    with open_dealer(timeouts) as socket:
        found = [
            int(socket.get(option))
            for option in (
                *(zmq.CONNECT_TIMEOUT, zmq.TCP_MAXRT, zmq.HANDSHAKE_IVL),
                *(zmq.HEARTBEAT_IVL, zmq.HEARTBEAT_TIMEOUT, zmq.SNDHWM),
            )
        ]
    assert found == [
        timeouts.connect_ms,
        timeouts.unread_ms,
        timeouts.greeting_ms,
        timeouts.probe_ms,
        timeouts.silence_ms,
        timeouts.pipe_messages,
    ]


@pytest.mark.parametrize("make", [open_router, open_dealer])
def test_no_queue_is_endless_and_no_frame_unlimited(
    make: Callable[[], zmq.Socket[bytes]],
) -> None:
    with make() as socket:
        assert 0 < int(socket.get(zmq.SNDHWM)) <= 1_000
        assert 0 < int(socket.get(zmq.RCVHWM)) <= 1_000
        assert socket.get(zmq.MAXMSGSIZE) == limits.FRAME_SIZE_BYTES_MAX
        assert int(socket.get(zmq.LINGER)) >= 0
        assert 0 < int(socket.get(zmq.HEARTBEAT_IVL)) < int(socket.get(zmq.HEARTBEAT_TIMEOUT))


# -- one context a process; a child gets its own ---------------------------------------------------


def test_all_threads_share_one() -> None:
    with ThreadPoolExecutor(8) as pool:
        contexts = list(pool.map(lambda _: process_context(), range(50)))
    assert set(map(id, contexts)) == {id(process_context())}


def test_a_child_can_talk_although_its_parent_did() -> None:
    parent = process_context()

    def talk() -> bytes:
        own = process_context()
        first, second = own.socket(zmq.PAIR), own.socket(zmq.PAIR)
        port = first.bind_to_random_port("tcp://127.0.0.1")
        second.connect(f"tcp://127.0.0.1:{port}")
        first.send(b"alive")
        return second.recv()

    with parent.socket(zmq.PAIR) as one:
        one.bind_to_random_port("tcp://127.0.0.1")
        assert in_child(talk) == "b'alive'"
    assert process_context() is parent


# -- one authenticator for all listeners of a process, and none in one that has no keys ------------


ANYBODY = AllowedKeys(None)
WITHOUT_KEYS = """
import threading
from kourou.transport.zmq_server import ZmqServer
print([one.name for one in threading.enumerate()])
"""
LEFT_OPEN = """
from kourou.transport.zmq_socket import open_domain
from kourou.transport.curve_keys import AllowedKeys
open_domain(AllowedKeys(None), lambda: "here:1")
"""


def where() -> str:
    return "127.0.0.1:1"


def threads() -> int:
    return sum("Authentication" in type(one).__name__ for one in threading.enumerate())


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_all_listeners_share_one_thread() -> None:
    first, second = open_domain(ANYBODY, where), open_domain(ANYBODY, where)
    assert first != second
    assert threads() == 1
    close_domain(first)
    close_domain(first)
    close_domain(second)
    again = open_domain(ANYBODY, where)
    assert threads() == 1
    close_domain(again)


def test_who_has_no_keys_has_no_thread() -> None:
    assert run(WITHOUT_KEYS) == "['MainThread']\n"


def test_a_process_ends_though_somebody_still_listens() -> None:
    assert run(LEFT_OPEN) == ""


def test_a_child_has_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    def listen() -> int:
        own = open_domain(ANYBODY, where)
        found = threads()
        close_domain(own)
        return found

    domain = open_domain(ANYBODY, where)
    assert in_child(listen) == "1"
    close_domain(domain)
    assert capfd.readouterr().err == ""


# -- A burst is found whole, whoever swallows the descriptor's signal ------------------------------


Pair = tuple[zmq.Socket[bytes], zmq.Socket[bytes]]


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
