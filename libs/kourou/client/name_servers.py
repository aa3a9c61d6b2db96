"""Which name server is asked, and what happens when it does not answer.

Lives here: the choice of one name server at random (F026, F027), staying with it, going to the next
when it fails, and refreshing the list from an HTTP server when that way of discovery is on (F033).
May not live here: what is asked.

Name servers do not know of each other, and a client needs only one that answers.

State: soft. Used on the I/O thread only.
"""

from __future__ import annotations

import asyncio
import logging
import random
import urllib.request
from collections.abc import Callable, Collection
from http.client import HTTPException

from kourou.client.background import background
from kourou.client.connections import Connections, asked
from kourou.client.discovery import NameServers, parse_addresses
from kourou.errors import KourouError, Unavailable, UnknownOutcome
from kourou.model.limits import NAME_SERVER_LIST_BYTES_MAX
from kourou.protocol.request import Request
from kourou.transport.zmq_client import Reply

LIST_TIMEOUT_S = 3.0
_log = logging.getLogger("kourou.client")


class NameServerChoice:
    """Asks one name server, the same while it answers."""

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
        self._list_url = found.list_url
        self._list_interval_ms = list_interval_ms
        self._fetch = fetch or fetch_list
        self._chance = chance
        self._addresses: list[str] = list(found.addresses)
        chance.shuffle(self._addresses)
        self._refreshing: asyncio.Task[None] | None = None
        self._list_failing = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """The known name servers; the first one is asked first."""
        return tuple(self._addresses)

    async def start(self) -> None:
        """Get the list, if that is how name servers are found, and keep it fresh."""
        if self._list_url:
            await self._refresh()
            self._refreshing = background(self._keep_fresh(), "refreshing the list of name servers")

    async def ask(self, request: Request, *, also: Collection[int] = ()) -> Reply:
        """The first answer of any name server; raises the last failure when none answers."""
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
                _log.warning("name server %s does not answer: %s", address, error)
                self._ask_last(address)
        raise failure or Unavailable("no name server is known", hint=self._list_url)

    async def tell_all(self, request: Request) -> None:
        """The same change at every name server, for they do not tell each other.

        Raises the last failure after all were tried.
        """
        failure: KourouError | None = None
        for address in list(self._addresses):
            try:
                wire = self._connections.to_name_server(address)
                await asked(wire, request, timeout_ms=self._timeout_ms)
            except KourouError as error:
                failure = error
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Refresh no more."""
        if self._refreshing is not None:
            self._refreshing.cancel()

    def _ask_last(self, address: str) -> None:
        if address in self._addresses:
            self._addresses.remove(address)
            self._addresses.append(address)

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._list_interval_ms / 1000)
            await self._refresh()

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            text = await loop.run_in_executor(None, self._fetch, self._list_url)
            fresh = list(parse_addresses(text.strip()))
        except Exception as error:  # noqa: BLE001 - whatever a list server does, the list is asked for again
            self._list_failed(error)
            return
        if self._list_failing:
            self._list_failing = False
            _log.info("the name server list %s can be read again", self._list_url)
        if set(fresh) != set(self._addresses):
            self._chance.shuffle(fresh)
            self._addresses = fresh

    def _list_failed(self, error: Exception) -> None:
        """Stay with the list as it was; say so once, until it can be read again."""
        if self._list_failing:
            _log.debug("the name server list %s still cannot be read: %r", self._list_url, error)
            return
        self._list_failing = True
        _log.warning(
            "the name server list %s cannot be read, staying with %s: %r",
            self._list_url,
            ";".join(self._addresses) or "none",
            error,
        )


def fetch_list(url: str) -> str:
    """The list at `url`; Unavailable when it cannot be had whole. Blocks: run it in a thread."""
    try:
        with urllib.request.urlopen(url, timeout=LIST_TIMEOUT_S) as answer:
            body: bytes = answer.read(NAME_SERVER_LIST_BYTES_MAX + 1)
            missing: int | None = answer.length  # of Content-Length; None when it was not given
            text = body.decode()
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(f"{url} gave no list: {error!r}") from error
    if len(body) > NAME_SERVER_LIST_BYTES_MAX:
        raise Unavailable(f"{url} gave more than {NAME_SERVER_LIST_BYTES_MAX} bytes")
    if missing:
        raise Unavailable(f"{url} gave {len(body)} bytes and kept {missing} back")
    return text
