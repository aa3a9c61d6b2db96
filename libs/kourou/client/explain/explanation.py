"""The explanation of a message's status: an API value (HTTP, `--json`), and text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap

import msgspec

from kourou.client.explain.causes import Fact, StatusCause, when
from kourou.client.explain.facts import ConsumerFacts, GroupFacts, MessageFacts, Storage, StoredCopy
from kourou.client.explain.rules import Conclusion, GroupConclusion
from kourou.model.message import Property

PAGE = "why.md"
WIDTH = 100
_YES = {True: "yes", False: "no", None: "unknown"}


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


def explanation_of(facts: MessageFacts, found: Conclusion) -> Explanation:
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


def _cause(cause: StatusCause) -> ExplainedCause:
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


def _message(place: StoredCopy) -> ExplainedMessage:
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


def _place(place: StoredCopy) -> ExplainedPlace:
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


def _group(one: GroupConclusion) -> ExplainedGroup:
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


def _member(one: ConsumerFacts) -> ExplainedMember:
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


# -- lines for a terminal --------------------------------------------------------------------------


def lines_of(explanation: Explanation) -> Iterator[str]:
    """Return all lines of an explanation."""
    found = explanation.message
    if found is not None:
        place = f"{found.topic}/{found.broker}/{found.queue_id}@{found.offset}"
        yield f"{found.message_id}  {place}"
        if explanation.others:
            count = explanation.others + 1
            yield f"the newest of {count} messages with the key {explanation.asked}"
    yield from _cause_lines(explanation.causes, "")
    for group in explanation.groups:
        yield ""
        yield from _group_lines(group)
    if explanation.truncated:
        yield ""
        yield "More groups exist: select one with --group."
    if explanation.storage is not None or explanation.places:
        yield ""
        yield from _storage_lines(explanation)
    if explanation.missing:
        yield ""
        yield "Missing information:"
        for one in explanation.missing:
            yield from _wrapped(f"{one.what}: {one.why}", "  ")


def _group_lines(group: ExplainedGroup) -> Iterator[str]:
    yield f"group {group.group}"
    yield from _cause_lines(group.causes, "  ")
    for each in group.deliveries:
        ended = "not finished" if each.ended_ms is None else f"{each.how}, {when(each.ended_ms)}"
        yield f"    attempt {each.attempt}: given {when(each.at_ms)}, {ended}"


def _cause_lines(causes: list[ExplainedCause], indent: str) -> Iterator[str]:
    for number, cause in enumerate(causes):
        yield from _wrapped(f"{cause.code}: {cause.sentence}", indent)
        if number == 0 and cause.severity != "ok":
            yield from _wrapped(f"-> {cause.advice}", indent + "  ")


def _storage_lines(explanation: Explanation) -> Iterator[str]:
    storage = explanation.storage
    if storage is not None:
        flushed, confirmed = _YES[storage.flushed], _YES[storage.confirmed]
        yield f"position {storage.position}: flushed {flushed}, committed {confirmed}"
        for copy in storage.copies:
            yield f"  {_copy_line(copy)}"
    for place in explanation.places:
        where = f"{place.topic}/{place.broker}/{place.queue_id}@{place.offset}"
        yield f"{place.kind}: {where}, {when(place.stored_ms)}"


def _copy_line(copy: ExplainedCopy) -> str:
    text = f"{copy.role} {copy.broker_id} at {copy.address}: "
    if copy.written is None:
        return text + f"unknown ({copy.why})"
    return text + f"stored {_YES[copy.written]}, flushed {_YES[copy.flushed]}"


def _wrapped(text: str, indent: str) -> Iterator[str]:
    yield from wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
