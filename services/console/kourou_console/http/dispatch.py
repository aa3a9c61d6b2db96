"""Handles every request: checks host and caller, then selects an API operation or a page.

    /v1/…                 the API: route, rights, limit of requests in progress, a span,
                          parameters, body, handler, response
    /openapi.json /docs   its description, for programs and for people
    /healthz /readyz      for process supervision; they need no token
    /session              sign-in and sign-out of users
    everything else       the web console's files; they need no token, the API does

State: soft, the requests in progress (kourou_console.http.request_metrics).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from aiohttp import web

from kourou.access.api_token import owner_of
from kourou.access.model import ANONYMOUS, Door
from kourou.authorization.audit import OwnRefusals
from kourou.errors import KourouError, NoPermission
from kourou.model.limits import (
    GATEWAY_REQUESTS_MAX,
    GATEWAY_STREAMS_MAX,
    GATEWAY_USER_STREAMS_MAX,
)
from kourou_console.gateway import Gateway, UserGateways
from kourou_console.http.access import AccessControl, require
from kourou_console.http.call import Caller, RequestContext
from kourou_console.http.connections import HttpConnection, has_started
from kourou_console.http.pages import Page, Pages, require_get
from kourou_console.http.request_input import SMALL_BYTES, Bodies, Reader, decoded, query_pairs
from kourou_console.http.request_metrics import RequestMetrics, RequestSpans
from kourou_console.http.responses import (
    ALWAYS,
    Busy,
    HttpError,
    error_response,
    result_response,
    status_of,
)
from kourou_console.http.sessions import PATH as SESSION_PATH
from kourou_console.http.sign_in import TooManyAttempts, claimed_user
from kourou_console.operation import BodyKind, Operation

GONE = 499
"""The status in metrics of a request whose caller disconnected."""

PAGE = "page"
"""The name in metrics of requests that are not API calls."""

SIGN_IN, ANY_REQUEST = "SignIn", "HttpRequest"
"""What the audit calls a request whose operation is not known when it is refused."""

TOKEN_FILE = "tokenFile/"
"""In the audit, before the name of a token of `tokenFile`: no user's name has a slash."""

LacksRight = Callable[[web.BaseRequest, Caller, str, KourouError], None]
JSON_TYPES = ("application/json", "text/json")
_log = logging.getLogger("kourou.console")


class HttpHandler:
    """The handler of every request. `own` creates generated pages by their paths on demand.

    `ready` returns "" or the reason why the service is not ready.
    """

    def __init__(
        self,
        access: AccessControl,
        dispatch: Dispatch,
        pages: Pages,
        own: Mapping[str, Callable[[], Page]],
        metrics: RequestMetrics,
        ready: Callable[[], str],
        refusals: OwnRefusals,
    ) -> None:
        self._access = access
        self._refusals = refusals
        self._dispatch = dispatch
        dispatch.lacks_right = self._lacks_right
        self._pages = pages
        self._own = own
        self._metrics = metrics
        self._ready = ready

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to any request."""
        path = request.rel_url.raw_path
        began_ns = time.perf_counter_ns()
        try:
            if path == "/v1" or path.startswith("/v1/"):
                caller = await self._access.identify(request)
                return await self._dispatch.answer(request, caller)
            answer = (
                await self._access.session(request)
                if path == SESSION_PATH
                else self._page(request, path)
            )
        except KourouError as error:
            if status_of(error) in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
                self._metrics.refused["access"] += 1
            self._note(request, error)
            answer = error_response(error)
        self._metrics.count(PAGE, answer.status, time.perf_counter_ns() - began_ns)
        return answer

    def _note(self, request: web.BaseRequest, error: KourouError) -> None:
        """Count what the console refused itself, without brokers, for their audit.

        Nothing is proved of who sends it, so a name that it claims is no user in the audit:
        otherwise, invented names would fill the place of all other refusals.
        """
        status, claimed = status_of(error), claimed_user(request.headers)
        if isinstance(error, TooManyAttempts):
            claimed, what = error.who, SIGN_IN
        elif status is HTTPStatus.UNAUTHORIZED and not getattr(error, "noted", False):
            what = SIGN_IN
        elif status is HTTPStatus.FORBIDDEN:
            what = ANY_REQUEST
        else:
            return
        why = error.message if claimed == ANONYMOUS else f"{claimed!r} claimed: {error.message}"
        self._refusals.note(ANONYMOUS, self._access.source(request), what, why, door=Door.HTTP)

    def _lacks_right(
        self, request: web.BaseRequest, caller: Caller, operation: str, error: KourouError
    ) -> None:
        """Count that the right of a token of `tokenFile` did not suffice."""
        source = self._access.source(request)
        user = f"{TOKEN_FILE}{caller.name}"
        self._refusals.note(user, source, operation, error.message, door=Door.HTTP)

    def _page(self, request: web.BaseRequest, path: str) -> web.Response:
        if path in ("/healthz", "/readyz"):
            require_get(request)
            return _health("" if path == "/healthz" else self._ready())
        self._access.check_page(request.method, request.headers)
        own = self._own.get(path)
        if own is not None:
            require_get(request)
            return own().answer(request)
        return self._pages.answer(request)


def _ignored(*_: object) -> None:
    """Nothing else happens."""


def _health(trouble: str) -> web.Response:
    headers = {**ALWAYS, "Content-Type": "text/plain; charset=utf-8"}
    if not trouble:
        return web.Response(body=b"ok\n", headers=headers)
    return web.Response(
        status=HTTPStatus.SERVICE_UNAVAILABLE, body=trouble.encode() + b"\n", headers=headers
    )


class Dispatch:
    """All operations by their routes. Those of users who signed in work with `users`."""

    def __init__(
        self,
        operations: Iterable[Operation],
        gateway: Gateway,
        metrics: RequestMetrics,
        spans: RequestSpans | None = None,
        users: UserGateways | None = None,
    ) -> None:
        every = list(operations)
        self._gateway = gateway
        self._users = users
        self._routes = OperationRoutes(every)
        self._readers = {one.name: Reader(one) for one in every}
        assert len(self._readers) == len(every), "two operations have the same name"
        self._metrics = metrics
        self._spans = spans
        self._bodies = Bodies()
        self._streams: Counter[str] = Counter()
        metrics.body_bytes = lambda: self._bodies.held_bytes
        self.leaving = False
        #: Called for a request that a caller's own right does not suffice for.
        self.lacks_right: LacksRight = _ignored

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
                isinstance(connection, HttpConnection) and connection.is_left
            ):
                raise
            return error_response(
                Busy("the gateway is shutting down", hint=("use another gateway, or retry later"))
            )
        except KourouError as error:
            status = int(status_of(error))
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.info(
                    "http-operation-unavailable: %(method)s %(path)s: %(status)d, %(error)s",
                    {
                        "method": request.method,
                        "path": request.path,
                        "status": status,
                        "error": error,
                    },
                )
            return _instead(request, error)
        except ConnectionError:
            status = GONE
            return _instead(request, Busy("the client has disconnected"))
        except Exception as error:  # noqa: BLE001 - a bug in one operation must not end the service
            _log.exception(
                "http-operation-failed: %(method)s %(path)s failed",
                {"method": request.method, "path": request.path},
            )
            return _instead(request, error)
        finally:
            self._metrics.count(name, status, time.perf_counter_ns() - began_ns)

    # -- before the handler -----------------------------------------------------------------------

    def _found(self, request: web.BaseRequest) -> tuple[Operation, tuple[str, ...]]:
        parts = [decoded(part) for part in segments(request.rel_url.raw_path)]
        found = self._routes.find(parts)
        if found is None:
            raise HttpError(
                HTTPStatus.NOT_FOUND,
                f"no such path: {request.rel_url.raw_path[:200]}",
                hint="see /docs for all requests",
            )
        method = "GET" if request.method == "HEAD" else request.method
        operation = found.methods.get(method)
        if operation is None or (operation.stream and request.method == "HEAD"):
            raise HttpError(
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
        try:
            require(caller, operation.right)
        except NoPermission as error:
            self.lacks_right(request, caller, operation.name, error)
            raise
        waits = operation.stream or operation.leaves_with_caller
        owner = owner_of(caller.user)
        self._enter(owner, waits=waits)
        try:
            if not caller.user:
                return await self._read(operation, self._gateway, values, request, caller)
            assert self._users is not None, "users sign in"
            async with self._users.of(caller.user) as gateway:
                for action, resource in operation.needed:
                    await gateway.need(action, resource)
                return await self._read(operation, gateway, values, request, caller)
        finally:
            self._leave(owner, waits=waits)

    async def _read(
        self,
        operation: Operation,
        gateway: Gateway,
        values: Sequence[str],
        request: web.BaseRequest,
        caller: Caller,
    ) -> web.StreamResponse:
        """Read parameters and body, and respond."""
        reader = self._readers[operation.name]
        query = query_pairs(request.rel_url.raw_query_string)
        arguments = [gateway, reader.parameters(values, query)]
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

    def _enter(self, owner: str, *, waits: bool) -> None:
        """Count a request in progress, or reject it; `owner` is the user, if known. Raises Busy."""
        metrics = self._metrics
        if self.leaving:
            raise Busy("the gateway is shutting down", hint="use another gateway, or retry later")
        if waits:
            if metrics.streams >= GATEWAY_STREAMS_MAX:
                metrics.refused["busy"] += 1
                raise Busy(
                    f"{GATEWAY_STREAMS_MAX} waiting requests and streams are open already, "
                    "the maximum"
                )
            if owner and self._streams[owner] >= GATEWAY_USER_STREAMS_MAX:
                metrics.refused["busy"] += 1
                raise Busy(
                    f"user {owner} has {GATEWAY_USER_STREAMS_MAX} waiting requests and streams "
                    "open already, the maximum"
                )
            metrics.streams += 1
            self._streams[owner] += 1
        else:
            if metrics.under_way >= GATEWAY_REQUESTS_MAX:
                metrics.refused["busy"] += 1
                raise Busy(f"{GATEWAY_REQUESTS_MAX} requests are in progress already, the maximum")
            metrics.under_way += 1

    def _leave(self, owner: str, *, waits: bool) -> None:
        if waits:
            self._metrics.streams -= 1
            self._streams[owner] -= 1
            if not self._streams[owner]:
                del self._streams[owner]
        else:
            self._metrics.under_way -= 1

    # -- the handler ------------------------------------------------------------------------------

    async def _handled(
        self,
        operation: Operation,
        arguments: list[Any],
        request: web.BaseRequest,
        caller: Caller,
    ) -> web.StreamResponse:
        if operation.call:
            arguments.append(RequestContext(caller, tuple(request.headers.items())))
        if operation.stream:
            arguments.append(request)
        span = None if self._spans is None else self._spans.begin(operation, request)
        error: BaseException | None = None
        try:
            with nullcontext() if self._spans is None else self._spans.around(span, request):
                work = operation.handle(*arguments)
                connection = request.protocol
                waits = operation.stream or operation.leaves_with_caller
                if waits and isinstance(connection, HttpConnection):
                    value = await connection.while_connected(work)
                else:
                    value = await work
            if isinstance(value, web.StreamResponse):
                return value
            return result_response(value, operation.status)
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
    return error_response(error)


def _require_json(request: web.BaseRequest) -> None:
    """Require the JSON media type: a form on a page of another site cannot set it."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in JSON_TYPES and not (kind.startswith("application/") and kind.endswith("+json")):
        raise HttpError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the body's type is {kind[:60]!r}" if kind else "the body has no type",
            hint="send the header Content-Type: application/json",
        )


class OperationRoutes:
    """All operations by their routes; two with the same route are a bug.

    A literal segment takes precedence over one in braces, so /v1/messages/recent would be found
    before /v1/messages/{id}.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _RouteNode()
        for one in operations:
            node = self._root
            for segment in segments(one.path):
                if segment.startswith("{"):
                    node.named = node.named or _RouteNode()
                    node = node.named
                else:
                    node = node.literal.setdefault(segment, _RouteNode())
            assert one.method not in node.methods, f"{one.method} {one.path} is there twice"
            node.methods[one.method] = one

    def find(self, parts: Sequence[str]) -> RouteMatch | None:
        """The match for a path's decoded segments; None if there is none."""
        return _match(self._root, parts, ())


@dataclass(slots=True)
class _RouteNode:
    literal: dict[str, _RouteNode] = field(default_factory=dict)
    named: _RouteNode | None = None
    methods: dict[str, Operation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """The operations of a path by method, and the values of its names in order."""

    methods: dict[str, Operation]
    values: tuple[str, ...]

    @property
    def allow(self) -> str:
        """The header Allow."""
        names = set(self.methods)
        return ", ".join(sorted(names | {"HEAD"} if "GET" in names else names))


def segments(path: str) -> list[str]:
    """`/v1/topics` becomes v1 and topics; one trailing slash is ignored."""
    return path.strip("/").split("/") if path.strip("/") else []


def _match(node: _RouteNode, parts: Sequence[str], values: tuple[str, ...]) -> RouteMatch | None:
    if not parts:
        return RouteMatch(node.methods, values) if node.methods else None
    literal = node.literal.get(parts[0])
    if literal is not None and (found := _match(literal, parts[1:], values)) is not None:
        return found
    if node.named is None or not parts[0]:
        return None
    return _match(node.named, parts[1:], (*values, parts[0]))
