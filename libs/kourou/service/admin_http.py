"""The admin HTTP pages of a service: health, readiness, metrics, configuration.

A service may add its own read-only JSON pages (`Questions`).

All pages are GET and read-only; if TLS is enforced, they are served over TLS only. On a loopback
address the header Host must be an address or localhost: any other name is one that a web page made
point here (DNS rebinding). A connection serves one request: its header must be complete within 3 s,
its response must be received within 10 s, and at most 64 connections are open at once: beyond, the
oldest one whose header is not complete makes room, so that silent ones keep no probe out. A
request's body is not read. aiohttp would cost every service 20 MB of memory and a quarter of its
startup time. /config shows no secrets: settings contain the names of the files that hold them.

State: soft.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from kourou.errors import BadRequest, ConfigError, KourouError
from kourou.model.limits import (
    ADMIN_ANSWER_S_MAX,
    ADMIN_CONNECTIONS_MAX,
    ADMIN_HEAD_BYTES_MAX,
    ADMIN_HEADER_S_MAX,
)
from kourou.service.http_listener import HttpListener
from kourou.transport.addresses import bindable, is_loopback
from kourou.transport.tls import ServerTls

_log = logging.getLogger("kourou.service")

Questions = Callable[[str, Mapping[str, str]], Awaitable[Any]]
"""Path and query (the last value of each name) -> JSON data, or None if there is no such page.

It may wait. BadRequest becomes 400, any other KourouError 503.
"""

_THERE_ARE = b"there are /healthz, /readyz, /metrics, /config and /statistics\n"


@dataclass(frozen=True, slots=True)
class AdminPages:
    """The sources of the pages. Each is called again for every request and must not block.

    `healthy` and `ready` return "" for yes, otherwise the reason. `exporter` returns the metrics
    under the names of RocketMQ 4's exporter, for `/metrics?names=exporter`; it may wait.
    """

    healthy: Callable[[], str]
    ready: Callable[[], str]
    metrics: Callable[[], bytes]
    config: Callable[[], str]
    statistics: Callable[[], Mapping[str, Any]]
    questions: Questions | None = None
    exporter: Callable[[], Awaitable[bytes]] | None = None


class AdminHttp:
    """The HTTP server of the pages; with `port` 0 it uses a free port, with `tls` HTTPS only."""

    def __init__(
        self, host: str, port: int, pages: AdminPages, tls: ServerTls | None = None
    ) -> None:
        self._pages = pages
        self._http = GuardedServer(self._answer)
        self._listener = HttpListener(self._http, host, port, tls)
        #: Only clients with a certificate can read the pages.
        self._requires_certificate = tls is not None and tls.requires_certificates
        self._warning = ClearTextWarning()

    async def start(self) -> None:
        """Bind and start to serve. Raises ConfigError if the port is in use."""
        listener = self._listener
        try:
            await listener.start()
        except OSError as error:
            raise ConfigError(
                f"admin port {listener.port} on {listener.host} cannot be used: {error.strerror}",
                hint="choose another adminPort, or 0 for any",
            ) from error
        if not self._requires_certificate:
            self._warning.start(listener.host, self.address)

    async def stop(self) -> None:
        """Close the listener and its connections."""
        self._warning.stop()
        await self._listener.close()
        self._http.close()
        await self._listener.wait_closed()

    @property
    def port(self) -> int:
        """The bound port."""
        return self._listener.port

    @property
    def address(self) -> str:
        """The bound address, as `host:port`."""
        return self._listener.address

    @property
    def url(self) -> str:
        """The bound address as a URL without a path."""
        return self._listener.url

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET\n")
        if request.path == "/metrics" and "names" in request.query:
            return await self._under_names(request.query["names"])
        answer = self._page(request.path)
        if answer.status is HTTPStatus.NOT_FOUND and self._pages.questions is not None:
            return await self._asked(self._pages.questions, request)
        return answer

    def _page(self, path: str) -> HttpResponse:
        pages = self._pages
        match path:
            case "/healthz":
                return _state(pages.healthy())
            case "/readyz":
                return _state(pages.ready())
            case "/metrics":
                return HttpResponse(HTTPStatus.OK, "text/plain", pages.metrics())
            case "/config":
                return HttpResponse(HTTPStatus.OK, "text/plain", pages.config().encode())
            case "/statistics":
                content = msgspec.json.encode(pages.statistics(), enc_hook=str)
                return HttpResponse(HTTPStatus.OK, "application/json", content)
            case "/":
                return HttpResponse(HTTPStatus.OK, "text/plain", _THERE_ARE)
            case _:
                return HttpResponse(
                    HTTPStatus.NOT_FOUND, "text/plain", b"no such page; " + _THERE_ARE
                )

    async def _under_names(self, names: str) -> HttpResponse:
        exporter = self._pages.exporter
        if names != "exporter" or exporter is None:
            known = "names=exporter" if exporter is not None else "the page without `names`"
            return HttpResponse(
                HTTPStatus.BAD_REQUEST, "text/plain", f"there is only {known}\n".encode()
            )
        return HttpResponse(HTTPStatus.OK, "text/plain", await exporter())

    async def _asked(self, questions: Questions, request: HttpRequest) -> HttpResponse:
        try:
            found = await questions(request.path, request.query)
        except BadRequest as wrong:
            status, found = HTTPStatus.BAD_REQUEST, {"error": str(wrong)}
        except KourouError as trouble:
            status, found = HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(trouble)}
        else:
            if found is None:
                return HttpResponse(HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n")
            status = HTTPStatus.OK
        return HttpResponse(status, "application/json", msgspec.json.encode(found, enc_hook=str))


def _state(trouble: str) -> HttpResponse:
    if not trouble:
        return HttpResponse(HTTPStatus.OK, "text/plain", b"ok\n")
    return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", trouble.encode() + b"\n")


# -- connections -----------------------------------------------------------------------------------


_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; if a query name is repeated, the last value counts."""

    method: str
    path: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HttpResponse:
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


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class GuardedServer:
    """A protocol factory for `create_server`; `connections` are the open ones."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.connections: dict[_Connection, None] = {}

    def __call__(self) -> asyncio.Protocol:
        """Create the protocol of a new connection."""
        return _Connection(self)

    def admits(self, new: _Connection) -> bool:
        """Return whether a connection may begin: the oldest without a request makes room."""
        if len(self.connections) >= ADMIN_CONNECTIONS_MAX:
            silent = next((one for one in self.connections if one.is_silent), None)
            if silent is None:
                return False
            del self.connections[silent]
            silent.cut_off()
        self.connections[new] = None
        return True

    def close(self) -> None:
        """Abort every connection."""
        for connection in list(self.connections):
            connection.cut_off()


class _Connection(asyncio.Protocol):
    def __init__(self, server: GuardedServer) -> None:
        self._server = server
        self._head = bytearray()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_silent(self) -> bool:
        """Whether no request has arrived."""
        return self._task is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._guard = asyncio.get_running_loop().call_later(ADMIN_HEADER_S_MAX, self.cut_off)
        if not self._server.admits(self):
            self.cut_off()

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.cancel()
        self._server.connections.pop(self, None)
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
        """Return True while a response is pending: a half-closed client still gets it.

        TLS has no half-closed connections here: the transport closes it in any case.
        """
        over_tls = self._transport.get_extra_info("sslcontext") is not None
        return self._task is not None and not over_tls

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
        own_address = self._transport.get_extra_info("sockname")[0]
        if is_loopback(own_address) and not names_no_site(head):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return
        try:
            answer = await self._server.handler(request)
        except Exception:  # noqa: BLE001 - a page that fails must not end the service
            _log.exception("admin-page-failed: the page %(path)s failed", {"path": request.path})
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self._transport.write(answer.encode(head_only=request.method == "HEAD"))
        self._transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        answer = HttpResponse(status, "text/plain", f"{status.phrase}\n".encode())
        self._transport.write(answer.encode(head_only=False))
        self._transport.close()


def read_request(head: bytes) -> HttpRequest | None:
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
    return HttpRequest(words[0], unquote(target.path), query)


def names_no_site(head: bytes) -> bool:
    """Whether the header Host is an address or localhost, or absent, as programs may leave it."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() != b"host":
            continue
        try:
            host = urlsplit(f"//{value.strip().decode('latin-1')}").hostname or ""
            if host != "localhost":
                ipaddress.ip_address(host)
        except ValueError:
            return False
    return True


# -- clear text ------------------------------------------------------------------------------------


WARNING_PERIOD_S = 60.0


class ClearTextWarning:
    """Warns at once and every minute, unless the listener is on a loopback address."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def start(self, host: str, address: str) -> None:
        """Start; `host` is the bound host, `address` is the text for the log."""
        if not is_loopback(bindable(host)):
            self._warn(address)

    def stop(self) -> None:
        """Stop, because the listener is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _warn(self, address: str) -> None:
        _log.warning(
            "admin-pages-open: the pages on %(address)s are open to the network: any host can read "
            "them",
            {"address": address},
        )
        self._timer = asyncio.get_running_loop().call_later(WARNING_PERIOD_S, self._warn, address)
