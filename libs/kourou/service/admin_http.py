"""The admin HTTP pages of a service: health, readiness, metrics, configuration.

A service may add its own read-only JSON pages (`Questions`).

All pages are GET and read-only. A connection serves one request: its header must be complete within
3 s, its response must be received within 10 s, and at most 64 connections are open at once. /config
shows no secrets: settings contain the names of the files that hold them.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from kourou.errors import BadRequest, ConfigError, KourouError
from kourou.service.clear_text import ClearTextWarning
from kourou.service.http_connections import Answer, GuardedServer, Request

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
    """The HTTP listener; with `port` 0 it uses a free port."""

    def __init__(self, host: str, port: int, pages: AdminPages) -> None:
        self.host = host
        self.port = port
        self._pages = pages
        self._http = GuardedServer(self._answer)
        self._server: asyncio.Server | None = None
        self._warning = ClearTextWarning()

    async def start(self) -> None:
        """Bind and start to serve. Raises ConfigError if the port is in use."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._http, self.host, self.port)
        except OSError as error:
            raise ConfigError(
                f"admin port {self.port} on {self.host} cannot be used: {error.strerror}",
                hint="choose another adminPort, or 0 for any",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._warning.start(self.host, self.address)

    async def stop(self) -> None:
        """Close the listener and its connections."""
        self._warning.stop()
        if self._server is not None:
            self._server.close()
            self._http.close()
            await self._server.wait_closed()
            self._server = None

    @property
    def address(self) -> str:
        """The bound address, as `host:port`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    async def _answer(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET\n")
        if request.path == "/metrics" and "names" in request.query:
            return await self._under_names(request.query["names"])
        answer = self._page(request.path)
        if answer.status is HTTPStatus.NOT_FOUND and self._pages.questions is not None:
            return await self._asked(self._pages.questions, request)
        return answer

    def _page(self, path: str) -> Answer:
        pages = self._pages
        match path:
            case "/healthz":
                return _state(pages.healthy())
            case "/readyz":
                return _state(pages.ready())
            case "/metrics":
                return Answer(HTTPStatus.OK, "text/plain", pages.metrics())
            case "/config":
                return Answer(HTTPStatus.OK, "text/plain", pages.config().encode())
            case "/statistics":
                content = msgspec.json.encode(pages.statistics(), enc_hook=str)
                return Answer(HTTPStatus.OK, "application/json", content)
            case "/":
                return Answer(HTTPStatus.OK, "text/plain", _THERE_ARE)
            case _:
                return Answer(HTTPStatus.NOT_FOUND, "text/plain", b"no such page; " + _THERE_ARE)

    async def _under_names(self, names: str) -> Answer:
        exporter = self._pages.exporter
        if names != "exporter" or exporter is None:
            known = "names=exporter" if exporter is not None else "the page without `names`"
            return Answer(HTTPStatus.BAD_REQUEST, "text/plain", f"there is only {known}\n".encode())
        return Answer(HTTPStatus.OK, "text/plain", await exporter())

    async def _asked(self, questions: Questions, request: Request) -> Answer:
        try:
            found = await questions(request.path, request.query)
        except BadRequest as wrong:
            status, found = HTTPStatus.BAD_REQUEST, {"error": str(wrong)}
        except KourouError as trouble:
            status, found = HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(trouble)}
        else:
            if found is None:
                return Answer(HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n")
            status = HTTPStatus.OK
        return Answer(status, "application/json", msgspec.json.encode(found, enc_hook=str))


def _state(trouble: str) -> Answer:
    if not trouble:
        return Answer(HTTPStatus.OK, "text/plain", b"ok\n")
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", trouble.encode() + b"\n")
