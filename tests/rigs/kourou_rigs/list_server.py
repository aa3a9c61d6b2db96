"""An HTTP server that gives out a list of name servers, well or badly.

State: soft.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Self


class ListServer:
    """Gives raw answers, one after the other; the last one is given again and again.

    `paths` are those that were asked for; `exhausted` is set once the last answer was read once.
    """

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = list(answers)
        self.paths: list[str] = []
        self.exhausted = asyncio.Event()
        self.address = ""
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where a list is."""
        return f"http://{self.address}/list"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request, one answer."""
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answers[min(len(self.paths), len(self.answers) - 1)])
        self.paths.append(head.split()[1].decode())
        if len(self.paths) > len(self.answers):
            self.exhausted.set()
        writer.close()
        with contextlib.suppress(ConnectionError):  # who has read enough hangs up
            await writer.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._answer(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """While it listens on a free port."""
        async with await asyncio.start_server(self._connected, "127.0.0.1", 0) as server:
            self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
            await asyncio.gather(*self._answering)


def answer_of(body: bytes, *, status: bytes = b"200 OK", length: int | None = None) -> bytes:
    """An answer with this body; `length` is what it says of the body's length."""
    length = len(body) if length is None else length
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, length, body)


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

BAD_ANSWERS = {
    "garbage": b"\x00\xff\xfe no http at all\r\n\r\n",
    "nothing": b"",
    "truncated": answer_of(b"n1:9876", length=15),
    "empty": answer_of(b"", length=15),
    "huge": answer_of(b"n1:9876;" * 100_000),
    "endless": b"HTTP/1.0 200 OK\r\n\r\n" + b"n1:9876;" * 100_000,
    "chunk": _CHUNKED + b"zz\r\nn1:9876",
    "half a chunk": _CHUNKED + b"f\r\nn1:9876;",
    "500": answer_of(b"n1:9876", status=b"500 Internal Server Error"),
    "no text": answer_of(b"n1:\xff\xfe"),
    "long header": b"HTTP/1.0 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\nn1:9876",
}
"""None of them is whole."""

PAGES = [answer_of(b"<html>captive portal</html>"), answer_of(b"  \n")]
"""Whole, and no lists."""
