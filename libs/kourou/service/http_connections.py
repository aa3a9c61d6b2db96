"""A small HTTP server for the admin pages of a service: one GET per connection.

A request's header must be complete within ADMIN_HEADER_S_MAX and its response received within
ADMIN_ANSWER_S_MAX, or the connection is closed. A request's body is not read. aiohttp would cost
every service 20 MB of memory and a quarter of its startup time.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl, unquote, urlsplit

from kourou.model.limits import (
    ADMIN_ANSWER_S_MAX,
    ADMIN_CONNECTIONS_MAX,
    ADMIN_HEAD_BYTES_MAX,
    ADMIN_HEADER_S_MAX,
)

_log = logging.getLogger("kourou.service")

_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """A request; if a query name is repeated, the last value counts."""

    method: str
    path: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; a HEAD request gets only its header."""

    status: HTTPStatus
    content_type: str
    content: bytes

    def encode(self, *, head_only: bool) -> bytes:
        """Return the bytes of the response, after which the connection is closed."""
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}; charset=utf-8\r\n"
            f"Content-Length: {len(self.content)}\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + (b"" if head_only else self.content)


Handler = Callable[[Request], Awaitable[Answer]]


class GuardedServer:
    """A protocol factory for `create_server`; `connections` are the open ones."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.connections: set[_Connection] = set()

    def __call__(self) -> asyncio.Protocol:
        """Create the protocol of a new connection."""
        return _Connection(self)

    def close(self) -> None:
        """Abort every connection."""
        for connection in list(self.connections):
            connection.cut_off()


class _Connection(asyncio.Protocol):
    def __init__(self, server: GuardedServer) -> None:
        self._server = server
        self._head = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._guard = asyncio.get_running_loop().call_later(ADMIN_HEADER_S_MAX, self.cut_off)
        if len(self._server.connections) >= ADMIN_CONNECTIONS_MAX:
            self.cut_off()
        else:
            self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.cancel()
        self._server.connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._task is not None:  # a body, or a second request
            return
        self._head += data
        end = self._head.find(_END_OF_HEAD, 0, ADMIN_HEAD_BYTES_MAX)
        if end >= 0:
            self._task = asyncio.get_running_loop().create_task(
                self._answer(bytes(self._head[:end]))
            )
        elif len(self._head) >= ADMIN_HEAD_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def eof_received(self) -> bool:
        """Return True while a response is pending: a half-closed client still gets it."""
        return self._task is not None

    def cut_off(self) -> None:
        """Abort the connection without a response."""
        self._transport.abort()

    async def _answer(self, head: bytes) -> None:
        self._guard.cancel()
        self._guard = asyncio.get_running_loop().call_later(ADMIN_ANSWER_S_MAX, self.cut_off)
        request = read_request(head)
        if request is None:
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        try:
            answer = await self._server.handler(request)
        except Exception:  # noqa: BLE001 - a page that fails must not end the service
            _log.exception("page_failed path=%s", request.path)
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self._transport.write(answer.encode(head_only=request.method == "HEAD"))
        self._transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        answer = Answer(status, "text/plain", f"{status.phrase}\n".encode())
        self._transport.write(answer.encode(head_only=False))
        self._transport.close()


def read_request(head: bytes) -> Request | None:
    """Parse the header of a request, without its last line end; None if it is not HTTP/1."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[0].isalpha():
        return None
    try:
        target = urlsplit(words[1])
        query = dict(parse_qsl(target.query, keep_blank_values=True))
    except ValueError:  # such as an unclosed bracket
        return None
    if not target.path.startswith("/"):
        return None
    return Request(words[0], unquote(target.path), query)
