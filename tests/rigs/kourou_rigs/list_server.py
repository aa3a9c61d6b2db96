"""An HTTP server that returns a list of name servers, or broken responses.

State: soft.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Self


class ListServer:
    """Returns raw responses in turn; the last one is repeated.

    `paths` are the requested paths; `exhausted` is set when the last response has been repeated
    once.
    """

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = list(answers)
        self.paths: list[str] = []
        self.exhausted = asyncio.Event()
        self.address = ""
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The URL of a list."""
        return f"http://{self.address}/list"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection with one request."""
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answers[min(len(self.paths), len(self.answers) - 1)])
        self.paths.append(head.split()[1].decode())
        if len(self.paths) > len(self.answers):
            self.exhausted.set()
        writer.close()
        with contextlib.suppress(ConnectionError):  # the client may close early
            await writer.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._answer(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Listen on a free port during the block."""
        async with await asyncio.start_server(self._connected, "127.0.0.1", 0) as server:
            self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
            await asyncio.gather(*self._answering)


def answer_of(body: bytes, *, status: bytes = b"200 OK", length: int | None = None) -> bytes:
    """A response with this body; `length` is its Content-Length."""
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
"""Malformed or incomplete responses."""

PAGES = [answer_of(b"<html>captive portal</html>"), answer_of(b"  \n")]
"""Complete responses that are not lists."""
