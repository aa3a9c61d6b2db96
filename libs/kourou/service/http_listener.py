"""The listener of an HTTP server: a port serves clear text or TLS, never both.

With TLS a connection's first byte decides, before anything is read: 0x16 begins a handshake, and
anything else gets a response in clear text that says so, and ends. Then asyncio's TLS carries the
connection: HTTP needs a transport, unlike the frames of kourou.transport.tls_link.

The files of TLS are compared before each handshake, so the next connection uses what has changed.
At most HTTPS_HANDSHAKES_MAX connections wait for their handshake: beyond, the oldest one is ended.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
import socket as socketlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from kourou.clock import SystemClock
from kourou.model import limits
from kourou.transport.addresses import bindable, join_address
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.tcp_server import ACCEPT_RETRY_S
from kourou.transport.tls import TLS_HANDSHAKE, ServerTls, why

_log = logging.getLogger("kourou.service")

BACKLOG = 100
"""Connections that wait to be accepted; asyncio's default."""


_HINT = b"this port serves HTTPS: use https:// in the address\n"
_NO_CLEAR_TEXT = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_HINT), _HINT)
)
_DISCARDED_BYTES = 65_536


class HttpListener:
    """Listens on one address; with `tls` it serves TLS only. A `port` of 0 takes any.

    `connect` makes the protocol of a connection, which begins after the handshake.
    """

    def __init__(
        self,
        connect: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        tls: ServerTls | None = None,
        *,
        backlog: int = BACKLOG,
    ) -> None:
        self.host = host
        self.port = port
        self._connect = connect
        self._tls = tls
        self._backlog = backlog
        self._server: asyncio.Server | None = None
        self._socket: socketlib.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        #: Connections before the end of their handshake, the oldest first.
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._complaints = RateLimitedLog(_log, SystemClock())

    async def start(self) -> None:
        """Bind and start to accept. Raises OSError, with TLS also ConfigError for the host."""
        loop = asyncio.get_running_loop()
        if self._tls is None:
            self._server = await loop.create_server(
                self._connect, self.host, self.port, backlog=self._backlog
            )
            self.port = self._server.sockets[0].getsockname()[1]
            return
        host = bindable(self.host)
        family = socketlib.AF_INET6 if ":" in host else socketlib.AF_INET
        self._socket = socketlib.create_server(
            (host, self.port), family=family, backlog=self._backlog
        )
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._accepting = loop.create_task(self._accept(self._socket, self._tls))

    async def close(self) -> None:
        """Accept no more connections, and end unfinished handshakes; other connections stay."""
        if self._server is not None:
            self._server.close()
        ended = list(self._handshakes)
        if self._accepting is not None:
            ended.append(self._accepting)
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def wait_closed(self) -> None:
        """Wait until a closed listener in clear text has released its port."""
        if self._server is not None:
            await self._server.wait_closed()

    @property
    def address(self) -> str:
        """The bound address, as `host:port`."""
        return join_address(self.host, self.port)

    @property
    def url(self) -> str:
        """The bound address as a URL without a path."""
        return f"{'http' if self._tls is None else 'https'}://{self.address}"

    # -- TLS --------------------------------------------------------------------------------------

    async def _accept(self, listening: socketlib.socket, tls: ServerTls) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except ConnectionError:  # the peer is gone
                continue
            except OSError as error:  # no file descriptor is free
                self._complaints.warning(
                    "accept-failed: connections cannot be accepted: %(error)s",
                    {"error": error.strerror},
                )
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            if len(self._handshakes) >= limits.HTTPS_HANDSHAKES_MAX:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
                self._complaints.warning(
                    "tls-handshakes-limited: too many TLS handshakes: ending the oldest one"
                )
            where = join_address(str(address[0]), int(address[1]))
            task = loop.create_task(self._begin(connection, where, tls))
            self._handshakes[task] = None
            task.add_done_callback(partial(self._ended, connection))

    def _ended(self, connection: socketlib.socket, task: asyncio.Task[None]) -> None:
        """The handshake of a connection succeeded, failed, or was cancelled."""
        self._handshakes.pop(task, None)
        if task.cancelled():
            connection.close()

    async def _begin(self, connection: socketlib.socket, where: str, tls: ServerTls) -> None:
        """Begin the protocol of a connection after its handshake, or close the connection."""
        limit_s = limits.TLS_HANDSHAKE_MS_MAX / 1_000
        trouble = ""
        try:
            async with asyncio.timeout(limit_s):
                first = await _first_byte(connection)
            if first == TLS_HANDSHAKE:
                tls.refresh()
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._connect, connection, ssl=tls.context, ssl_handshake_timeout=limit_s
                )
                return
            if first:
                trouble = "it does not use TLS, which this port requires"
                _refuse_clear_text(connection)
        except TimeoutError:
            trouble = f"no TLS handshake within {limits.TLS_HANDSHAKE_MS_MAX} ms"
        except OSError as error:
            trouble = f"the TLS handshake failed: {why(error)}"
        connection.close()
        if trouble:
            self._complaints.warning(
                "connection-closed: closing the connection of %(peer)s: %(reason)s",
                {"peer": where, "reason": trouble},
            )


async def _first_byte(connection: socketlib.socket) -> bytes:
    """Return the first byte, which stays in the socket; b"" at the end. Raises OSError."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(connection, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socketlib.MSG_PEEK)


def _refuse_clear_text(connection: socketlib.socket) -> None:
    with suppress(OSError):  # the peer is gone
        connection.recv(_DISCARDED_BYTES)  # unread bytes would reset the connection at its end
        connection.send(_NO_CLEAR_TEXT)
        connection.shutdown(socketlib.SHUT_WR)
