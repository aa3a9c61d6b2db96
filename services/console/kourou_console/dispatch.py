"""Handles a request for the API: from HTTP to an operation's handler, and back.

    route, rights, limit of requests in progress, a span,
    parameters, body, handler, response

State: soft, the requests in progress (kourou_console.figures).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from http import HTTPStatus
from typing import Any

from aiohttp import web

from kourou.errors import KourouError
from kourou.model.limits import GATEWAY_REQUESTS_MAX, GATEWAY_STREAMS_MAX
from kourou_console.access import require
from kourou_console.answers import answered, written
from kourou_console.bodies import SMALL_BYTES, Bodies
from kourou_console.call import Call, Caller
from kourou_console.connections import Connection, has_started
from kourou_console.figures import Figures
from kourou_console.gateway import Gateway
from kourou_console.operation import BodyKind, Operation
from kourou_console.problems import Busy, Refused, status_of
from kourou_console.reading import Reader, decoded, query_pairs
from kourou_console.routing import Routes, segments
from kourou_console.spans import GatewaySpans

GONE = 499
"""The status in metrics of a request whose caller disconnected."""

JSON_TYPES = ("application/json", "text/json")
_log = logging.getLogger("kourou.console")


class Dispatch:
    """All operations by their routes."""

    def __init__(
        self,
        operations: Iterable[Operation],
        gateway: Gateway,
        figures: Figures,
        spans: GatewaySpans | None = None,
    ) -> None:
        every = list(operations)
        self._gateway = gateway
        self._routes = Routes(every)
        self._readers = {one.name: Reader(one) for one in every}
        assert len(self._readers) == len(every), "two operations have the same name"
        self._figures = figures
        self._spans = spans
        self._bodies = Bodies()
        figures.body_bytes = lambda: self._bodies.held_bytes
        self.leaving = False

    async def answer(self, request: web.BaseRequest, caller: Caller) -> web.StreamResponse:
        """The response to a request below /v1.

        Raises only if the task is cancelled, or if an error occurs after the response was started;
        then aiohttp closes the connection, so that the caller notices the incomplete response.
        """
        began_ns = time.perf_counter_ns()
        name = "unknown"
        status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        try:
            operation, values = self._found(request)
            name = operation.name
            answer = await self._placed(operation, values, request, caller)
            status = answer.status
            return answer
        except asyncio.CancelledError:
            status = GONE
            connection = request.protocol
            if has_started(request) or not (
                isinstance(connection, Connection) and connection.is_left
            ):
                raise
            return written(
                Busy("the gateway is shutting down", hint=("use another gateway, or retry later"))
            )
        except KourouError as error:
            status = int(status_of(error))
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.info("%s %s: %d, %s", request.method, request.path, status, error)
            return _instead(request, error)
        except ConnectionError:
            status = GONE
            return _instead(request, Busy("the client has disconnected"))
        except Exception as error:  # noqa: BLE001 - a bug in one operation must not end the service
            _log.exception("%s %s failed", request.method, request.path)
            return _instead(request, error)
        finally:
            self._figures.answered(name, status, time.perf_counter_ns() - began_ns)

    # -- before the handler -----------------------------------------------------------------------

    def _found(self, request: web.BaseRequest) -> tuple[Operation, tuple[str, ...]]:
        parts = [decoded(part) for part in segments(request.rel_url.raw_path)]
        found = self._routes.find(parts)
        if found is None:
            raise Refused(
                HTTPStatus.NOT_FOUND,
                f"no such path: {request.rel_url.raw_path[:200]}",
                hint="see /docs for all requests",
            )
        method = "GET" if request.method == "HEAD" else request.method
        operation = found.methods.get(method)
        if operation is None or (operation.stream and request.method == "HEAD"):
            raise Refused(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{request.method[:20]} is not supported here",
                hint=f"possible: {found.allow}",
                allow=found.allow,
            )
        return operation, found.values

    async def _placed(
        self,
        operation: Operation,
        values: Sequence[str],
        request: web.BaseRequest,
        caller: Caller,
    ) -> web.StreamResponse:
        require(caller, operation.right)
        waits = operation.stream or operation.leaves_with_caller
        self._enter(waits=waits)
        try:
            reader = self._readers[operation.name]
            query = query_pairs(request.rel_url.raw_query_string)
            arguments = [self._gateway, reader.parameters(values, query)]
            if operation.body_kind is BodyKind.NONE:
                return await self._handled(operation, arguments, request, caller)
            if operation.body_kind is BodyKind.JSON:
                _require_json(request)
            with self._bodies.of(request, operation.body_bytes_max) as body:
                content = await body.read()
                if operation.body_kind is not BodyKind.JSON:
                    arguments.append(content)
                elif len(content) <= SMALL_BYTES:
                    arguments.append(reader.body(content))
                else:
                    async with self._bodies.turn():
                        arguments.append(reader.body(content))
                return await self._handled(operation, arguments, request, caller)
        finally:
            self._leave(waits=waits)

    def _enter(self, *, waits: bool) -> None:
        """Count a request in progress, or reject it. Raises Busy."""
        figures = self._figures
        if self.leaving:
            raise Busy("the gateway is shutting down", hint="use another gateway, or retry later")
        if waits:
            if figures.streams >= GATEWAY_STREAMS_MAX:
                figures.refused["busy"] += 1
                raise Busy(
                    f"{GATEWAY_STREAMS_MAX} waiting requests and streams are open already, "
                    "the maximum"
                )
            figures.streams += 1
        else:
            if figures.under_way >= GATEWAY_REQUESTS_MAX:
                figures.refused["busy"] += 1
                raise Busy(f"{GATEWAY_REQUESTS_MAX} requests are in progress already, the maximum")
            figures.under_way += 1

    def _leave(self, *, waits: bool) -> None:
        if waits:
            self._figures.streams -= 1
        else:
            self._figures.under_way -= 1

    # -- the handler ------------------------------------------------------------------------------

    async def _handled(
        self,
        operation: Operation,
        arguments: list[Any],
        request: web.BaseRequest,
        caller: Caller,
    ) -> web.StreamResponse:
        if operation.call:
            arguments.append(Call(caller, tuple(request.headers.items())))
        if operation.stream:
            arguments.append(request)
        span = None if self._spans is None else self._spans.begin(operation, request)
        error: BaseException | None = None
        try:
            with nullcontext() if self._spans is None else self._spans.around(span, request):
                work = operation.handle(*arguments)
                connection = request.protocol
                waits = operation.stream or operation.leaves_with_caller
                if waits and isinstance(connection, Connection):
                    value = await connection.while_connected(work)
                else:
                    value = await work
            if isinstance(value, web.StreamResponse):
                return value
            return answered(value, operation.status)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if span is not None and self._spans is not None:
                self._spans.end(span, error)


def _instead(request: web.BaseRequest, error: Exception) -> web.Response:
    """The error response. Raises ConnectionError if another response has been started."""
    if has_started(request):
        raise ConnectionError("the response has been started already") from error
    return written(error)


def _require_json(request: web.BaseRequest) -> None:
    """Require the JSON media type: a form on a page of another site cannot set it."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in JSON_TYPES and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the body's type is {kind[:60]!r}" if kind else "the body has no type",
            hint="send the header Content-Type: application/json",
        )
