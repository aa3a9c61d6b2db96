"""What all administration shares: whom to ask, and asking several.

An administrative change goes to the leader of every broker it concerns. If one of them fails, the
error names it, the others keep what was done, and asking again completes it: changes are
idempotent. Where nobody leads a broker just now, or its connection was lost under a change, it is
asked again, whoever leads by then, until ADMIN_TIMEOUT_MS is over.

State: none, but which broker each leader's address was given for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from kourou.client.connections import body_of
from kourou.client.pauses import Pauses, nobody_leads, was_lost
from kourou.client.session import Session
from kourou.errors import BadRequest, KourouError, TopicNotFound, Unavailable
from kourou.model.route import BrokerData
from kourou.protocol.bodies import ClusterInfo, decode_cluster_info
from kourou.protocol.messages.namesrv import GetBrokerClusterInfo
from kourou.protocol.request import Request
from kourou.transport.zmq_client import Reply

ADMIN_TIMEOUT_MS = 10_000


class AdminDesk:
    """One family of administrative questions; its methods run on the I/O thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._io = session.io
        self._names: dict[str, str] = {}

    async def _ask(
        self, address: str, request: Request, *, body: bytes = b"", also: Collection[int] = ()
    ) -> Reply:
        return await self._session.connections.ask(
            address, request, body=body, timeout_ms=ADMIN_TIMEOUT_MS, also=also
        )

    async def _cluster(self) -> ClusterInfo:
        reply = await self._session.name_servers.ask(GetBrokerClusterInfo())
        return decode_cluster_info(body_of(reply))

    async def _brokers(self, cluster: str | None = None) -> list[BrokerData]:
        """All brokers, or those of one cluster, in the order of their names."""
        info = await self._cluster()
        if cluster is None:
            names: Collection[str] = info.brokers
        elif cluster in info.clusters:
            names = info.clusters[cluster]
        else:
            raise BadRequest(
                f"cluster {cluster!r} not found", hint=f"known clusters: {', '.join(info.clusters)}"
            )
        return [info.brokers[name] for name in sorted(names) if name in info.brokers]

    async def _leaders(self, cluster: str | None = None) -> dict[str, str]:
        """Leader addresses by broker name; Unavailable when there is none.

        A cluster whose brokers have members and no leader is waited for.
        """
        async for brokers in self._looks(cluster):
            found = {
                broker.broker_name: address
                for broker in brokers
                if (address := broker.master_addr()) is not None
            }
            if found or not brokers:
                break
        if not found:
            raise Unavailable("no broker with a leader is registered")
        return self._remembered(found)

    async def _looks(self, cluster: str | None) -> AsyncIterator[list[BrokerData]]:
        """The brokers, again and again in growing pauses, until ADMIN_TIMEOUT_MS is over."""
        clock = self._session.clock
        until_ms = clock.monotonic_ms() + ADMIN_TIMEOUT_MS
        pauses = Pauses(self._session.chance)
        while True:
            yield await self._brokers(cluster)
            pause_ms = pauses.next_ms()
            if clock.monotonic_ms() + pause_ms >= until_ms:
                return
            await asyncio.sleep(pause_ms / 1000)

    def _remembered(self, leaders: dict[str, str]) -> dict[str, str]:
        self._names.update({address: name for name, address in leaders.items()})
        return leaders

    async def _chosen(self, broker: str | None, cluster: str | None = None) -> dict[str, str]:
        """The leader of one broker, named by its name or an address, or those of `_leaders`."""
        if broker is None:
            return await self._leaders(cluster)
        async for brokers in self._looks(cluster):
            named = [
                one
                for one in brokers
                if broker == one.broker_name or broker in one.broker_addrs.values()
            ]
            if not named:
                known = ", ".join(one.broker_name for one in brokers if one.master_addr())
                raise BadRequest(
                    f"broker {broker!r} is unknown or has no leader",
                    hint=f"brokers with a leader: {known}",
                )
            address = named[0].master_addr()
            if address is not None:
                return self._remembered({named[0].broker_name: address})
        raise Unavailable(
            f"broker {broker} has no leader", hint="check its replicas: kourou admin replicas"
        )

    async def _leaders_of(self, topic: str) -> dict[str, str]:
        """Leader addresses, by name, of the brokers that have a topic; fresh from a name server."""
        known = await self._session.routes.refresh(topic)
        if known.borrowed:
            raise TopicNotFound(f"topic {topic!r} not found")
        return self._remembered(
            {
                name: address
                for name, broker in known.brokers.items()
                if (address := broker.master_addr() or broker.any_addr()) is not None
            }
        )

    async def _tell(self, addresses: Collection[str], request: Request, body: bytes = b"") -> None:
        """The same change at several brokers, one after the other."""
        for address in addresses:
            await self._ask_leader(address, request, body)

    async def _ask_leader(self, address: str, request: Request, body: bytes = b"") -> Reply:
        """A change that may be made twice, at the leader of whose log this address was."""
        try:
            return await self._ask(address, request, body=body)
        except KourouError as error:
            name = self._names.get(address)
            if name is None or not (nobody_leads(error) or was_lost(error)):
                raise
            failure = error
        async for brokers in self._looks(None):
            for one in brokers:
                leader = one.master_addr()
                if one.broker_name != name or leader is None:
                    continue
                if leader == address and not self._session.connections.knock(leader):
                    continue  # it is known to be away
                try:
                    return await self._ask(leader, request, body=body)
                except KourouError as error:
                    if not (nobody_leads(error) or was_lost(error)):
                        raise
                    failure, address = error, leader
        raise failure

    async def _answers(
        self, addresses: Collection[str], request: Request, *, also: Collection[int] = ()
    ) -> list[Reply]:
        """The answers of all brokers that give one; if none does, the last error."""
        answers: list[Reply] = []
        failure: KourouError | None = None
        for address in addresses:
            try:
                answers.append(await self._ask(address, request, also=also))
            except KourouError as error:
                failure = error
        if not answers and failure is not None:
            raise failure
        return answers
