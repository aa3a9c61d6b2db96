"""What a connection to an HTTP listener of ours may cost: time, memory, and a place.

Lives here: deadlines and counts below aiohttp's own parser. May not live here: any page.

aiohttp waits for ever for a header that comes one byte at a time. So each connection has a timer
that runs from the moment it is accepted until its request is complete, and another until the answer
is taken; whoever is late is cut off.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web, web_protocol

from kourou.model.limits import (
    ADMIN_ANSWER_S_MAX,
    ADMIN_BODY_BYTES_MAX,
    ADMIN_CONNECTIONS_MAX,
    ADMIN_HEADER_S_MAX,
    ADMIN_LINE_BYTES_MAX,
)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _GuardedConnection(web_protocol.RequestHandler):
    __slots__ = ("_guard", "_guarded_server")

    def __init__(self, manager: _GuardedServer, **options: Any) -> None:
        super().__init__(manager, **options)
        self._guarded_server = manager
        self._guard: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._guarded_server.connections) > ADMIN_CONNECTIONS_MAX:
            self._cut_off()
            return
        self._expect_within(ADMIN_HEADER_S_MAX)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._guard is not None:
            self._guard.cancel()
            self._guard = None
        super().connection_lost(exc)

    def request_is_complete(self) -> None:
        """The header came in time; from now on the answer's deadline runs."""
        self._expect_within(ADMIN_ANSWER_S_MAX)

    def _expect_within(self, seconds: float) -> None:
        if self._guard is not None:
            self._guard.cancel()
        self._guard = asyncio.get_running_loop().call_later(seconds, self._cut_off)

    def _cut_off(self) -> None:
        transport = self.transport
        if transport is not None:  # uvloop's are no asyncio.WriteTransport, and have its methods
            transport.abort()


class _GuardedServer(web.Server):
    def __call__(self) -> web_protocol.RequestHandler:
        return _GuardedConnection(self, loop=asyncio.get_running_loop(), **self._kwargs)


def guarded_server(handler: Handler) -> web.Server:
    """An aiohttp server whose connections cannot be held open for nothing."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, _GuardedConnection)
        connection.request_is_complete()
        return await handler(request)

    return _GuardedServer(
        handle,
        access_log=None,
        keepalive_timeout=0.0,
        max_line_size=ADMIN_LINE_BYTES_MAX,
        max_field_size=ADMIN_LINE_BYTES_MAX,
        read_bufsize=ADMIN_BODY_BYTES_MAX,
    )
