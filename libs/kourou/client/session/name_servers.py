"""Selection of a name server, and failover when it does not reply.

Name servers do not know each other, and a client needs only one that replies.

State: soft. Used on the I/O thread only.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection

from kourou.client.session.background import background
from kourou.client.session.connections import Connections, asked
from kourou.client.session.discovery import NameServers, NameServersDown
from kourou.client.session.name_server_list import NameServerList
from kourou.errors import KourouError, Unavailable, UnknownOutcome
from kourou.protocol.request import Request
from kourou.transport.zmq_client import WireReply

_log = logging.getLogger("kourou.client")


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
                _log.warning("name server %s does not respond: %s", address, error)
                self._ask_last(address)
        if type(failure) is Unavailable:  # with the addresses as the user wrote them
            where = ";".join(sorted(self._addresses))
            why = ": ".join(filter(None, (failure.message, failure.hint)))
            raise NameServersDown(f"no name server responds at {where}", hint=why) from failure
        raise failure or Unavailable(
            "no name server address is known", hint=self._list.url if self._list else ""
        )

    async def tell_all(self, request: Request, body: bytes = b"") -> None:
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
