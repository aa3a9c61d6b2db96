"""A wire between two processes that a test can cut, one way or both, slow down or tear apart.

    wire = await TcpProxy("127.0.0.1", 0, "127.0.0.1", 10911).open()
    wire.hold()                  nothing arrives any more; nobody is told
    wire.flow()                  it does, also what was sent meanwhile: TCP sends it again
    wire.hold(answers=False)     only what goes to the target is held
    wire.delay_ms = 200          each way
    wire.tear()                  all connections end
    wire.shut()                  and nobody is let in, until it is opened again

Held bytes stay in the sockets' buffers, as on a network that loses everything: whoever sends
notices when those are full, or when nothing is answered. The end of a connection is held like its
bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any, Self

PIECE_BYTES = 65_536
PIECES_LATE_MAX = 64
"""So many pieces wait for their time; then nothing more is read."""


class _Late:
    """Bytes that are under way: when they may arrive, and what; nothing at all is the end."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_LATE_MAX)


def _bound(host: str, port: int) -> socket.socket:
    place = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the listener has it
        place.bind((host, port))
    except BaseException:
        place.close()
        raise
    return place


class TcpProxy:
    """Listens at `host:port` and speaks to `target_host:target_port` for whoever comes."""

    def __init__(self, host: str, port: int, target_host: str, target_port: int) -> None:
        self.host = host
        self.port = port
        self.target = (target_host, target_port)
        #: How late everything is, each way.
        self.delay_ms = 0.0
        #: How many connections were accepted.
        self.accepted = 0
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._server: asyncio.Server | None = None
        #: Bound and never listened at: while the wire is shut, nobody else gets its port.
        self._place: socket.socket | None = None
        self._standing: set[asyncio.Task[None]] = set()
        self.flow()

    @property
    def address(self) -> str:
        """Where it listens, `host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many stand."""
        return len(self._standing)

    async def open(self) -> Self:
        """Listen, again at the same port if it was shut; port 0 takes any."""
        if self._server is not None:
            return self
        if self._place is None:
            self._place = _bound(self.host, self.port)
            self.port = self._place.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        return self

    async def close(self) -> None:
        """End it all."""
        self.shut()
        if self._place is not None:
            self._place.close()
            self._place = None
        await asyncio.gather(*self._standing, return_exceptions=True)

    # -- faults ----------------------------------------------------------------------------------

    def hold(self, *, requests: bool = True, answers: bool = True) -> None:
        """Let nothing arrive: `requests` at the target, `answers` from it."""
        if requests:
            self._there.clear()
        if answers:
            self._back.clear()

    def flow(self) -> None:
        """Let everything arrive, what was held as well."""
        self._there.set()
        self._back.set()

    def tear(self) -> None:
        """End every connection now, on both sides; what is under way is lost."""
        for task in self._standing:
            task.cancel()

    def shut(self) -> None:
        """Refuse connections, as a machine does on which nobody listens any more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.tear()

    # -- connections -----------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._standing.add(task)

        def ended(_: asyncio.Task[None]) -> None:  # also of one that was torn before it began
            self._standing.discard(task)
            _end(writer)

        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Nobody is there, or it was torn: whoever came is told by the end of the connection.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._there.wait()  # a first packet does not get through either
            await self._between(reader, writer)

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_read, to_write = await asyncio.open_connection(*self.target)
        ways = [
            *self._way(reader, to_write, self._there),
            *self._way(to_read, writer, self._back),
        ]
        tasks = [asyncio.ensure_future(each) for each in ways]
        try:
            # One side's end is the other's: neither of ours speaks on after it was half closed.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            _end(to_write)  # first of all: it may be torn once more while it waits below
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
    """At once, and without what is still to be written."""
    with contextlib.suppress(RuntimeError):  # the loop may be closing
        writer.transport.abort()
