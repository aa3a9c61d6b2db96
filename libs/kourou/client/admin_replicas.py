"""Leaders and their copies, as an operator handles them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kourou.client.admin_desk import AdminDesk
from kourou.client.connections import body_of
from kourou.client.io_thread import on_io_thread
from kourou.errors import BadRequest, KourouError, Rejected, Unavailable, UnknownOutcome
from kourou.model.route import MASTER_ID, BrokerData
from kourou.protocol.messages.replicas import (
    GetReplicas,
    PromoteReplica,
    PromoteReplicaResponse,
    TransferLeader,
    TransferLeaderResponse,
)
from kourou.protocol.replicas_body import FollowerTold, ReplicasTold, decode_replicas

LOOK_TIMEOUT_MS = 3_000
"""A member that is gone must not keep an operator waiting who wants to replace it."""
PROMOTED_WAIT_MS = 30_000
"""How long `promote` waits for the follower to lead: it starts anew on its store."""
TRANSFERRED_WAIT_MS = 10_000
"""How long `transfer_leader` waits: a member that is asked to stand does so at once, or never."""
PAUSE_MS = 100
NOT_THERE = "is not registered with the name servers"
"""What is told of each that `absent` finds."""


@dataclass(frozen=True, slots=True)
class LogMember:
    """One member of a log as the name server has it, and what it told: or why it did not.

    `registered_id`: 0 for whoever is registered as the leader.
    """

    broker_name: str
    registered_id: int
    address: str
    told: ReplicasTold | None
    error: KourouError | None = None


def leaders_of(members: Iterable[LogMember]) -> dict[str, ReplicasTold]:
    """Who leads each log; of two that believe it, the one of the later epoch."""
    found: dict[str, ReplicasTold] = {}
    for one in members:
        told = one.told
        if told is None or not told.leads or told.fenced:
            continue
        known = found.get(one.broker_name)
        if known is None or told.epoch > known.epoch:
            found[one.broker_name] = told
    return found


def absent(members: Sequence[LogMember]) -> list[tuple[ReplicasTold, FollowerTold]]:
    """A Raft group's members that no name server knows, each after its leader's view.

    A leader counts them all, there or not; without a leader nobody tells. One that is registered
    and does not answer is not among them: its LogMember says so.
    """
    found = []
    for name, leader in leaders_of(members).items():
        mine = [one for one in members if one.broker_name == name]
        there = {one.told.member for one in mine if one.told is not None}
        silent = {one.registered_id for one in mine if one.told is None}
        found += [
            (leader, one)
            for one in leader.followers
            if one.member and one.member not in there and one.broker_id not in silent
        ]
    return found


class Replicas(AdminDesk):
    """`client.admin.replicas`."""

    @on_io_thread
    async def of(self, broker: str | None = None, cluster: str | None = None) -> list[LogMember]:
        """Every member of one broker name, or of all, and what it knows of its log.

        A member that does not answer stands there with the error.
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
    ) -> ReplicasTold:
        """Make a follower the leader of its log; what it tells when it leads.

        It is the one with that `broker_id`, or the one at `address` (`host:port` for Kourou's
        clients) if no name server knows it, as an old leader that was outdone. Without `force`
        refused (Rejected) while the leader answers anybody, or if another follower has more. What
        this one lacks is lost; the old leader has to come back as a follower. UnknownOutcome if it
        does not lead within 30 s: then look at `of`.
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
    async def transfer_leader(self, broker: str, to: str | int = "") -> ReplicasTold:
        """Let another member of a Raft group lead; what it tells when it does.

        `to` is its name or brokerId, "" for whoever has most of the log. Nothing that was
        acknowledged is lost; senders wait for a moment. Raises Rejected for what is no Raft group,
        Unavailable if the leader stays because that member did not take over in time.
        """
        data = _named(await self._brokers(), broker)
        asked = TransferLeader(broker_name=broker, target=str(to))
        # Whoever does not lead passes it on.
        address = data.broker_addrs.get(MASTER_ID) or next(iter(data.broker_addrs.values()))
        reply = await self._ask(address, asked)
        assert isinstance(reply.header, TransferLeaderResponse)
        return await self._wait_for_another(broker, reply.header)

    async def _wait_for_another(self, broker: str, begun: TransferLeaderResponse) -> ReplicasTold:
        """Until somebody leads a later epoch, and the name server's routes say so."""
        clock = self._session.clock
        until_ms = clock.monotonic_ms() + TRANSFERRED_WAIT_MS
        stayed = False
        while clock.monotonic_ms() < until_ms:
            for one in await self._known_members(broker):
                if one.told is None or not one.told.leads:
                    continue
                stayed = one.told.epoch == begun.epoch
                if one.told.epoch > begun.epoch and one.registered_id == MASTER_ID:
                    return one.told
            await asyncio.sleep(PAUSE_MS / 1_000)
        if stayed:
            raise Unavailable(
                f"{begun.leader} is still the leader of {broker}: "
                f"{begun.target or 'the most up-to-date replica'} did not take "
                "over in time",
                hint="check which replicas are online, and their lag: kourou admin replicas",
            )
        raise UnknownOutcome(
            f"{begun.leader} started the transfer, but the new leader is not known yet",
            hint="check the replicas: kourou admin replicas",
        )

    async def _known_members(self, broker: str) -> list[LogMember]:
        """Nobody while no name server knows the broker, or none answers."""
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

    async def _wait_until_it_leads(self, broker: str, address: str, epoch: int) -> ReplicasTold:
        """Until it leads and the name server's routes say so; it answers again when it leads.

        `address` may be another spelling of the registered one, so who answers there tells.
        """
        clock = self._session.clock
        until_ms = clock.monotonic_ms() + PROMOTED_WAIT_MS
        while clock.monotonic_ms() < until_ms:
            chosen = await self._look(broker, MASTER_ID, address)
            told = chosen.told
            if told is not None and told.leads and told.epoch >= epoch:
                registered = await self._registered_leader(broker)
                if registered is not None and _same(chosen, registered):
                    return told
            await asyncio.sleep(PAUSE_MS / 1_000)
        raise UnknownOutcome(
            f"{address} accepted the promotion in epoch {epoch}, but is not known as leader yet",
            hint="check its log, and the replicas: kourou admin replicas",
        )

    async def _registered_leader(self, broker: str) -> LogMember | None:
        """Whom the name server has as the leader; None while it knows none, or does not answer."""
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
    """What the follower itself cannot see: a leader that it does not reach, a fuller copy."""
    if any(one.told is not None and one.told.member for one in (chosen, *members)):
        raise Rejected(
            "this broker is a Raft group, which elects its leader",
            hint="to transfer leadership: kourou admin transfer-leader",
        )
    for one in members:
        if one.told is None or _same(one, chosen):
            continue
        if one.told.leads and not one.told.fenced:
            raise Rejected(
                f"the leader at {one.address} is online",
                hint="stop it first; force replaces it, and messages that it still "
                "acknowledges are lost",
            )
        if chosen.told is not None and _place(one.told) > _place(chosen.told):
            raise Rejected(
                f"brokerId {one.registered_id} has more of the log, up to "
                f"{one.told.end}; {chosen.told.broker_id} has it up to "
                f"{chosen.told.end}",
                hint="promote that replica; with force, the messages missing from "
                "this one are lost",
            )


def _same(one: LogMember, other: LogMember) -> bool:
    """Is it one broker, perhaps by two spellings of its address?"""
    if one.told is None or other.told is None:
        return one.address == other.address
    return (one.told.broker_id, one.told.leads) == (other.told.broker_id, other.told.leads)


def _place(told: ReplicasTold) -> tuple[int, int]:
    return told.epoch, told.end
