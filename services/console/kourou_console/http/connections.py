"""Limits for connections to the gateway: time, memory and number.

    no complete header    closed after 5 s, or earlier if connections are scarce: then the oldest
                          one without a request is closed for a new one
    between two requests  closed after 75 s, or earlier if connections are scarce
    slow reader           closed if it reads nothing of a response for 10 s, or not all of a
                          non-streaming response within 60 s
    invalid HTTP          refused with problem details that name the header and a remedy

State: soft.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from aiohttp import web, web_protocol

from kourou.model.limits import (
    GATEWAY_ANSWER_S_MAX,
    GATEWAY_CONNECTIONS_MAX,
    GATEWAY_HEADER_S_MAX,
    GATEWAY_HEADERS_MAX,
    GATEWAY_IDLE_S_MAX,
    GATEWAY_LINE_BYTES_MAX,
    GATEWAY_STALL_S_MAX,
)
from kourou_console.http.responses import Busy, HttpError, error_response

LINGER_S = 1.0
"""How long a rejected body is still read and discarded, so that its sender gets the response."""

READ_BUFFER_BYTES = 1 << 16

HSTS = "max-age=2592000"
"""Over TLS: for 30 days browsers do not use clear text, for any port of this host name."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_log = logging.getLogger("kourou.console.http")


class HttpConnection(web_protocol.RequestHandler):
    """One connection, with one request at a time."""

    __slots__ = ("_deadline", "_gateway_server", "_leaving", "_stalled", "_waiting")

    def __init__(self, manager: GatewayServer, **options: Any) -> None:
        super().__init__(manager, **options)
        self._gateway_server = manager
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._leaving = False

    # -- lifecycle --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or close it if there are too many."""
        super().connection_made(transport)
        if not self._gateway_server.admit(self):
            self.cut_off()
            return
        self._within(GATEWAY_HEADER_S_MAX)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Clean up: the connection was closed, by the caller or by the gateway."""
        self._within(None)
        self._unstall()
        self._gateway_server.gone(self)
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def request_started(self) -> None:
        """A request's header has arrived."""
        self._gateway_server.busy(self)
        self._within(None)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write the response within its time limit; then wait for the next request."""
        if not resp.prepared:
            self._within(GATEWAY_ANSWER_S_MAX)
        if self._gateway_server.leaving:
            resp.force_close()
        result = await super().finish_response(request, resp, start_time)
        self._within(None)
        self._gateway_server.quiet(self)
        return result

    def cut_off(self) -> None:
        """Close the connection immediately, without a response."""
        transport = self.transport
        if transport is not None:  # uvloop's transports have the same methods
            self._gateway_server.cut_off_count += 1
            transport.abort()

    def _within(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self.cut_off)

    # -- slow readers -----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The write buffer is full: start the time limit of a slow reader."""
        super().pause_writing()
        self._stalled = asyncio.get_running_loop().call_later(GATEWAY_STALL_S_MAX, self.cut_off)

    def resume_writing(self) -> None:
        """The reader has caught up."""
        self._unstall()
        super().resume_writing()

    def _unstall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # -- cancellation when the caller disconnects -------------------------------------------------

    async def while_connected(self, work: Awaitable[Any]) -> Any:
        """Await `work`; it is cancelled when the caller disconnects, or when the service ends."""
        self._waiting = asyncio.current_task()
        try:
            if self.transport is None:
                raise asyncio.CancelledError
            return await work
        finally:
            self._waiting = None

    def leave(self) -> None:
        """The service ends: cancel work that only waits."""
        self._leaving = True
        if self._waiting is not None:
            self._waiting.cancel()

    @property
    def is_left(self) -> bool:
        """Whether the caller has disconnected or the service ends, so a cancellation is no bug."""
        return self.transport is None or self._leaving

    @contextmanager
    def busy_at_shutdown(self) -> Iterator[None]:
        """Convert a cancellation by the service's end to Busy, if the caller is connected."""
        try:
            yield
        except asyncio.CancelledError:
            if self.transport is None or not self._leaving:
                raise
            raise Busy(
                "the gateway is shutting down", hint=("use another gateway, or retry later")
            ) from None

    # -- invalid HTTP -----------------------------------------------------------------------------

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The response to a request that the parser rejects; any other error here is a bug."""
        if status < 500:
            _log.debug(
                "http-request-invalid: invalid HTTP request from %(source)s: %(reason)s",
                {"source": request.remote, "reason": message},
            )
            text, hint = header_error(message or "this is not an HTTP request")
            answer = error_response(HttpError(HTTPStatus(status), text, hint=hint))
        elif has_started(request):
            raise ConnectionError("the response has been started already") from exc
        else:
            _log.error(
                "http-answer-failed: answering %(path)s failed",
                {"path": request.path},
                exc_info=exc,
            )
            answer = error_response(exc or RuntimeError("no answer"))
        answer.force_close()
        return answer


def has_started(request: web.BaseRequest) -> bool:
    """Whether a part of the response has been sent, so that no other response is possible."""
    return request.writer.output_size > 0


class GatewayServer(web.Server):
    """All connections."""

    def __init__(self, handler: Handler, **options: Any) -> None:
        super().__init__(handler, **options)
        #: Idle connections, the longest idle first.
        self._quiet: dict[HttpConnection, None] = {}
        self._there: set[HttpConnection] = set()
        self.cut_off_count = 0
        self.leaving = False

    def __call__(self) -> web_protocol.RequestHandler:
        """Create the handler of a new connection."""
        return HttpConnection(self, loop=asyncio.get_running_loop(), **self._kwargs)

    @property
    def open_count(self) -> int:
        """The number of open connections."""
        return len(self._there)

    def admit(self, one: HttpConnection) -> bool:
        """Admit a connection, closing the longest idle one if necessary; False if none is idle."""
        if self.leaving:
            return False
        if len(self._there) >= GATEWAY_CONNECTIONS_MAX:
            oldest = next(iter(self._quiet), None)
            if oldest is None:
                return False
            self.gone(oldest)
            oldest.cut_off()
        self._there.add(one)
        self._quiet[one] = None
        return True

    def busy(self, one: HttpConnection) -> None:
        """A request is in progress."""
        self._quiet.pop(one, None)

    def quiet(self, one: HttpConnection) -> None:
        """The connection is idle again."""
        if one in self._there:
            self._quiet[one] = None

    def gone(self, one: HttpConnection) -> None:
        """The connection is closed."""
        self._quiet.pop(one, None)
        self._there.discard(one)

    def leave(self) -> None:
        """The service ends: accept no connections, cancel waiting requests, let others finish."""
        self.leaving = True
        for one in list(self._quiet):
            one.close()
        for one in list(self._there):
            one.leave()


def gateway_server(handler: Handler) -> GatewayServer:
    """An aiohttp server with limits for its connections."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        connection.request_started()
        answer = await handler(request)
        if request.secure and not answer.prepared:
            answer.headers["Strict-Transport-Security"] = HSTS
        return answer

    return GatewayServer(
        handle,
        access_log=None,
        keepalive_timeout=GATEWAY_IDLE_S_MAX,
        max_line_size=GATEWAY_LINE_BYTES_MAX,
        max_field_size=GATEWAY_LINE_BYTES_MAX,
        max_headers=GATEWAY_HEADERS_MAX,
        lingering_time=LINGER_S,
        read_bufsize=READ_BUFFER_BYTES,
        # Bodies are decompressed by kourou_console.http.request_input, which has a limit.
        auto_decompress=False,
    )


SHOWN_LENGTH = 200
_BYTES_LITERAL = re.compile(r"""\bb(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_HEADER_NAME = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):")


def header_error(message: str) -> tuple[str, str]:
    """The error and the remedy ("" if unknown), from the parser's message.

    The parser shows the line as a Python bytes literal. A header can contain no control character
    except for the tab; a property with one must be sent in another way.
    """
    line = _BYTES_LITERAL.search(message)
    if line is not None:
        raw: bytes = ast.literal_eval(line[0])
        wrong, name = _CONTROL_CHARACTER.search(raw), _HEADER_NAME.match(raw)
        if wrong is not None and name is not None and wrong.start() >= name.end():
            header = name[1].decode()[:64]
            return (
                f"the value of the header {header} contains the control character "
                f"U+{ord(wrong[0]):04X}, which no HTTP header may",
                _header_advice(header, ord(wrong[0])),
            )
    return message.partition("\n")[0].strip()[:SHOWN_LENGTH], ""


def _header_advice(header: str, character: int) -> str:
    if not header.lower().startswith("kourou-"):
        return "leave it out"
    if character in (1, 2):
        return "encode the value, for example as base64: these two separate stored properties"
    return (
        "send an envelope in JSON (Content-Type: application/json), which may hold it; or encode "
        "the value, for example as base64"
    )
