"""Consumption with leases: receive, ack, extend, retry, dead-letter.

State: none; the component `Leases` has it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from kourou.errors import KourouError
from kourou.model.limits import (
    DELAY_LEVELS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    LEASE_REASON_LENGTH_MAX,
    LEASE_SETTLE_MAX,
    LEASES_PER_RECEIVE_MAX,
    RECEIVE_BYTES_MAX,
    RECEIVE_WAIT_MS_MAX,
)
from kourou.model.names import check_group
from kourou.model.subscription import ConsumeFromWhere
from kourou_console.gateway import Gateway
from kourou_console.http.responses import problem_of
from kourou_console.leases.book import HeldState, LeaseEnd
from kourou_console.leases.leases import Leases, in_short, subscribed
from kourou_console.leases.member import GroupHeld, GroupMember
from kourou_console.lists import Listing, Name
from kourou_console.messages.views import Budget, StoredMessageView, view_of
from kourou_console.operation import Chapter, NoParameters

OPERATIONS = Chapter("Consuming by leases")


Invisible = Annotated[int, msgspec.Meta(ge=LEASE_MS_MIN, le=LEASE_MS_MAX)]
ReasonText = Annotated[str, msgspec.Meta(max_length=LEASE_REASON_LENGTH_MAX)]


class Begin(StrEnum):
    """Where a group begins that has no progress."""

    LAST = "last"
    FIRST = "first"


class InGroupTopic(msgspec.Struct, frozen=True):
    """A group's topic."""

    group: str
    topic: str


class InGroup(msgspec.Struct, frozen=True):
    """A group."""

    group: str


class OneLease(msgspec.Struct, frozen=True):
    """A lease, by its token."""

    lease: str


class Receive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to lease. Tags, sql or filter are the group's subscription: always the same."""

    #: The maximum number of messages, with at most 4 MiB of bodies unless it is a single message.
    max: Annotated[int, msgspec.Meta(ge=1, le=LEASES_PER_RECEIVE_MAX)] = 1
    #: How long no other consumer receives them.
    invisible_ms: Invisible = 30_000
    #: How long to wait for a first message.
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=RECEIVE_WAIT_MS_MAX)] = 0
    tags: tuple[str, ...] = ()
    sql: str | None = None
    #: The name of a Python filter that the group has uploaded; it runs in a filter server.
    filter: Name | None = None
    #: One message of a queue at a time, in the order of the queue.
    order: bool = False
    #: Where a group without progress starts in queues that existed before it.
    begin: Begin = Begin.LAST


class Leased(msgspec.Struct, frozen=True, kw_only=True):
    """A message leased exclusively until `expires_ms`; `attempt` counts its deliveries."""

    lease: str
    expires_ms: int
    attempt: int
    message: StoredMessageView


class LeaseState(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease is now: leased, acked, retried or dead_lettered."""

    lease: str
    state: str
    expires_ms: int | None
    as_of_ms: int


class Extension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lease ends so long from now."""

    invisible_ms: Invisible = 30_000


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """0 lets the broker choose the pause by the number of attempts."""

    delay_level: Annotated[int, msgspec.Meta(ge=0, le=DELAY_LEVELS_MAX)] = 0
    reason: ReasonText = ""


class DeadLettered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why the message will never be consumed; stored with the dead letter."""

    reason: ReasonText = ""


class Acks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Leases that were consumed."""

    leases: Annotated[list[str], msgspec.Meta(min_length=1, max_length=LEASE_SETTLE_MAX)]


class LeaseProblem(msgspec.Struct, frozen=True):
    """Why one of several was refused."""

    status: int
    title: str
    detail: str


class AckOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one of several; `error` is null if it is acked."""

    lease: str
    state: str | None
    error: LeaseProblem | None


class LeasedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of a group here: its filter, messages that wait here, messages under lease."""

    topic: str
    filter: str
    ready: int
    leased: int


class GroupUse(msgspec.Struct, frozen=True, kw_only=True):
    """A group of which this gateway is a member."""

    group: str
    order: bool
    queues: int
    #: The number of waiting receives.
    receiving: int
    leased: int
    topics: list[LeasedTopic]


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """`left` is false if the gateway had not joined the group."""

    group: str
    left: bool
    #: The number of leased messages, which are redelivered.
    leases_ended: int
    as_of_ms: int


@OPERATIONS.post(
    "/v1/groups/{group}/topics/{topic}/leases",
    "receive_messages",
    needs=(),
    leaves_with_caller=True,
)
async def receive_messages(
    gateway: Gateway, parameters: InGroupTopic, body: Receive
) -> Listing[Leased]:
    """Lease messages of a topic for a group. The gateway joins the group at the first receive and
    leaves it after three minutes without receives. Messages that are neither acknowledged nor
    returned in time are redelivered, also after a crash of the gateway. The answer is empty if no
    message came within `wait_ms`; `missing` names the queues that are blocked because the group's
    filter fails, and why.
    """
    leases = gateway.part(Leases)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    last = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    member, given = await leases.receive(
        parameters.group,
        parameters.topic,
        subscribed(body.tags, body.sql, body.filter),
        count_max=body.max,
        invisible_ms=body.invisible_ms,
        wait_ms=body.wait_ms,
        ordered=body.order,
        begin=first if body.begin is Begin.FIRST else last,
    )
    now_ms = gateway.clock.now_ms()
    items = await _leased(gateway, member, parameters.topic, given)
    more = member.book.ready(parameters.topic) > 0
    missing = member.unfiltered(parameters.topic)
    return Listing(items=items, total=None, as_of_ms=now_ms, truncated=more, missing=missing)


async def _leased(
    gateway: Gateway, member: GroupMember, topic: str, given: list[GroupHeld]
) -> list[Leased]:
    """The leases for the response, with complete bodies, as many as fit.

    The first body may be larger. Messages that do not fit can be leased again immediately.
    """
    whole = {held.number: held for held in given}
    left = dict(whole)
    items: list[Leased] = []
    budget, tokens = Budget(RECEIVE_BYTES_MAX, counting=0), gateway.part(Leases).tokens
    wall_ms = gateway.clock.now_ms() - gateway.clock.monotonic_ms()
    try:
        for number, held in list(whole.items()):
            view = await view_of(held.message.message, budget, whole=not items)
            if view.body_truncated:
                break
            del left[number]
            if held.number != number or held.state is not HeldState.LEASED:
                continue  # it ended during decompression
            if view.body_error is not None:  # an unreadable message can never be consumed
                del whole[number]  # if no broker accepts it, its lease continues
                reason = f"it cannot be read: {view.body_error}"
                await member.dead_letter(held, reason[:LEASE_REASON_LENGTH_MAX])
                continue
            expires_ms = wall_ms + held.expires_ms
            lease = tokens.make(number)
            items.append(
                Leased(lease=lease, expires_ms=expires_ms, attempt=held.attempt, message=view)
            )
    except BaseException:
        left = whole  # none of the leases is sent
        raise
    finally:
        member.revoke(topic, left)
    return items


def _wall_ms(gateway: Gateway, monotonic_ms: int) -> int:
    clock = gateway.clock
    return clock.now_ms() + monotonic_ms - clock.monotonic_ms()


@OPERATIONS.post("/v1/leases/{lease}/ack", "ack_lease", needs=())
async def ack_lease(gateway: Gateway, parameters: OneLease) -> LeaseState:
    """Acknowledge the message: it is not delivered to the group again. A second ack has no effect;
    an ack for a lease that has ended otherwise is refused (410), and its message is redelivered.
    """
    _ack(gateway.part(Leases), parameters.lease)
    return _state(gateway, parameters.lease, LeaseEnd.ACKED)


def _ack(leases: Leases, token: str) -> None:
    found = leases.find(token, done=LeaseEnd.ACKED)
    if found is not None:
        member, held = found
        member.ack(held)


@OPERATIONS.post("/v1/leases/{lease}/extend", "extend_lease", needs=())
async def extend_lease(gateway: Gateway, parameters: OneLease, body: Extension) -> LeaseState:
    """Set the remaining time of the lease, longer or shorter than before."""
    found = gateway.part(Leases).find(parameters.lease)
    assert found is not None, "no time limit was allowed"
    member, held = found
    member.extend(held, body.invisible_ms)
    return LeaseState(
        lease=parameters.lease,
        state="leased",
        expires_ms=_wall_ms(gateway, held.expires_ms),
        as_of_ms=gateway.clock.now_ms(),
    )


@OPERATIONS.post("/v1/leases/{lease}/retry", "retry_lease", needs=())
async def retry_lease(gateway: Gateway, parameters: OneLease, body: Retry) -> LeaseState:
    """Return the message: its broker redelivers it after a delay to any consumer of the group, and
    moves it to the dead-letter queue when its retries are used up. The response comes after the
    broker stored it. In ordered consumption the message keeps its position and is redelivered after
    a second.
    """
    found = gateway.part(Leases).find(parameters.lease, done=LeaseEnd.RETRIED)
    if found is not None:
        member, held = found
        await member.retry(held, body.delay_level, body.reason)
    return _state(gateway, parameters.lease, LeaseEnd.RETRIED)


@OPERATIONS.post("/v1/leases/{lease}/dead-letter", "dead_letter_lease", needs=())
async def dead_letter_lease(
    gateway: Gateway, parameters: OneLease, body: DeadLettered
) -> LeaseState:
    """Reject the message: it is moved to the dead-letter queue %DLQ% plus group name, with the
    reason. The response comes after it is stored there.
    """
    found = gateway.part(Leases).find(parameters.lease, done=LeaseEnd.DEAD_LETTERED)
    if found is not None:
        member, held = found
        await member.dead_letter(held, body.reason)
    return _state(gateway, parameters.lease, LeaseEnd.DEAD_LETTERED)


def _state(gateway: Gateway, lease: str, end: LeaseEnd) -> LeaseState:
    return LeaseState(
        lease=lease, state=end.value, expires_ms=None, as_of_ms=gateway.clock.now_ms()
    )


@OPERATIONS.post("/v1/groups/{group}/acks", "ack_leases", needs=())
async def ack_leases(gateway: Gateway, parameters: InGroup, body: Acks) -> Listing[AckOutcome]:
    """Acknowledge several leases; check each result, as some may have ended before."""
    check_group(parameters.group)
    leases = gateway.part(Leases)
    items: list[AckOutcome] = []
    for token in body.leases:
        try:
            _ack(leases, token)
        except KourouError as error:
            details = problem_of(error)
            problem = LeaseProblem(details.status, details.title, details.detail)
            items.append(AckOutcome(lease=token, state=None, error=problem))
        else:
            items.append(AckOutcome(lease=token, state=LeaseEnd.ACKED.value, error=None))
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms())


@OPERATIONS.get("/v1/leases", "list_lease_groups", needs=())
async def list_lease_groups(gateway: Gateway, parameters: NoParameters) -> Listing[GroupUse]:
    """Groups that this gateway consumes for, and their number of leased messages."""
    items = [await _use(member) for member in gateway.part(Leases)]
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms())


async def _use(member: GroupMember) -> GroupUse:
    topics = [
        LeasedTopic(
            topic=topic,
            filter=in_short(use.wanted),
            ready=member.book.ready(topic),
            leased=member.book.out_of(topic),
        )
        for topic, use in sorted(member.topics.items())
    ]
    return GroupUse(
        group=member.group,
        order=member.ordered,
        queues=await member.queues(),
        receiving=member.receiving,
        leased=member.book.out,
        topics=topics,
    )


@OPERATIONS.delete("/v1/groups/{group}/leases", "leave_group", needs=())
async def leave_group(gateway: Gateway, parameters: InGroup) -> Left:
    """Leave a group now: acknowledged messages are committed, leased messages are redelivered to
    another consumer or at the next receive.
    """
    leases = gateway.part(Leases)
    out = sum(one.book.out for one in leases if one.group == parameters.group)
    left = await leases.leave(check_group(parameters.group))
    return Left(
        group=parameters.group, left=left, leases_ended=out, as_of_ms=gateway.clock.now_ms()
    )
