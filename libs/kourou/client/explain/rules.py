"""The rules that explain the status of a message from its facts.

The rules apply in this order:

    1  not found      no other rule can apply
    2  transaction    a half message is not delivered, whatever else holds
    3  delay          until it is due, it is in no queue that consumers read
    4  committed      consumers read up to the committed position
    5  readable       number of queues, permissions of broker and topic: the same for all groups
    6  groups         each group separately
    7  durability     missing replicas, a reply from a follower: added to all of the above

The first rule that applies gives the main cause; the others follow it. A rule applies only if the
facts support it; unknown facts support no rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kourou.client.explain.causes import CauseCode, StatusCause, Values, count, duration, when
from kourou.client.explain.facts import (
    Form,
    GroupFacts,
    HalfState,
    Lookup,
    MessageFacts,
    StoredCopy,
)
from kourou.client.explain.group_rules import PAST, causes_of_group
from kourou.protocol.record.message_id import uniq_key_time_ms

_CHANGEABLE = frozenset(
    {CauseCode.QUEUE_NOT_READ, CauseCode.TOPIC_UNREADABLE, CauseCode.BROKER_UNREADABLE}
)
"""Causes that keep a message from every group now, but may not have done so earlier."""

DELIVERY_SLACK_MS = 2_000
"""How late a delayed message may be before it counts as overdue; deliveries take turns."""


@dataclass(frozen=True, slots=True)
class GroupConclusion:
    """One group's causes, the main one first; at least one."""

    facts: GroupFacts
    causes: tuple[StatusCause, ...]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The message's causes, the main one first, at least one; and those of every group."""

    causes: tuple[StatusCause, ...]
    groups: tuple[GroupConclusion, ...] = ()


def conclude(facts: MessageFacts) -> Conclusion:
    """Evaluate all rules on the facts."""
    if facts.message is None:
        return Conclusion((absent(facts),))
    obstacles = tuple(obstacles_to_all(facts, facts.message))
    durability = tuple(_safety(facts))
    causes = [*obstacles]
    if not obstacles:
        alone = facts.groups_known and not facts.groups
        causes = [no_group(facts.message) if alone else stored(facts, facts.message)]
    causes += durability
    groups = tuple(
        GroupConclusion(one, _of_group(facts, facts.message, one, obstacles))
        for one in facts.groups
    )
    return Conclusion(tuple(causes), groups)


def _of_group(
    facts: MessageFacts, message: StoredCopy, group: GroupFacts, obstacles: tuple[StatusCause, ...]
) -> tuple[StatusCause, ...]:
    """Return the group's causes, unless the message cannot have reached any group."""
    own = causes_of_group(facts, message, group)
    if not obstacles:
        return own
    # Numbers of queues and permissions may have changed since the group received it.
    closed_later = obstacles[0].code in _CHANGEABLE
    return (*own, *obstacles) if closed_later and own[0].code in PAST else (*obstacles, *own)


# -- 1: not found ---------------------------------------------------------------------------------


def absent(facts: MessageFacts) -> StatusCause:
    """Return why no message was found; for a queue offset the reason is exact."""
    lookup = facts.lookup
    if lookup.damage:
        return StatusCause(
            CauseCode.BODY_DAMAGED,
            f"The record of {facts.asked} fails its checksum: {lookup.damage}",
            {"damage": lookup.damage},
        )
    if lookup.form is Form.PLACE:
        return _absent_place(facts, lookup)
    if lookup.form is Form.OFFSET_ID and not lookup.host_known:
        return StatusCause(
            CauseCode.BROKER_AWAY,
            f"The ID refers to the broker at {lookup.host}, which is not registered.",
            {"host": lookup.host, "brokers": lookup.brokers},
        )
    if lookup.unreachable:
        return _unreachable(facts, lookup.unreachable)
    where = f"in the topic {lookup.topic}" if lookup.topic else "in the searched topics"
    made_ms = uniq_key_time_ms(facts.asked, facts.as_of_ms)
    made = "" if made_ms is None else f" Its message ID was created {when(made_ms)}."
    return StatusCause(
        CauseCode.NOT_FOUND,
        f"No broker that answered ({_listed(lookup.brokers)}) has {facts.asked!r} {where}.{made}",
        {
            "brokers": lookup.brokers,
            "topic": lookup.topic,
            "topics_searched": lookup.topics_searched,
            "made_ms": made_ms,
        },
    )


def _absent_place(facts: MessageFacts, lookup: Lookup) -> StatusCause:
    assert lookup.place is not None, "a queue offset was given"
    queue, offset = lookup.place
    if queue.broker_name in lookup.unreachable or not lookup.broker_known:
        return _unreachable(facts, (queue.broker_name,))
    if not lookup.topic_known:
        return StatusCause(
            CauseCode.NOT_FOUND,
            f"The broker {queue.broker_name} has no topic {queue.topic}.",
            {"topic": queue.topic, "broker": queue.broker_name},
        )
    low, end = lookup.bounds or (0, 0)
    # A topic that had more queues earlier may still have messages in them.
    if not end and lookup.queues is not None and queue.queue_id >= lookup.queues:
        number = lookup.queues
        which = "queue 0 only" if number == 1 else f"{number} queues, 0 to {number - 1}"
        return StatusCause(
            CauseCode.NOT_FOUND,
            f"Queue {queue!s} not found: the topic {queue.topic} has {which}, at "
            f"{queue.broker_name}.",
            {"topic": queue.topic, "broker": queue.broker_name, "queues": number},
        )
    if offset < low:
        hours = lookup.reserved_hours
        kept = "" if hours is None else f"; messages are kept for {hours} h (fileReservedTime)"
        return StatusCause(
            CauseCode.EXPIRED,
            f"The queue {queue!s} begins at {low}: {offset} was deleted with its log "
            f"segment{kept}.",
            {"offset": offset, "lowest_offset": low, "reserved_hours": hours},
        )
    if offset >= end or not lookup.queue_known:
        return StatusCause(
            CauseCode.NEVER_STORED,
            f"The queue {queue!s} ends at {end}: offset {offset} was never stored.",
            {"offset": offset, "queue_end": end},
        )
    waits = [f"{_listed(lookup.behind)} to copy it"] if lookup.behind else []
    waits += ["the disk"] if lookup.flushed is False else []
    waiting = f": it waits for {' and '.join(waits)}" if waits else ""
    return StatusCause(
        CauseCode.NOT_CONFIRMED,
        f"The message has offset {offset} of {queue!s}; consumers do not see it yet{waiting}.",
        {
            "offset": offset,
            "queue_end": end,
            "behind": lookup.behind,
            "flushed": lookup.flushed,
        },
    )


def _unreachable(facts: MessageFacts, names: tuple[str, ...]) -> StatusCause:
    return StatusCause(
        CauseCode.BROKER_AWAY,
        f"{_listed(names)} cannot be reached; the state of {facts.asked!r} is unknown.",
        {"brokers": names},
    )


# -- 2 to 5: what keeps it from all groups --------------------------------------------------------


def obstacles_to_all(facts: MessageFacts, message: StoredCopy) -> Iterator[StatusCause]:
    """Yield what keeps the message from every group, the first obstacle first."""
    if facts.half is not None and facts.half.state is not HalfState.COMMITTED:
        yield _half(facts)
        return  # it is in no queue, so the following rules cannot apply
    if facts.delay is not None and not facts.delay.delivered:
        yield _delay(facts)
        return
    storage = facts.storage
    if storage is not None and storage.confirmed is False:
        flushed = "flushed" if storage.flushed else "not flushed yet"
        yield StatusCause(
            CauseCode.NOT_CONFIRMED,
            f"Stored at {message!s}, {flushed}, not committed: consumers read up to the committed "
            "position.",
            {"position": storage.position, "flushed": storage.flushed},
        )
    reads = facts.read_queues
    if reads is not None and message.queue.queue_id >= reads:
        yield StatusCause(
            CauseCode.QUEUE_NOT_READ,
            f"It is in queue {message.queue.queue_id}, but only {reads} queues of "
            f"{message.queue.topic} are read at {message.queue.broker_name}: 0 to {reads - 1}.",
            {"queue_id": message.queue.queue_id, "read_queues": reads},
        )
    if facts.broker_readable is False:
        yield StatusCause(
            CauseCode.BROKER_UNREADABLE,
            f"The broker {message.queue.broker_name} is not readable: its brokerPermission lacks "
            "read.",
            {"broker": message.queue.broker_name},
        )
    if facts.readable is False:
        yield StatusCause(
            CauseCode.TOPIC_UNREADABLE,
            f"The permission of the topic {message.queue.topic} lacks read.",
            {"topic": message.queue.topic},
        )


def _half(facts: MessageFacts) -> StatusCause:
    half = facts.half
    assert half is not None, "there is one"
    known: Values = {
        "place": str(half.place),
        "producer_group": half.group,
        "checks": half.checks,
        "producers": half.producers,
    }
    match half.state:
        case HalfState.ROLLED_BACK:
            text = f"The transaction of producer group {half.group} was rolled back."
            return StatusCause(CauseCode.TRANSACTION_ROLLED_BACK, text, known)
        case HalfState.GIVEN_UP:
            text = (
                f"No producer of group {half.group} reported the outcome of its transaction; it "
                "expired."
            )
            return StatusCause(CauseCode.TRANSACTION_GIVEN_UP, text, known)
        case HalfState.UNKNOWN:
            text = f"It is half of a transaction of producer group {half.group}."
            return StatusCause(CauseCode.TRANSACTION_UNKNOWN, text, known)
    asked = f"checked {count(half.checks, 'time')}" if half.checks else "not checked yet"
    there = {None: "", 0: "; no producer of that group is connected"}.get(half.producers, "")
    text = (
        f"Its transaction has been open since {when(half.place.born_ms)} (producer group "
        f"{half.group}; "
        f"{asked}{there})."
    )
    return StatusCause(CauseCode.TRANSACTION_OPEN, text, known)


def _delay(facts: MessageFacts) -> StatusCause:
    delay = facts.delay
    assert delay is not None, "there is one"
    known: Values = {"level": delay.level, "due_ms": delay.due_ms, "place": str(delay.place)}
    if delay.due_ms is None:
        text = f"It waits at delay level {delay.level}."
        return StatusCause(CauseCode.DELAYED, text, known)
    left_ms = delay.due_ms - facts.as_of_ms
    if left_ms >= -DELIVERY_SLACK_MS:
        text = (
            f"It waits at delay level {delay.level} until {when(delay.due_ms)}, "
            f"{duration(max(left_ms, 0))} from now."
        )
        return StatusCause(CauseCode.DELAYED, text, known)
    text = f"It was due {duration(-left_ms)} ago, at {when(delay.due_ms)}, and is not delivered."
    return StatusCause(CauseCode.DELAY_OVERDUE, text, known)


# -- 6 and 7 --------------------------------------------------------------------------------------


def no_group(message: StoredCopy) -> StatusCause:
    """Return the cause for a topic that no group consumes."""
    return StatusCause(
        CauseCode.NOBODY_CONSUMES,
        f"No group subscribes to {message.queue.topic} at {message.queue.broker_name} or has "
        "offsets in it.",
        {"topic": message.queue.topic},
    )


def stored(facts: MessageFacts, message: StoredCopy) -> StatusCause:
    """Return the cause for a stored message that is available to consumers."""
    storage = facts.storage
    safe = [f"on {when(message.stored_ms)}"]
    if storage is not None:
        safe += ["flushed to disk"] if storage.flushed else []
        safe += ["committed"] if storage.confirmed else []
        copies = [one for one in storage.copies if not one.leads]
        have = sum(one.written is True for one in copies)
        safe += [f"replicated to {have} of {len(copies)} followers"] if copies else []
    return StatusCause(
        CauseCode.STORED,
        f"Stored at {message!s} {'; '.join(safe)}.",
        {"place": str(message), "position": message.position},
    )


def _safety(facts: MessageFacts) -> Iterator[StatusCause]:
    storage = facts.storage
    if storage is None:
        return
    lacking = [one for one in storage.copies if not one.leads and one.written is False]
    if lacking:
        named = tuple(f"brokerId {one.broker_id}" for one in lacking)
        yield StatusCause(
            CauseCode.COPIES_MISSING,
            f"{_listed(named)} has not replicated it yet.",
            {"followers": named, "lag_bytes": max(one.lag_bytes or 0 for one in lacking)},
        )
    if not storage.by_leader:
        answered = next((one for one in storage.copies if one.written is not None), None)
        lag_ms = None if answered is None else answered.lag_ms
        yield StatusCause(
            CauseCode.ANSWERED_BY_FOLLOWER,
            "No leader responds; this is from a follower and may be out of date.",
            {"lag_ms": lag_ms, "broker_id": None if answered is None else answered.broker_id},
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
