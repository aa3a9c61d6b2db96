"""Administration of replicas and leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kourou.client.admin.base_api import AdminApi
from kourou.client.session.connections import body_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import BadRequest, KourouError, Rejected, Unavailable, UnknownOutcome
from kourou.model.topic import MASTER_ID, BrokerData
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView, decode_replicas
from kourou.protocol.messages.replication import (
    GetReplicas,
    PromoteReplica,
    PromoteReplicaResponse,
    TransferLeader,
    TransferLeaderResponse,
)

LOOK_TIMEOUT_MS = 3_000
"""A short timeout, so that an operator does not wait long for a replica that is offline."""
PROMOTED_WAIT_MS = 30_000
"""How long `promote` waits for the follower to lead: the follower reopens its store first."""
TRANSFERRED_WAIT_MS = 10_000
"""How long `transfer_leader` waits: a node that is asked to stand for election does so at once."""
PAUSE_MS = 100
NOT_THERE = "is not registered with the name servers"
"""The text that is shown for each node that `absent` returns."""


@dataclass(frozen=True, slots=True)
class LogMember:
    """One replica of a log as the name server lists it, and its reply or the error.

    `registered_id` is 0 for the replica that is registered as the leader.
    """

    broker_name: str
    registered_id: int
    address: str
    view: ReplicasView | None
    error: KourouError | None = None


def leaders_of(members: Iterable[LogMember]) -> dict[str, ReplicasView]:
    """Return the leader of each log; if two replicas claim it, the one with the later epoch."""
    found: dict[str, ReplicasView] = {}
    for one in members:
        status = one.view
        if status is None or not status.leads or status.fenced:
            continue
        known = found.get(one.broker_name)
        if known is None or status.epoch > known.epoch:
            found[one.broker_name] = status
    return found


def absent(members: Sequence[LogMember]) -> list[tuple[ReplicasView, FollowerView]]:
    """Return a Raft group's nodes that are not registered, each with its leader's reply.

    The leader's reply lists all nodes, online or not; a group without a leader is skipped. A node
    that is registered but does not reply is not included: its LogMember contains the error.
    """
    found = []
    for name, leader in leaders_of(members).items():
        mine = [one for one in members if one.broker_name == name]
        there = {one.view.member for one in mine if one.view is not None}
        silent = {one.registered_id for one in mine if one.view is None}
        found += [
            (leader, one)
            for one in leader.followers
            if one.member and one.member not in there and one.broker_id not in silent
        ]
    return found


class ReplicasApi(AdminApi):
    """Replica administration: `client.admin.replicas`."""

    @on_io_thread
    async def of(self, broker: str | None = None, cluster: str | None = None) -> list[LogMember]:
        """Return every replica of one broker name, or of all, and what it knows of its log.

        A replica that does not reply is listed with the error.
        """
        found = await self._brokers(cluster)
        if broker is not None:
            found = [_named(found, broker)]
        return [member for data in found for member in await self._members(data)]

    @on_io_thread
    async def promote(
        self,
        broker: str,
        broker_id: int | None = None,
        *,
        address: str | None = None,
        force: bool = False,
    ) -> ReplicasView:
        """Make a follower the leader of its log; returns its status when it leads.

        The follower is given by `broker_id`, or by `address` (`host:port` of its listener for
        Kourou clients) if it is not registered, as a former leader that was replaced. Without
        `force` the request is refused (Rejected) while the current leader is reachable, or if
        another follower has more of the log. Messages that the new leader lacks are lost; the old
        leader must rejoin as a follower. Raises UnknownOutcome if it does not lead within 30 s:
        then check with `of`.
        """
        data = _named(await self._brokers(), broker)
        if (broker_id is None) == (address is None):
            raise BadRequest("no replica is given", hint="give its brokerId or its address")
        address = address or data.broker_addrs.get(broker_id or 0)
        if address is None:
            raise BadRequest(
                f"broker {broker} has no registered replica with brokerId {broker_id}",
                hint=f"registered brokerIds: {', '.join(map(str, sorted(data.broker_addrs)))}",
            )
        if not force:
            chosen = await self._look(broker, -1 if broker_id is None else broker_id, address)
            _check(chosen, await self._members(data))
        reply = await self._ask(address, PromoteReplica(broker_name=broker, force=force))
        assert isinstance(reply.header, PromoteReplicaResponse)
        return await self._wait_until_it_leads(broker, address, reply.header.epoch)

    @on_io_thread
    async def transfer_leader(self, broker: str, to: str | int = "") -> ReplicasView:
        """Transfer the leadership of a Raft group; returns the new leader's status when it leads.

        `to` is the target's name or brokerId; "" selects the most up-to-date replica. No
        acknowledged message is lost; senders wait for a moment. Raises Rejected if the broker is
        not a Raft group, Unavailable if the leader stays because the target did not take over in
        time.
        """
        data = _named(await self._brokers(), broker)
        asked = TransferLeader(broker_name=broker, target=str(to))
        # A node that does not lead forwards the request.
        address = data.broker_addrs.get(MASTER_ID) or next(iter(data.broker_addrs.values()))
        reply = await self._ask(address, asked)
        assert isinstance(reply.header, TransferLeaderResponse)
        return await self._wait_for_another(broker, reply.header)

    async def _wait_for_another(self, broker: str, started: TransferLeaderResponse) -> ReplicasView:
        """Wait until a node leads a later epoch and the name server's routes name it."""
        clock = self._session.clock
        until_ms = clock.monotonic_ms() + TRANSFERRED_WAIT_MS
        stayed = False
        while clock.monotonic_ms() < until_ms:
            for one in await self._known_members(broker):
                if one.view is None or not one.view.leads:
                    continue
                stayed = one.view.epoch == started.epoch
                if one.view.epoch > started.epoch and one.registered_id == MASTER_ID:
                    return one.view
            await asyncio.sleep(PAUSE_MS / 1_000)
        if stayed:
            raise Unavailable(
                f"{started.leader} is still the leader of {broker}: "
                f"{started.target or 'the most up-to-date replica'} did not take "
                "over in time",
                hint="check which replicas are online, and their lag: kourou admin replicas",
            )
        raise UnknownOutcome(
            f"{started.leader} started the transfer, but the new leader is not known yet",
            hint="check the replicas: kourou admin replicas",
        )

    async def _known_members(self, broker: str) -> list[LogMember]:
        """Return the registered replicas; empty while no name server knows them or replies."""
        try:
            data = _named(await self._brokers(), broker)
        except KourouError:
            return []
        return await self._members(data)

    async def _members(self, data: BrokerData) -> list[LogMember]:
        asked = sorted(data.broker_addrs.items())
        looks = [self._look(data.broker_name, number, address) for number, address in asked]
        return list(await asyncio.gather(*looks))

    async def _look(self, name: str, number: int, address: str) -> LogMember:
        try:
            reply = await self._session.connections.ask(
                address, GetReplicas(), timeout_ms=LOOK_TIMEOUT_MS
            )
            return LogMember(name, number, address, decode_replicas(body_of(reply)))
        except KourouError as error:
            return LogMember(name, number, address, None, error)

    async def _wait_until_it_leads(self, broker: str, address: str, epoch: int) -> ReplicasView:
        """Wait until it leads and the name server's routes name it.

        `address` may be another spelling of the registered address, so the replies of both are
        compared.
        """
        clock = self._session.clock
        until_ms = clock.monotonic_ms() + PROMOTED_WAIT_MS
        while clock.monotonic_ms() < until_ms:
            chosen = await self._look(broker, MASTER_ID, address)
            status = chosen.view
            if status is not None and status.leads and status.epoch >= epoch:
                registered = await self._registered_leader(broker)
                if registered is not None and _same(chosen, registered):
                    return status
            await asyncio.sleep(PAUSE_MS / 1_000)
        raise UnknownOutcome(
            f"{address} accepted the promotion in epoch {epoch}, but is not known as leader yet",
            hint="check its log, and the replicas: kourou admin replicas",
        )

    async def _registered_leader(self, broker: str) -> LogMember | None:
        """Return the registered leader; None while the name server knows none or does not reply."""
        try:
            address = _named(await self._brokers(), broker).broker_addrs.get(MASTER_ID)
        except KourouError:
            return None
        return None if address is None else await self._look(broker, MASTER_ID, address)


def _named(brokers: list[BrokerData], name: str) -> BrokerData:
    for data in brokers:
        if name == data.broker_name:
            return data
    known = ", ".join(data.broker_name for data in brokers)
    raise BadRequest(f"broker {name!r} not found", hint=f"known brokers: {known}")


def _check(chosen: LogMember, members: list[LogMember]) -> None:
    """Check what the follower cannot see: a leader it cannot reach, a more complete replica."""
    if any(one.view is not None and one.view.member for one in (chosen, *members)):
        raise Rejected(
            "this broker is a Raft group, which elects its leader",
            hint="to transfer leadership: kourou admin transfer-leader",
        )
    for one in members:
        if one.view is None or _same(one, chosen):
            continue
        if one.view.leads and not one.view.fenced:
            raise Rejected(
                f"the leader at {one.address} is online",
                hint="stop it first; force replaces it, and messages that it still "
                "acknowledges are lost",
            )
        if chosen.view is not None and _place(one.view) > _place(chosen.view):
            raise Rejected(
                f"brokerId {one.registered_id} has more of the log, up to "
                f"{one.view.end}; {chosen.view.broker_id} has it up to "
                f"{chosen.view.end}",
                hint="promote that replica; with force, the messages missing from "
                "this one are lost",
            )


def _same(one: LogMember, other: LogMember) -> bool:
    """Return whether both are the same broker, perhaps by two spellings of its address."""
    if one.view is None or other.view is None:
        return one.address == other.address
    return (one.view.broker_id, one.view.leads) == (other.view.broker_id, other.view.leads)


def _place(status: ReplicasView) -> tuple[int, int]:
    return status.epoch, status.end
