"""Selection of a name server, and failover when it does not reply.

Name servers do not know each other, and a client needs only one that replies. Their addresses may
come from an HTTP server (`NameServerList`); the last valid list is kept.

State: soft. Used on the I/O thread only.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kourou.client.session.connections import Connections, asked
from kourou.client.session.discovery import NameServers, NameServersDown, parse_addresses
from kourou.client.session.io_thread import background
from kourou.clock import Clock, SystemClock
from kourou.errors import KourouError, Unavailable, UnknownOutcome
from kourou.model.limits import NAME_SERVER_LIST_BYTES_MAX
from kourou.protocol.request import Request
from kourou.transport.zmq_client import WireReply

if TYPE_CHECKING:
    from http.client import HTTPResponse

_log = logging.getLogger("kourou.client")

LIST_TIMEOUT_S = 3.0
"""The timeout of the connection, of the headers, and of each later read."""

LIST_WHOLE_MS = 10_000
"""The limit for the whole response, so that a slow body does not block a thread for long."""


class NameServerChoice:
    """Sends requests to one name server, the same one as long as it replies."""

    def __init__(
        self,
        found: NameServers,
        connections: Connections,
        *,
        timeout_ms: int,
        list_interval_ms: int,
        chance: random.Random,
        fetch: Callable[[str], str] | None = None,
    ) -> None:
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._list: NameServerList | None = None
        if found.list_url:
            self._list = NameServerList(found.list_url, _log, fetch=fetch)
        self._list_interval_ms = list_interval_ms
        self._chance = chance
        self._addresses: list[str] = list(found.addresses)
        chance.shuffle(self._addresses)
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The known name servers; the first one is used first."""
        return tuple(self._addresses)

    async def start(self) -> None:
        """Fetch the list, if name servers are found by a list, and refresh it periodically."""
        if self._list is not None:
            await self._refresh(self._list)
            self._refreshing = background(
                self._keep_fresh(self._list), "refreshing the list of name servers"
            )

    async def ask(self, request: Request, *, also: Collection[int] = ()) -> WireReply:
        """Return the first reply of any name server; raises the last failure if none replies."""
        failure: Unavailable | UnknownOutcome | None = None
        for address in list(self._addresses):
            try:
                return await asked(
                    self._connections.to_name_server(address),
                    request,
                    timeout_ms=self._timeout_ms,
                    also=also,
                )
            except (Unavailable, UnknownOutcome) as error:
                failure = error
                _log.warning(
                    "name-server-silent: name server %(address)s does not respond: %(error)s",
                    {"address": address, "error": error},
                )
                self._ask_last(address)
        if type(failure) is Unavailable:  # with the addresses as the user wrote them
            where = ";".join(sorted(self._addresses))
            why = ": ".join(filter(None, (failure.message, failure.hint)))
            raise NameServersDown(f"no name server responds at {where}", hint=why) from failure
        raise failure or Unavailable(
            "no name server address is known", hint=self._list.url if self._list else ""
        )

    async def send_to_all(self, request: Request, body: bytes = b"") -> None:
        """Send the same change to every name server, because they do not replicate.

        Raises the last failure after all were tried.
        """
        failure: KourouError | None = None
        for address in list(self._addresses):
            try:
                wire = self._connections.to_name_server(address)
                await asked(wire, request, body=body, timeout_ms=self._timeout_ms)
            except KourouError as error:
                failure = error
        if failure is not None:
            raise failure

    async def ask_each(self, request: Request) -> dict[str, WireReply]:
        """Return the replies of all name servers that reply, by address.

        If none replies, raises the last error.
        """
        answers: dict[str, WireReply] = {}
        failure: KourouError | None = None
        for address in list(self._addresses):
            try:
                wire = self._connections.to_name_server(address)
                answers[address] = await asked(wire, request, timeout_ms=self._timeout_ms)
            except KourouError as error:
                failure = error
        if not answers and failure is not None:
            raise failure
        return answers

    async def outcomes(self, request: Request) -> dict[str, WireReply | KourouError]:
        """Return each name server's reply or error, by address; all requests run at once."""

        async def outcome(address: str) -> WireReply | KourouError:
            try:
                wire = self._connections.to_name_server(address)
                return await asked(wire, request, timeout_ms=self._timeout_ms)
            except KourouError as error:
                return error

        addresses = sorted(self._addresses)
        found = await asyncio.gather(*map(outcome, addresses))
        return dict(zip(addresses, found, strict=True))

    def close(self) -> None:
        """Stop refreshing the list."""
        if self._refreshing is not None:
            self._refreshing.cancel()

    def _ask_last(self, address: str) -> None:
        if address in self._addresses:
            self._addresses.remove(address)
            self._addresses.append(address)

    async def _keep_fresh(self, listed: NameServerList) -> None:
        while True:
            await asyncio.sleep(self._list_interval_ms / 1000)
            await self._refresh(listed)

    async def _refresh(self, listed: NameServerList) -> None:
        if await listed.refresh() and set(listed.addresses) != set(self._addresses):
            fresh = list(listed.addresses)
            self._chance.shuffle(fresh)
            self._addresses = fresh


class NameServerList:
    """The list at `url`. `fetch` returns its text and may block: it is called in a thread."""

    def __init__(
        self, url: str, log: logging.Logger, *, fetch: Callable[[str], str] | None = None
    ) -> None:
        self.url = url
        self.addresses: tuple[str, ...] = ()
        self._log = log
        self._fetch = fetch or fetch_list
        self._failing = False

    async def refresh(self) -> bool:
        """Read the list; returns False if that fails, and then `addresses` stays the same."""
        loop = asyncio.get_running_loop()
        try:
            text = await loop.run_in_executor(None, self._fetch, self.url)
            fresh = parse_addresses(text.strip())
        except Exception as error:  # noqa: BLE001 - whatever a list server does, the list is requested again
            self._failed(error)
            return False
        if self._failing:
            self._failing = False
            self._log.info(
                "name-server-list-recovered: name server list %(url)s is readable again",
                {"url": self.url},
            )
        self.addresses = fresh
        return True

    def _failed(self, error: Exception) -> None:
        """Keep the previous list; log the failure once, until the list can be read again."""
        if self._failing:
            self._log.debug(
                "name-server-list-missing: name server list %(url)s is still unreadable: %(error)r",
                {"url": self.url, "error": error},
            )
            return
        self._failing = True
        self._log.warning(
            "name-server-list-failed: name server list %(url)s is unreadable; keeping %(kept)s: "
            "%(error)r",
            {"url": self.url, "kept": ";".join(self.addresses) or "none", "error": error},
        )


def fetch_list(url: str, clock: Clock | None = None) -> str:
    """Return the list at `url`. Raises Unavailable if it cannot be read completely.

    Blocks: run it in a thread.
    """
    # Imported here: most processes read no list, and these two take a while.
    import urllib.request
    from http.client import HTTPException

    try:
        with urllib.request.urlopen(url, timeout=LIST_TIMEOUT_S) as answer:
            body = _read(url, answer, clock or SystemClock())
            missing: int | None = answer.length  # of Content-Length; None without that header
            text = body.decode()
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(f"{url} did not return a list: {error!r}") from error
    if missing:
        raise Unavailable(f"{url} returned {len(body)} bytes; {missing} bytes are missing")
    return text


def _read(url: str, answer: HTTPResponse, clock: Clock) -> bytes:
    """Return the body, within its limits of size and time."""
    body = b""
    until_ms = clock.monotonic_ms() + LIST_WHOLE_MS
    while piece := answer.read1(NAME_SERVER_LIST_BYTES_MAX + 1 - len(body)):
        body += piece
        if len(body) > NAME_SERVER_LIST_BYTES_MAX:
            raise Unavailable(f"{url} returned more than {NAME_SERVER_LIST_BYTES_MAX} bytes")
        if clock.monotonic_ms() > until_ms:
            raise Unavailable(
                f"{url} returned {len(body)} bytes and did not finish within {LIST_WHOLE_MS} ms"
            )
    return body
