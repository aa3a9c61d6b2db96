"""Transfer of leadership and promotion of followers.

State: none. Leaders and epochs are records of the broker's log.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.errors import BadRequest
from kourou_console.api.brokers import BrokerChange
from kourou_console.api.cluster import Member, members_of
from kourou_console.gateway import Gateway
from kourou_console.lists import Done, Missing, Name, brokers_of
from kourou_console.operation import BodyKind, Operation


class Leading(Done, frozen=True, kw_only=True):
    """Who leads, or would; the epoch it leads in, once it does."""

    broker: str
    leader: str | None
    epoch: int | None
    members: list[Member]


class ThreadQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`to` is a member's name or brokerId; by default the most up-to-date replica."""

    to: Annotated[str, msgspec.Meta(max_length=255)] = ""


class Promotion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A follower by its brokerId, or by its address; `force` against a leader that is alive."""

    broker_id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    address: Name | None = None
    force: bool = False


async def transfer_leader(gateway: Gateway, parameters: BrokerChange, body: ThreadQueue) -> Leading:
    """Let another node of a Raft group lead. No acknowledged message is lost."""
    name = parameters.broker
    await brokers_of(gateway, name)
    members = members_of(await gateway.admin.replicas.of(name))
    if parameters.preview:
        if not any(one.member for one in members):
            raise BadRequest(f"{name} is not a Raft group", hint="promote a follower instead")
        known = {one.member for one in members} | {str(one.registered_id) for one in members}
        if body.to and body.to not in known:
            raise BadRequest(
                f"{name} has no replica {body.to!r}",
                hint=f"members: {', '.join(sorted(one for one in known if one))}",
            )
        says = [
            f"{body.to or 'The most up-to-date replica'} would lead {name} in place of "
            f"{_leader(members) or 'an unknown leader'}.",
            "Sends pause briefly; no acknowledged message is lost.",
        ]
        return _told(gateway, name, says, members, preview=True)
    told = await gateway.admin.replicas.transfer_leader(name, body.to)
    members = members_of(await gateway.admin.replicas.of(name))
    says = [f"{told.leader or told.member} leads {name} in epoch {told.epoch}."]
    return _told(gateway, name, says, members)


async def promote(gateway: Gateway, parameters: BrokerChange, body: Promotion) -> Leading:
    """Make a follower the leader of its log, in a new epoch."""
    name = parameters.broker
    await brokers_of(gateway, name)
    if (body.broker_id is None) == (body.address is None):
        raise BadRequest("no replica was named", hint="its broker_id, or its address")
    members = members_of(await gateway.admin.replicas.of(name))
    if parameters.preview:
        return _told(gateway, name, _promoted(name, members, body), members, preview=True)
    told = await gateway.admin.replicas.promote(
        name, body.broker_id, address=body.address, force=body.force
    )
    members = members_of(await gateway.admin.replicas.of(name))
    return _told(gateway, name, [f"{told.leader} leads {name} in epoch {told.epoch}."], members)


def _promoted(name: str, members: list[Member], body: Promotion) -> list[str]:
    """The expected effects, from what the replicas report."""
    chosen = next(
        (
            one
            for one in members
            if one.address == body.address or one.registered_id == body.broker_id
        ),
        None,
    )
    if chosen is None and body.address is None:
        raise BadRequest(
            f"no replica of {name} is registered with brokerId {body.broker_id}",
            hint=f"registered: {', '.join(str(one.registered_id) for one in members)}",
        )
    says = []
    if any(one.member for one in members):
        says.append("It is refused: a Raft group elects its leader; transfer leadership instead.")
    alive = [one for one in members if one.role == "leader" and one is not chosen]
    if alive:
        says.append(
            f"The leader at {alive[0].address} is online: "
            + (
                "it would be replaced, and messages it still acknowledges would be lost."
                if body.force
                else "it is refused without force."
            )
        )
    ends = [one.end for one in members if one.end is not None and one is not chosen]
    if chosen is not None and chosen.end is not None and ends and max(ends) > chosen.end:
        says.append(
            f"{max(ends) - chosen.end:,} bytes of the log that only another replica has would be "
            "lost."
        )
    what = body.address or f"brokerId {body.broker_id}"
    says.append(f"{what} would lead {name} in a new epoch; the old leader would become a follower.")
    return says


def _leader(members: list[Member]) -> str | None:
    return next((one.member or one.address for one in members if one.role == "leader"), None)


def _told(
    gateway: Gateway, name: str, says: list[str], members: list[Member], *, preview: bool = False
) -> Leading:
    return Leading(
        broker=name,
        preview=preview,
        says=says,
        leader=_leader(members),
        epoch=max((one.epoch for one in members if one.epoch is not None), default=None),
        members=members,
        as_of_ms=gateway.clock.now_ms(),
        missing=[Missing(one.address, one.why or "") for one in members if one.role is None],
    )


_CHAPTER = "Cluster and brokers"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/brokers/{broker}/transfer-leader",
        "transfer_leader",
        "Transfer leadership of a Raft group, before its leader is stopped.",
        _CHAPTER,
        transfer_leader,
        Leading,
        BrokerChange,
        ThreadQueue,
        BodyKind.JSON,
    ),
    Operation(
        "POST",
        "/v1/brokers/{broker}/promote",
        "promote",
        "Promote a follower to leader. `preview=true` shows what would be lost.",
        _CHAPTER,
        promote,
        Leading,
        BrokerChange,
        Promotion,
        BodyKind.JSON,
    ),
)
