"""Polls an HTTP address server for the list of name servers.

    http://rmqAddressServerDomain:8080/rocketmq/rmqAddressServerSubGroup
    http://rmqAddressServerDomain/rocketmq/rmqAddressServerSubGroup         if it names a port

The response is `host:port;host:port`. If the address server is unreachable, the broker still serves
and uses the last list that it received.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from kourou.client.session.discovery import LIST_REFRESH_MS, zmq_endpoint
from kourou.client.session.name_servers import NameServerList

_log = logging.getLogger("kourou.broker")

PORT = 8080
REFRESH_S = LIST_REFRESH_MS / 1_000
RETRY_S = 10.0
"""Retry interval until the first list: without a list, clients cannot find this broker."""


def list_url(domain: str, sub_group: str) -> str:
    """Return the URL of the list on the address server `domain`, which may include a port."""
    port = "" if ":" in domain.rpartition("]")[2] else f":{PORT}"
    return f"http://{domain}{port}/rocketmq/{sub_group}"


class AddressServer:
    """Polls the list at `url`; `follow` is called with each list that could be read.

    The list has `host:port` of the name servers' ZeroMQ listeners. `fetch` and `sleep` can be
    replaced in tests.
    """

    def __init__(
        self,
        url: str,
        follow: Callable[[Sequence[str]], None],
        *,
        fetch: Callable[[str], str] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._list = NameServerList(url, _log, fetch=fetch)
        self._follow = follow
        self._sleep = sleep
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start polling on the running loop."""
        self._task = asyncio.create_task(self._keep_asking())

    async def first(self, timeout_s: float) -> None:
        """Wait until the first poll has ended, or until the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._asked.wait()
        except TimeoutError:
            _log.warning(
                "the address server %s has not returned the name server list yet", self._list.url
            )
        if not self._list.addresses:
            _log.warning(
                "clients cannot find this broker through a name server until the list arrives"
            )

    async def stop(self) -> None:
        """Stop polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _keep_asking(self) -> None:
        while True:
            if await self._list.refresh():
                self._follow(_endpoints(self._list.addresses))
            self._asked.set()
            await self._sleep(REFRESH_S if self._list.addresses else RETRY_S)


def _endpoints(addresses: Sequence[str]) -> list[str]:
    """Return ZeroMQ endpoints without duplicates: a server may be listed with both its ports."""
    return list(dict.fromkeys(zmq_endpoint(one).removeprefix("tcp://") for one in addresses))
