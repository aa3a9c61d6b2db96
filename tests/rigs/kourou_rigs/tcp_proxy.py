"""A proxy between two processes that can block either direction, delay data or cut connections.

    wire = await TcpProxy("127.0.0.1", 0, "127.0.0.1", 10911).open()
    wire.hold()                  nothing arrives any more; connections stay open
    wire.flow()                  data arrives again, including what was sent in the meantime
    wire.hold(answers=False)     hold only data for the target
    wire.delay_ms = 200          in each direction
    wire.tear()                  close all connections
    wire.shut()                  and refuse new ones until it is opened again

Held bytes stay in the buffers of the sockets, as in a network that loses all packets: a sender
notices when the buffers are full or when replies are missing. The end of a connection is held like
its bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any, Self

PIECE_BYTES = 65_536
PIECES_LATE_MAX = 64
"""The most delayed pieces per direction; then reading stops."""


class _Late:
    """Data in flight: its due time and content; empty content means the end."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_LATE_MAX)


def _bound(host: str, port: int) -> socket.socket:
    place = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the listener does
        place.bind((host, port))
    except BaseException:
        place.close()
        raise
    return place


class TcpProxy:
    """Listens at `host:port` and forwards connections to `target_host:target_port`."""

    def __init__(self, host: str, port: int, target_host: str, target_port: int) -> None:
        self.host = host
        self.port = port
        self.target = (target_host, target_port)
        #: The delay in each direction.
        self.delay_ms = 0.0
        #: The number of accepted connections.
        self.accepted = 0
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._server: asyncio.Server | None = None
        #: Bound but never listening: it reserves the port while the proxy is shut.
        self._place: socket.socket | None = None
        self._standing: set[asyncio.Task[None]] = set()
        self.flow()

    @property
    def address(self) -> str:
        """Its address, `host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._standing)

    async def open(self) -> Self:
        """Listen, on the same port if it was shut; port 0 selects a free one."""
        if self._server is not None:
            return self
        if self._place is None:
            self._place = _bound(self.host, self.port)
            self.port = self._place.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        return self

    async def close(self) -> None:
        """Stop listening and close all connections."""
        self.shut()
        if self._place is not None:
            self._place.close()
            self._place = None
        await asyncio.gather(*self._standing, return_exceptions=True)

    # -- faults ----------------------------------------------------------------------------------

    def hold(self, *, requests: bool = True, answers: bool = True) -> None:
        """Deliver nothing: `requests` to the target, `answers` from it."""
        if requests:
            self._there.clear()
        if answers:
            self._back.clear()

    def flow(self) -> None:
        """Deliver all data, including held data."""
        self._there.set()
        self._back.set()

    def tear(self) -> None:
        """Close all connections now, on both sides; data in flight is lost."""
        for task in self._standing:
            task.cancel()

    def shut(self) -> None:
        """Refuse connections, as a machine without a listener does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.tear()

    # -- connections -----------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._standing.add(task)

        def ended(_: asyncio.Task[None]) -> None:  # also if cancelled before the start
            self._standing.discard(task)
            _end(writer)

        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Without a target, or after `tear`, the client sees the end of its connection.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._there.wait()  # the connection attempt is held, too
            await self._between(reader, writer)

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_read, to_write = await asyncio.open_connection(*self.target)
        ways = [
            *self._way(reader, to_write, self._there),
            *self._way(to_read, writer, self._back),
        ]
        tasks = [asyncio.ensure_future(each) for each in ways]
        try:
            # The end of one side ends the other; Kourou's peers do not use half-closed connections.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            _end(to_write)  # first, because the task may be cancelled again while it waits below
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _way(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None]]:
        late = _Late()
        return self._take(reader, late), self._give(late, writer, gate)

    async def _take(self, reader: asyncio.StreamReader, late: _Late) -> None:
        now = asyncio.get_running_loop().time
        data = b"begin"
        while data:
            data = await reader.read(PIECE_BYTES)
            await late.queue.put((now() + self.delay_ms / 1_000, data))

    async def _give(self, late: _Late, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due, data = await late.queue.get()
            if (wait := due - now()) > 0:
                await asyncio.sleep(wait)
            await gate.wait()
            if not data:
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()


def _end(writer: asyncio.StreamWriter) -> None:
    """Close at once, discarding unsent data."""
    with contextlib.suppress(RuntimeError):  # the loop may be closing
        writer.transport.abort()
