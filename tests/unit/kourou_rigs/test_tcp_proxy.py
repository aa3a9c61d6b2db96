"""What arrives through a wire, and what does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kourou_rigs.tcp_proxy import TcpProxy

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Arrived(asyncio.Queue[Ends]):
    """Whoever arrives at the listener; `ends` are all that were ever opened."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[Ends] = []


@asynccontextmanager
async def wired() -> AsyncIterator[tuple[TcpProxy, Arrived]]:
    """A wire to a listener, and whoever arrives there."""
    arrived = Arrived()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.ends.append((reader, writer))
        await arrived.put((reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    wire = await TcpProxy("127.0.0.1", 0, *server.sockets[0].getsockname()).open()
    yield wire, arrived
    await wire.close()
    server.close()
    for _, writer in arrived.ends:
        writer.transport.abort()
    await turns()


async def dial(wire: TcpProxy, arrived: Arrived) -> Ends:
    ours = await asyncio.open_connection(wire.host, wire.port)
    arrived.ends.append(ours)
    return ours


async def joined(wire: TcpProxy, arrived: Arrived) -> tuple[Ends, Ends]:
    return await dial(wire, arrived), await arrived.get()


async def says(ends: Ends, data: bytes) -> None:
    ends[1].write(data)
    await ends[1].drain()


async def turns() -> None:
    """As many as bytes on loopback take when nothing holds them."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_bytes_arrive_both_ways():
    async with wired() as (wire, arrived):
        ours, theirs = await joined(wire, arrived)
        await says(ours, b"question")
        assert await theirs[0].readexactly(8) == b"question"
        await says(theirs, b"answer")
        assert await ours[0].readexactly(6) == b"answer"


async def test_what_is_held_arrives_later_and_in_order():
    async with wired() as (wire, arrived):
        ours, theirs = await joined(wire, arrived)
        wire.hold()
        await says(ours, b"one")
        waiting = asyncio.create_task(theirs[0].readexactly(6))
        await turns()
        await says(ours, b"two")
        await turns()
        assert not waiting.done()
        wire.flow()
        assert await waiting == b"onetwo"


async def test_one_way_is_held_and_the_other_flows():
    async with wired() as (wire, arrived):
        ours, theirs = await joined(wire, arrived)
        wire.hold(answers=False)
        await says(ours, b"unheard")
        await says(theirs, b"heard")
        assert await ours[0].readexactly(5) == b"heard"
        waiting = asyncio.create_task(theirs[0].readexactly(7))
        await turns()
        assert not waiting.done()
        wire.flow()
        assert await waiting == b"unheard"


async def test_nobody_gets_through_while_it_is_held():
    async with wired() as (wire, arrived):
        wire.hold()
        await dial(wire, arrived)
        await turns()
        assert arrived.empty()
        wire.flow()
        await arrived.get()


async def test_an_end_is_an_end_on_both_sides():
    async with wired() as (wire, arrived):
        ours, theirs = await joined(wire, arrived)
        theirs[1].close()
        assert await ours[0].read() == b""
        ours, theirs = await joined(wire, arrived)
        wire.tear()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ours[0].readexactly(1)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await theirs[0].readexactly(1)


async def test_where_nobody_listens_a_connection_ends():
    async with wired() as (wire, arrived):
        wire.target = ("127.0.0.1", 1)
        ours = await dial(wire, arrived)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ours[0].readexactly(1)


async def test_a_shut_wire_refuses_and_is_opened_at_the_same_place():
    async with wired() as (wire, arrived):
        ours, _ = await joined(wire, arrived)
        wire.shut()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ours[0].readexactly(1)
        with pytest.raises(ConnectionRefusedError):
            await dial(wire, arrived)
        await wire.open()
        ours, theirs = await joined(wire, arrived)
        await says(ours, b"again")
        assert await theirs[0].readexactly(5) == b"again"


async def test_delayed_bytes_keep_their_order():
    async with wired() as (wire, arrived):
        ours, theirs = await joined(wire, arrived)
        wire.delay_ms = 30
        await says(ours, b"first ")
        await turns()
        wire.delay_ms = 0
        await says(ours, b"second")
        assert await theirs[0].readexactly(12) == b"first second"


async def test_nobody_else_gets_the_port_of_a_wire_that_is_shut() -> None:
    wire = await TcpProxy("127.0.0.1", 0, "127.0.0.1", 9).open()
    wire.shut()
    try:
        with socket.socket() as other, pytest.raises(OSError, match="already in use"):
            other.bind(("127.0.0.1", wire.port))
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", wire.port)
        assert (await wire.open()).port == wire.port
    finally:
        await wire.close()


async def test_a_connection_is_ended_that_is_torn_in_the_moment_it_comes() -> None:
    """Nobody may have looked at it yet: its task has not begun."""
    async with wired() as (wire, arrived):
        reader, writer = await dial(wire, arrived)
        wire._accept(reader, writer)
        wire.tear()
        await turns()
        assert writer.transport.is_closing()
        await wire.close()
        assert wire.connections == 0


async def test_both_sides_are_ended_by_one_that_is_torn_twice() -> None:
    async with wired() as (wire, arrived):
        ours, theirs = await joined(wire, arrived)
        wire.tear()
        await asyncio.sleep(0)
        wire.tear()
        assert await asyncio.wait_for(ours[0].read(), 20) == b""
        assert await asyncio.wait_for(theirs[0].read(), 20) == b""
