"""The console for a cluster of this process, and a small HTTP client for it.

    with Cluster(folder) as cluster, ConsoleHere(cluster) as console:
        answer = console.post("/v1/topics/orders/messages", body=b"hello")
        assert answer.status == 200
        answer.json["message_id"]

It is the real service on its own event loop and thread, with real HTTP on the loopback interface.

State: soft.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import msgspec

from kourou.client.client import Client
from kourou.client.session.io_thread import clock_at
from kourou.client.settings.client_settings import ClientSettings
from kourou.service.lifecycle import new_event_loop
from kourou.testing.cluster import COMMIT_INTERVAL_MS, Cluster
from kourou_console.app import ConsoleService
from kourou_console.config import ConsoleSettings
from kourou_console.gateway import Gateway
from kourou_console.http.dispatch import Dispatch
from kourou_console.operation import Operation

T = TypeVar("T")
WAIT_S = 60.0
"""Longer than any operation takes; ends a test that hangs."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One response. Header names are in lower case; of repeated headers the last value is kept."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    event: str
    data: str
    id: str

    @property
    def json(self) -> Any:
        """The data as JSON."""
        return msgspec.json.decode(self.data)


class HttpClient:
    """Requests to `address` (host:port). `token` is sent with each unless headers contain one.

    With `tls` they are sent over TLS.

    Each request has its own connection, so several threads may use the client.
    """

    def __init__(self, address: str, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._token = token
        self._tls = tls

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        json: object = msgspec.UNSET,
        body: bytes | None = None,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    ) -> HttpAnswer:
        """Send a request and wait for the complete response. Lists in `query` are repeated
        parameters.
        """
        connection, answer = self._asked(method, path, query, json, body, headers)
        try:
            content = answer.read()
        finally:
            connection.close()
        return HttpAnswer(
            answer.status, {key.lower(): value for key, value in answer.getheaders()}, content
        )

    def get(self, path: str, **options: Any) -> HttpAnswer:
        """GET; query parameters as `query={...}`."""
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> HttpAnswer:
        """POST with `json=` or `body=`."""
        return self.request("POST", path, **options)

    def put(self, path: str, **options: Any) -> HttpAnswer:
        """PUT with `json=` or `body=`."""
        return self.request("PUT", path, **options)

    def patch(self, path: str, **options: Any) -> HttpAnswer:
        """PATCH with `json=`."""
        return self.request("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> HttpAnswer:
        """DELETE."""
        return self.request("DELETE", path, **options)

    def dial(self) -> socket.socket:
        """A plain connection, for what no HTTP client says."""
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=WAIT_S)

    def events(self, path: str, **options: Any) -> EventStream:
        """Open a stream of server-sent events; use it by `with`, and iterate."""
        connection, answer = self._asked(
            "GET",
            path,
            options.get("query"),
            msgspec.UNSET,
            None,
            options.get("headers", {}),
        )
        return EventStream(connection, answer)

    def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        json: object,
        body: bytes | None,
        headers: Any,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        sent = list(headers.items() if isinstance(headers, Mapping) else headers)
        named = {name.lower() for name, _ in sent}
        if json is not msgspec.UNSET:
            body = msgspec.json.encode(json)
            if "content-type" not in named:
                sent.append(("Content-Type", "application/json"))
        if self._token and "authorization" not in named:
            sent.append(("Authorization", f"Bearer {self._token}"))
        if query:
            path = f"{path}?{urlencode(query, doseq=True)}"
        host, _, port = self.address.rpartition(":")
        connection = (
            http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
            if self._tls is None
            else http.client.HTTPSConnection(host, int(port), timeout=WAIT_S, context=self._tls)
        )
        try:
            connection.putrequest(method, path, skip_host="host" in named)
            for name, value in sent:
                connection.putheader(name, value.encode())
            if body is not None and "content-length" not in named:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise


class EventStream:
    """A stream of events; `status` is that of the response."""

    def __init__(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._answer = answer
        self.status = answer.status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._answer.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Event]:
        fields: dict[str, list[str]] = {}
        for raw in self._answer:
            line = raw.decode().rstrip("\r\n")
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(":")
                fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            if "data" in fields:
                yield Event(
                    fields.get("event", ["message"])[-1],
                    "\n".join(fields["data"]),
                    fields.get("id", [""])[-1],
                )
            fields = {}


def _clients(cluster: Cluster) -> Callable[..., Client]:
    """Creates clients like the console, which commit as often as the cluster's other clients."""

    def make(*, settings: ClientSettings | None = None, **options: Any) -> Client:
        if settings is not None:
            options["settings"] = replace(
                settings, persist_consumer_offset_interval_ms=COMMIT_INTERVAL_MS
            )
        return cluster.async_client(**options)

    return make


class ConsoleHere(HttpClient):
    """The console of a cluster, or of any `namesrv_addr`; use it by `with`.

    `settings` are attributes of ConsoleSettings that override the defaults here.
    """

    def __init__(
        self,
        cluster: Cluster | None,
        *,
        namesrv_addr: str = "",
        token: str = "",
        tls: ssl.SSLContext | None = None,
        **settings: Any,
    ) -> None:
        super().__init__("", token, tls)
        address = namesrv_addr or (cluster.address if cluster is not None else "")
        chosen: dict[str, Any] = {"name_servers": address, "port": 0, "admin_enabled": False}
        made: dict[str, Any] = {}
        if cluster is not None:
            made = {"clock": clock_at(cluster.address), "make_client": _clients(cluster)}
        self.service = ConsoleService(ConsoleSettings(**(chosen | settings)), **made)
        self.admin_address = ""
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kourou-console", daemon=True
        )
        self.failures: list[BaseException] = []

    @property
    def gateway(self) -> Gateway:
        """The service's gateway; its client is bound to the console's loop: see `run`."""
        return self.service.gateway

    def run(self, work: Coroutine[Any, Any, T], within_s: float = WAIT_S) -> T:
        """Run a coroutine, such as a handler or a client call, on the console's loop and wait for
        it.
        """
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(within_s)

    @contextmanager
    def serving(self, *operations: Operation) -> Iterator[None]:
        """Serve these operations instead of the API."""
        handler = self.service._handler
        assert handler is not None
        former = handler._dispatch
        handler._dispatch = Dispatch(operations, self.gateway, self.service._request_metrics)
        try:
            yield
        finally:
            handler._dispatch = former

    def start(self) -> Self:
        """Start the console; returns when it serves requests."""
        self._thread.start()
        try:
            listening = self.run(self._start())
        except BaseException:
            self.stop()
            raise
        self.address = listening["http"].partition("://")[2]
        self.admin_address = listening.get("admin", "").partition("://")[2]
        return self

    async def _start(self) -> Mapping[str, str]:
        await self.service.recover(self.failures.append)
        return await self.service.serve()

    def stop(self) -> None:
        """Drain and stop the console."""
        if not self._thread.is_alive():
            return
        try:
            self.run(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(WAIT_S)
            self._loop.close()

    async def _stop(self) -> None:
        await self.service.drain()
        await self.service.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
