"""Shared base of all administration APIs: find the brokers, send requests to one or several.

An administrative change is sent to the leader of every broker that it concerns. If one of them
fails, the error names it, the other brokers keep the change, and repeating the call completes it:
changes are idempotent. If a broker has no leader, or its connection is lost during a change, the
request is retried with the current leader until ADMIN_TIMEOUT_MS is over.

State: none, except a map from leader address to broker name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from kourou.client.session.client_session import Session
from kourou.client.session.connections import Pauses, body_of, nobody_leads, was_lost
from kourou.errors import BadRequest, KourouError, Rejected, TopicNotFound, Unavailable
from kourou.model.topic import BrokerData, MessageQueue
from kourou.protocol.bodies.route_bodies import ClusterInfo, decode_cluster_info
from kourou.protocol.messages.namesrv import GetBrokerClusterInfo
from kourou.protocol.request import Request
from kourou.transport.zmq_client import WireReply

ADMIN_TIMEOUT_MS = 10_000
T = TypeVar("T")


class AdminApi:
    """Base class of one family of administration requests; its methods run on the I/O thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._io = session.io
        self._names: dict[str, str] = {}

    async def _ask(
        self, address: str, request: Request, *, body: bytes = b"", also: Collection[int] = ()
    ) -> WireReply:
        return await self._session.connections.ask(
            address, request, body=body, timeout_ms=ADMIN_TIMEOUT_MS, also=also
        )

    async def _cluster(self) -> ClusterInfo:
        reply = await self._session.name_servers.ask(GetBrokerClusterInfo())
        return decode_cluster_info(body_of(reply))

    async def _brokers(self, cluster: str | None = None) -> list[BrokerData]:
        """Return all brokers, or those of one cluster, in the order of their names."""
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
        """Return leader addresses by broker name.

        Waits while the brokers have replicas but no leader. Raises Unavailable if there is still no
        leader after ADMIN_TIMEOUT_MS.
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

    async def _leader(self, broker_name: str) -> str:
        """Return the leader address of one broker. Raises BadRequest if there is none."""
        leaders = await self._leaders()
        if broker_name not in leaders:
            raise BadRequest(
                f"broker {broker_name!r} is unknown or has no leader",
                hint=f"brokers with a leader: {', '.join(leaders)}",
            )
        return leaders[broker_name]

    async def _leader_of(self, queue: MessageQueue) -> str:
        """Return the leader address of a queue's broker. Raises Unavailable if there is none."""
        address = (await self._leaders_of(queue.topic)).get(queue.broker_name)
        if address is None:
            raise Unavailable(f"broker {queue.broker_name} of {queue!s} has no leader")
        return address

    async def _looks(self, cluster: str | None) -> AsyncIterator[list[BrokerData]]:
        """Yield the list of brokers repeatedly, with growing pauses, for ADMIN_TIMEOUT_MS."""
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
        """Return the leader of one broker, given by name or address, or else all leaders."""
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
        """Return the leader address of each broker that has a topic, a replica's without a leader;
        queries a name server.
        """
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
        """Send the same change to several brokers, one after the other."""
        for address in addresses:
            await self._ask_leader(address, request, body)

    async def _ask_leader(self, address: str, request: Request, body: bytes = b"") -> WireReply:
        """Send an idempotent change to the leader of the broker that this address belongs to."""
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
                if leader == address and not self._session.connections.try_connect(leader):
                    continue  # it is known to be offline
                try:
                    return await self._ask(leader, request, body=body)
                except KourouError as error:
                    if not (nobody_leads(error) or was_lost(error)):
                        raise
                    failure, address = error, leader
        raise failure

    async def _answers(
        self, addresses: Collection[str], request: Request, *, also: Collection[int] = ()
    ) -> list[WireReply]:
        """Return the replies of all brokers that reply; if none does, raise the last error."""
        answers: list[WireReply] = []
        failure: KourouError | None = None
        for address in addresses:
            try:
                answers.append(await self._ask(address, request, also=also))
            except KourouError as error:
                failure = error
        if not answers and failure is not None:
            raise failure
        return answers


class ByBroker(dict[str, T]):
    """What each broker replied, by its name; `missing` has the errors of those that did not."""

    def __init__(self, found: Mapping[str, T], missing: Mapping[str, KourouError]) -> None:
        super().__init__(found)
        self.missing = dict(missing)

    @property
    def agreed(self) -> bool:
        """True if all replies are equal."""
        values = list(self.values())
        return all(one == values[0] for one in values)


class EveryBrokerApi(AdminApi):
    """Administration of what each broker keeps by itself.

    A change goes to the leader of every broker. One that fails does not stop the others: the error
    names those that failed. Reads return what each broker has.
    """

    async def _read(
        self, request: Request, decode: Callable[[WireReply], T], body: bytes = b""
    ) -> ByBroker[T]:
        """Ask every broker; raises the last error if none replies."""
        found: dict[str, T] = {}
        missing: dict[str, KourouError] = {}
        for name, address in (await self._leaders()).items():
            try:
                found[name] = decode(await self._ask(address, request, body=body))
            except KourouError as error:
                missing[name] = error
        if not found:
            raise next(reversed(missing.values()))
        return ByBroker(found, missing)

    async def _change(
        self,
        request_for: Callable[[str], Request | None],
        body: bytes = b"",
        failed: Mapping[str, KourouError] | None = None,
    ) -> None:
        """Send a change to every broker that has a request and has not `failed` before."""
        failures = dict(failed or {})
        leaders = await self._leaders()
        for name, address in leaders.items():
            request = request_for(name)
            if request is None or name in failures:
                continue
            try:
                await self._ask_leader(address, request, body)
            except KourouError as error:
                failures[name] = error
        if failures:
            raise _failure(failures, [name for name in leaders if name not in failures])


def _failure(failures: Mapping[str, KourouError], done: Iterable[str]) -> KourouError:
    """The error of a change that failed at some brokers, or at all for the same reason."""
    first, *others = failures.values()
    changed = ", ".join(done)
    if not changed and all(str(one) == str(first) for one in others):
        return first
    text = "; ".join(f"{name}: {error}" for name, error in failures.items())
    hint = f"{changed} changed; repeat the command for the others" if changed else ""
    if any(error.retryable for error in failures.values()):
        return Unavailable(f"not changed at {text}", hint=hint)
    return Rejected(f"not changed at {text}", hint=hint)
