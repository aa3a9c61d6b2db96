"""The explanation of a message's status as an API value: returned over HTTP and by `--json`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kourou.client.explain.causes import Cause, Fact
from kourou.client.explain.facts import Facts, GroupFacts, Member, Place, Storage
from kourou.client.explain.verdict import GroupVerdict, Verdict
from kourou.model.message import Property

PAGE = "why.md"


class ExplainedCause(msgspec.Struct, frozen=True):
    """One reason. `severity`: ok, waiting, blocked or gone; `docs` links its documentation."""

    code: str
    title: str
    severity: str
    sentence: str
    advice: str
    facts: Mapping[str, Fact]
    docs: str


class ExplainedMessage(msgspec.Struct, frozen=True):
    """The copy that groups consume, or the last one on its way there."""

    message_id: str
    offset_message_id: str
    topic: str
    broker: str
    queue_id: int
    offset: int
    position: int
    size_bytes: int
    tag: str | None
    keys: list[str]
    born_ms: int
    stored_ms: int
    attempts: int


class ExplainedCopy(msgspec.Struct, frozen=True):
    """One replica of the log; null is unknown, for the reason in `why`."""

    broker_id: int
    address: str
    role: str
    state: str
    written: bool | None
    flushed: bool | None
    in_sync: bool | None
    lag_bytes: int | None
    lag_ms: int | None
    why: str


class ExplainedStorage(msgspec.Struct, frozen=True):
    """The log position, flushed and replicated. `by_leader` false: a follower reported it."""

    position: int
    position_end: int
    flushed: bool | None
    confirmed: bool | None
    by_leader: bool
    copies: list[ExplainedCopy]


class ExplainedPlace(msgspec.Struct, frozen=True):
    """One stored copy. Kinds: sent, delayed, half, given_up, retry_wait, retry, dead_letter."""

    kind: str
    topic: str
    broker: str
    queue_id: int
    offset: int
    position: int
    stored_ms: int
    attempts: int
    group: str | None
    offset_message_id: str


class ExplainedDelivery(msgspec.Struct, frozen=True):
    """One call of a handler, by the message trace."""

    at_ms: int
    attempt: int
    ended_ms: int | None
    ok: bool | None
    how: str | None


class ExplainedMember(msgspec.Struct, frozen=True):
    """One consumer of a group; if it did not reply, only `why` is known."""

    client_id: str
    subscription: str | None
    expression_type: str | None
    holds_queue: bool | None
    commit_offset: int | None
    cached: int | None
    first_cached: int | None
    locked: bool | None
    why: str


class ExplainedGroup(msgspec.Struct, frozen=True):
    """One group: its causes, the main one first, and the facts that they are derived from."""

    group: str
    causes: list[ExplainedCause]
    online: bool | None
    next_offset: int | None
    queue_end: int | None
    deliveries: list[ExplainedDelivery]
    members: list[ExplainedMember]


class ExplainedMissing(msgspec.Struct, frozen=True):
    """Missing information, and why it is missing."""

    what: str
    why: str


class Explanation(msgspec.Struct, frozen=True):
    """The status of a message, with reasons.

    `causes` are those of the message itself, the main reason first; each group has its own.
    `message` is null if none was found. `others` are further messages with the given key; the
    newest is explained. `truncated`: there are more groups. Times are ms since the epoch.
    """

    asked: str
    as_of_ms: int
    message: ExplainedMessage | None
    others: int
    storage: ExplainedStorage | None
    places: list[ExplainedPlace]
    causes: list[ExplainedCause]
    groups: list[ExplainedGroup]
    truncated: bool
    missing: list[ExplainedMissing]


def told(facts: Facts, found: Verdict) -> Explanation:
    """Return facts and verdict as an API value."""
    return Explanation(
        asked=facts.asked,
        as_of_ms=facts.as_of_ms,
        message=None if facts.message is None else _message(facts.message),
        others=facts.others,
        storage=None if facts.storage is None else _storage(facts.storage),
        places=[_place(one) for one in facts.places],
        causes=[_cause(one) for one in found.causes],
        groups=[_group(one) for one in found.groups],
        truncated=facts.groups_cut,
        missing=[ExplainedMissing(one.what, one.why) for one in facts.missing],
    )


def _cause(cause: Cause) -> ExplainedCause:
    meaning = cause.meaning
    return ExplainedCause(
        cause.code.value,
        meaning.title,
        meaning.severity.value,
        cause.sentence,
        meaning.advice,
        dict(cause.facts),
        f"{PAGE}#{cause.code.value}",
    )


def _message(place: Place) -> ExplainedMessage:
    return ExplainedMessage(
        message_id=place.message_id,
        offset_message_id=place.offset_message_id,
        topic=place.queue.topic,
        broker=place.queue.broker_name,
        queue_id=place.queue.queue_id,
        offset=place.offset,
        position=place.position,
        size_bytes=place.size_bytes,
        tag=place.properties.get(Property.TAGS),
        keys=place.properties.get(Property.KEYS, "").split(),
        born_ms=place.born_ms,
        stored_ms=place.stored_ms,
        attempts=place.attempts,
    )


def _storage(storage: Storage) -> ExplainedStorage:
    return ExplainedStorage(
        storage.position,
        storage.end,
        storage.flushed,
        storage.confirmed,
        storage.by_leader,
        [
            ExplainedCopy(
                one.broker_id,
                one.address,
                "leader" if one.leads else "follower",
                one.state,
                one.written,
                one.flushed,
                one.in_sync,
                one.lag_bytes,
                one.lag_ms,
                one.why,
            )
            for one in storage.copies
        ],
    )


def _place(place: Place) -> ExplainedPlace:
    return ExplainedPlace(
        place.kind.value,
        place.queue.topic,
        place.queue.broker_name,
        place.queue.queue_id,
        place.offset,
        place.position,
        place.stored_ms,
        place.attempts,
        place.group,
        place.offset_message_id,
    )


def _group(one: GroupVerdict) -> ExplainedGroup:
    facts: GroupFacts = one.facts
    return ExplainedGroup(
        facts.name,
        [_cause(cause) for cause in one.causes],
        facts.online,
        facts.next_offset,
        facts.queue_end,
        [
            ExplainedDelivery(each.at_ms, each.attempt, each.ended_ms, each.ok, each.how)
            for each in facts.deliveries
        ],
        [_member(each) for each in facts.members],
    )


def _member(one: Member) -> ExplainedMember:
    queue = one.queue
    return ExplainedMember(
        one.client_id,
        None if one.subscription is None else one.subscription.expression,
        None if one.subscription is None else one.subscription.kind,
        None if one.silent else queue is not None,
        None if queue is None else queue.commit_offset,
        None if queue is None else queue.cached,
        None if queue is None else queue.first,
        None if queue is None else queue.locked,
        one.silent,
    )
