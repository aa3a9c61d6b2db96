"""Lookup of the message that a text identifies, and of all its stored copies.

topic/broker/queue@offset     a queue offset: if nothing is stored there, the reason is known
32 or 56 hexadecimal digits   an offset message ID, if it contains a registered broker's host
anything else                 a key, looked up in the given topic, or in all topics
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kourou.client.consumer.received import ReceivedMessage, from_record, from_records
from kourou.client.explain.facts import (
    CopyKind,
    Delay,
    Form,
    Half,
    HalfState,
    Lookup,
    ReplicaCopy,
    Storage,
    StoredCopy,
)
from kourou.client.explain.queries import Queries, Responder
from kourou.client.session.connections import body_of
from kourou.client.session.discovery import store_host_of
from kourou.errors import BadRequest, Code, Corrupt, KourouError, Rejected
from kourou.model.limits import EXPLAIN_ASKED_LENGTH_MAX, EXPLAIN_OP_RECORDS_MAX, EXPLAIN_TOPICS_MAX
from kourou.model.message import Property, delay_of
from kourou.model.names import (
    CHECK_GIVEN_UP_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    READER_GROUP,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TRACE_TOPIC,
    TRANSACTION_GROUP,
    dlq_topic,
    is_system_topic,
    retry_topic,
)
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import MASTER_ID, MessageQueue
from kourou.model.transaction import ended_by
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou.protocol.bodies.lists_body import decode_producer_connection
from kourou.protocol.bodies.status_bodies import decode_queue_look
from kourou.protocol.messages.groups import GetProducerConnectionList
from kourou.protocol.messages.pulls import (
    PullFlag,
    PullMessage,
    PullResponse,
    QueryConsumeQueue,
    ViewMessageById,
)
from kourou.protocol.record.layout import Host
from kourou.protocol.record.message_id import decode_offset_id

BEFORE_ITS_TOPIC = (SCHEDULE_TOPIC, HALF_TOPIC, CHECK_GIVEN_UP_TOPIC)
"""Topics that may contain a message before, or instead of, the topic that it was sent to."""


PULL_COUNT = 256
PULL_BYTES = 1 << 20

_END = frozenset({int(Code.PULL_NOT_FOUND), int(Code.PULL_RETRY_IMMEDIATELY)})
_PLACE = re.compile(r"([%|a-zA-Z0-9_-]+)/([^/@\s]+)/([0-9]{1,9})@([0-9]{1,18})")
_PULLED = frozenset(int(code) for code in Code if code.name.startswith(("PULL_", "MESSAGE_COR")))


@dataclass(frozen=True, slots=True)
class Found:
    """How the message was looked up, and the `messages` found, one per message ID, newest first."""

    lookup: Lookup
    messages: tuple[ReceivedMessage, ...] = ()


async def find(queries: Queries, asked: str, topic: str | None) -> Found:
    """Look up the message. Raises BadRequest if the text cannot identify a message."""
    if not asked or len(asked) > EXPLAIN_ASKED_LENGTH_MAX or not asked.isprintable():
        raise BadRequest(
            f"{asked[:80]!r} is not a message reference",
            hint="use an ID, topic/broker/queue@offset, or a key",
        )
    place = _PLACE.fullmatch(asked)
    if place is not None:
        queue = MessageQueue(place[1], place[2], int(place[3]))
        return await _at(queries, queue, int(place[4]))
    try:
        host, position = decode_offset_id(asked)
    except BadRequest:
        host = None
    if host is not None and 0 < host[1] < 65_536:
        found = await _by_offset_id(queries, host, position)
        if found.messages or found.lookup.damage:
            return found
        by_key = await _by_key(queries, asked, topic)
        return by_key if by_key.messages else found
    return await _by_key(queries, asked, topic)


# -- a queue offset -------------------------------------------------------------------------------


async def _at(queries: Queries, queue: MessageQueue, offset: int) -> Found:
    lookup = Lookup(
        Form.PLACE,
        tuple(queries.responders),
        tuple(queries.unreachable),
        topic=queue.topic,
        place=(queue, offset),
    )
    responder = queries.responders.get(queue.broker_name)
    if responder is None:
        return Found(replace(lookup, broker_known=queue.broker_name in queries.unreachable))
    if queue.topic not in responder.topics:
        return Found(replace(lookup, topic_known=False))
    config = responder.topics[queue.topic]
    lookup = replace(lookup, queues=max(config.read_queue_nums, config.write_queue_nums))
    request = QueryConsumeQueue(topic=queue.topic, queue_id=queue.queue_id, index=offset, count=1)
    try:
        look = decode_queue_look(body_of(await queries.reply(responder.address, request)))
    except KourouError as error:
        if error.wire_code != Code.SYSTEM_ERROR:
            queries.add_missing(f"{queue!s}", error)
        return Found(replace(lookup, queue_known=False))
    lookup = replace(lookup, bounds=(look.min_index, look.max_index))
    if not look.min_index <= offset < look.max_index:
        return Found(lookup)
    for unit in look.units:
        message = await _record(queries, responder, unit.physic_offset)
        if message is not None and (message.queue, message.offset) == (queue, offset):
            return Found(lookup, (message,))
    damage = await _damage(queries, responder, queue, offset)
    return Found(replace(lookup, damage=damage) if damage else _unconfirmed(lookup, responder))


def _unconfirmed(lookup: Lookup, responder: Responder) -> Lookup:
    """Add what the commit waits for: the disk, or followers."""
    view = next((one.view for one in responder.members if one.address == responder.address), None)
    if view is None:
        return lookup
    behind = tuple(f"brokerId {one.broker_id}" for one in view.followers if one.lag_bytes)
    return replace(lookup, behind=behind, flushed=view.flushed >= view.end)


async def _record(queries: Queries, responder: Responder, position: int) -> ReceivedMessage | None:
    reply = await queries.ask(
        f"the record at {position} of {responder.broker}",
        responder,
        ViewMessageById(offset=position),
    )
    return None if reply is None else from_record(body_of(reply), responder.broker)


async def _damage(queries: Queries, responder: Responder, queue: MessageQueue, offset: int) -> str:
    """Return the error that a pull at this offset gets; empty if the message is not committed yet.

    The offset is inside the queue, so the pull changes no state.
    """
    request = PullMessage(
        consumer_group=READER_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=int(PullFlag.SUBSCRIPTION),
        subscription=MATCH_ALL,
        max_msg_bytes=1,
    )
    reply = await queries.ask(f"a pull at {queue!s}@{offset}", responder, request, also=_PULLED)
    if reply is None or reply.code == Code.PULL_NOT_FOUND:
        return ""
    return reply.remark or "it was left out of what a reader is given"


# -- an offset message ID -------------------------------------------------------------------------


async def _by_offset_id(queries: Queries, host: Host, position: int) -> Found:
    """Look up an offset message ID.

    Every replica of a log has the record at the same position, with its leader's host in it.
    """
    known = [
        responder
        for responder in queries.responders.values()
        if host in [store_host_of(one.address) for one in responder.members]
    ]
    lookup = Lookup(
        Form.OFFSET_ID,
        tuple(queries.responders),
        host=f"{host[0]}:{host[1]}",
        host_known=bool(known),
    )
    # The ID contains the broker's own address, which may differ from its registered addresses.
    for responder in known or queries.responders.values():
        try:
            reply = await queries.reply(responder.address, ViewMessageById(offset=position))
            message = from_record(body_of(reply), responder.broker)
        except Corrupt as error:
            if known:
                return Found(replace(lookup, damage=str(error)))
            continue
        except KourouError as error:
            if error.wire_code != Code.SYSTEM_ERROR:  # which means: no record there
                queries.add_missing(f"the record at {position} of {responder.broker}", error)
            continue
        if message.position == position and message.stored().store_host == host:
            return Found(lookup, (message,))
    return Found(lookup)


# -- a key ----------------------------------------------------------------------------------------


async def _by_key(queries: Queries, key: str, topic: str | None) -> Found:
    topics = _searched(queries) if topic is None else [topic]
    cut = topics[:EXPLAIN_TOPICS_MAX]
    if len(cut) < len(topics):
        queries.add_missing(
            f"{len(topics) - len(cut)} topics",
            f"without a topic, at most {EXPLAIN_TOPICS_MAX} topics are searched",
        )
    found = await queries.everywhere([*cut, *BEFORE_ITS_TOPIC], key)
    if topic is not None:
        if not found:  # perhaps only a retry or a dead letter is left
            found = await queries.everywhere(_of_groups(queries)[:EXPLAIN_TOPICS_MAX], key)
        found = [one for one in found if home_of(place_of(one)) == topic or one.topic == topic]
    lookup = Lookup(
        Form.KEY,
        tuple(queries.responders),
        tuple(queries.unreachable),
        topic=topic,
        topics_searched=len(cut),
    )
    exact = [one for one in found if one.message_id == key]
    found = sorted(exact or found, key=lambda one: one.store_timestamp, reverse=True)
    return Found(lookup, tuple({one.message_id: one for one in reversed(found)}.values())[::-1])


def _searched(queries: Queries) -> list[str]:
    """Return the topics to search: those of applications, then retry and dead-letter topics."""
    own = set(queries.responders)  # every broker's own topic, which is not used for messages
    applications = [
        name
        for name in _names(queries)
        if not (is_system_topic(name) or name == TRACE_TOPIC or name in own)
        and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    ]
    return [*applications, *_of_groups(queries)]


def _of_groups(queries: Queries) -> list[str]:
    return [name for name in _names(queries) if name.startswith((RETRY_PREFIX, DLQ_PREFIX))]


def _names(queries: Queries) -> list[str]:
    return sorted({name for responder in queries.responders.values() for name in responder.topics})


# -- copies: sent, delayed, half, retried, dead ----------------------------------------------------


def place_of(message: ReceivedMessage) -> StoredCopy:
    """Return a stored record as a copy of its message."""
    kind, group = _kind_of(message)
    return StoredCopy(
        kind=kind,
        queue=message.queue,
        offset=message.offset,
        position=message.position,
        size_bytes=message.size,
        stored_ms=message.store_timestamp,
        born_ms=message.born_timestamp,
        attempts=message.reconsume_times,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        properties=message.properties,
        group=group,
    )


def _kind_of(message: ReceivedMessage) -> tuple[CopyKind, str | None]:
    topic = message.queue.topic
    real = message.properties.get(Property.REAL_TOPIC, "")
    if topic == SCHEDULE_TOPIC:
        if real.startswith(RETRY_PREFIX):
            return CopyKind.RETRY_WAIT, real.removeprefix(RETRY_PREFIX)
        return CopyKind.DELAYED, None
    if topic in (HALF_TOPIC, CHECK_GIVEN_UP_TOPIC):
        return (CopyKind.HALF if topic == HALF_TOPIC else CopyKind.GIVEN_UP), None
    if topic.startswith(RETRY_PREFIX):
        return CopyKind.RETRY, topic.removeprefix(RETRY_PREFIX)
    if topic.startswith(DLQ_PREFIX):
        return CopyKind.DEAD_LETTER, topic.removeprefix(DLQ_PREFIX)
    return CopyKind.SENT, None


async def copies_of(
    queries: Queries, message: ReceivedMessage, home: str, groups: Iterable[str]
) -> tuple[StoredCopy, ...]:
    """Return every copy of the message that brokers have, including this one, oldest first."""
    topics = [home, SCHEDULE_TOPIC, HALF_TOPIC, CHECK_GIVEN_UP_TOPIC]
    for group in groups:
        topics += [retry_topic(group), dlq_topic(group)]
    found: list[ReceivedMessage] = [message]
    if Property.UNIQ_KEY in message.properties:
        others = await queries.everywhere(dict.fromkeys(topics), message.message_id)
        found += [one for one in others if one.message_id == message.message_id]
    places = {
        (place.queue.broker_name, place.position): place
        for place in map(place_of, found)
        if home_of(place) == home
    }
    return tuple(sorted(places.values(), key=lambda one: (one.stored_ms, one.position)))


def home_of(place: StoredCopy) -> str:
    """Return the topic that a copy was originally sent to."""
    topic, known = place.queue.topic, place.properties
    if place.kind in (CopyKind.DELAYED, CopyKind.RETRY_WAIT, CopyKind.HALF, CopyKind.GIVEN_UP):
        topic = known.get(Property.REAL_TOPIC, topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return known.get(Property.RETRY_TOPIC) or known.get(Property.DLQ_ORIGIN_TOPIC) or topic
    return topic


def main_of(asked: StoredCopy, places: Sequence[StoredCopy], *, exact: bool) -> StoredCopy:
    """Return the copy that groups consume; if there is none, the last one before that stage.

    `exact` is true if the user gave the position or ID of exactly this copy.
    """
    if exact and asked.kind is CopyKind.SENT:
        return asked
    for kind in (CopyKind.SENT, CopyKind.GIVEN_UP, CopyKind.HALF, CopyKind.DELAYED):
        found = [one for one in places if one.kind is kind]
        if found:
            return found[0] if kind is CopyKind.SENT else found[-1]
    return asked


# -- replicas -------------------------------------------------------------------------------------


def storage_of(place: StoredCopy, responder: Responder) -> Storage:
    """Return which replicas have the message, and how durably, from the replicas' replies."""
    spoke = next((one for one in responder.members if one.address == responder.address), None)
    view = None if spoke is None else spoke.view
    if view is None:
        return Storage(place.position, place.end, None, None, (), responder.leads)
    seen = {one.broker_id: one for one in view.followers} if view.leads else {}
    copies: list[ReplicaCopy] = []
    for member in responder.members:
        number = member.registered_id if member.view is None else member.view.broker_id
        follower = seen.pop(number, None)
        if member.view is not None:
            copies.append(_own_copy(place, member.address, member.view, view.in_sync, follower))
        elif follower is not None:
            copies.append(_seen_copy(place, follower, str(member.error)))
        else:
            copies.append(
                ReplicaCopy(number, member.address, number == MASTER_ID, why=str(member.error))
            )
    copies += [_seen_copy(place, one, "") for one in seen.values()]
    return Storage(
        place.position,
        place.end,
        view.flushed >= place.end,
        view.confirmed >= place.end,
        tuple(sorted(copies, key=lambda one: (not one.leads, one.broker_id))),
        responder.leads,
    )


def _own_copy(
    place: StoredCopy,
    address: str,
    view: ReplicasView,
    in_sync: Sequence[int],
    follower: FollowerView | None,
) -> ReplicaCopy:
    """Return a replica's own report, with the lag as its leader knows it, if the leader does."""
    return ReplicaCopy(
        view.broker_id,
        address,
        view.leads,
        view.state,
        view.end >= place.end,
        view.flushed >= place.end,
        None if view.leads or not in_sync else view.broker_id in in_sync,
        view.lag_bytes if follower is None else follower.lag_bytes,
        view.lag_ms if follower is None else follower.lag_ms,
    )


def _seen_copy(place: StoredCopy, follower: FollowerView, why: str) -> ReplicaCopy:
    """Return the leader's report on a replica that did not reply itself."""
    return ReplicaCopy(
        follower.broker_id,
        follower.address,
        False,
        follower.state,
        follower.written >= place.end,
        follower.flushed >= place.end,
        follower.in_sync,
        follower.lag_bytes,
        follower.lag_ms,
        why,
    )


# -- delay ----------------------------------------------------------------------------------------


def delay_of_message(places: Sequence[StoredCopy], levels_ms: Sequence[int]) -> Delay | None:
    """Return the delay of the message's newest delayed copy."""
    waiting = [one for one in places if one.kind is CopyKind.DELAYED]
    if not waiting:
        return None
    last = waiting[-1]
    text = last.properties.get(Property.DELAY, "")
    level = int(text) if text.isdecimal() and len(text) < 10 else last.queue.queue_id + 1
    due_ms = last.stored_ms + delay_of(level, levels_ms) if levels_ms and level else None
    delivered = any(one.kind is CopyKind.SENT and one.stored_ms >= last.stored_ms for one in places)
    return Delay(level, due_ms, last, delivered)


# -- transaction ----------------------------------------------------------------------------------


async def half_of_message(queries: Queries, places: Sequence[StoredCopy]) -> Half | None:
    """Return the state of the transaction that the half message belongs to."""
    halves = [one for one in places if one.kind is CopyKind.HALF]
    given_up = [one for one in places if one.kind is CopyKind.GIVEN_UP]
    if not halves and not given_up:
        return None
    last = max(halves or given_up, key=lambda one: (one.stored_ms, one.offset))
    group = last.properties.get(Property.PGROUP, "")
    checks = _number(last.properties.get(Property.TRANSACTION_CHECK_TIMES))
    if any(one.kind is CopyKind.SENT and one.stored_ms >= last.stored_ms for one in places):
        return Half(HalfState.COMMITTED, group, checks, last)
    if given_up:
        return Half(HalfState.GIVEN_UP, group, checks, last)
    responder = queries.responders.get(last.queue.broker_name)
    if responder is None:
        return Half(HalfState.UNKNOWN, group, checks, last)
    state = await _state_of(queries, responder, last)
    producers = await _producers(queries, responder, group) if state is HalfState.OPEN else None
    return Half(state, group, checks, last, producers)


async def _state_of(queries: Queries, responder: Responder, half: StoredCopy) -> HalfState:
    """Return whether the half message is open or rolled back.

    Below the committed offset of its queue all half messages are resolved. Above it, op messages
    resolve them; only op messages that the broker has not processed yet are relevant.
    """
    if Property.BATCH in half.properties:
        queries.add_missing("its transaction", "it is part of a batch that is committed as a whole")
        return HalfState.UNKNOWN
    done = await queries.committed(responder, TRANSACTION_GROUP, HALF_TOPIC, half.queue.queue_id)
    if done is not None and done > half.offset:
        return HalfState.ROLLED_BACK
    at = await queries.committed(responder, TRANSACTION_GROUP, OP_TOPIC, 0) or 0
    if OP_TOPIC not in responder.topics:
        return HalfState.OPEN  # no half message was ever resolved here
    first = at
    while at - first < EXPLAIN_OP_RECORDS_MAX:
        request = PullMessage(
            consumer_group=READER_GROUP,
            topic=OP_TOPIC,
            queue_id=0,
            queue_offset=at,
            max_msg_nums=PULL_COUNT,
            sys_flag=int(PullFlag.SUBSCRIPTION),
            subscription=MATCH_ALL,
            max_msg_bytes=PULL_BYTES,
        )
        reply = await queries.ask("ends of transactions", responder, request, also=_END)
        if reply is None or not isinstance(reply.header, PullResponse):
            return HalfState.UNKNOWN
        if reply.code == Code.PULL_NOT_FOUND:
            return HalfState.OPEN
        try:
            ends = from_records(body_of(reply), responder.broker) if reply.body else []
        except Corrupt as error:
            queries.add_missing("ends of transactions", error)
            return HalfState.UNKNOWN
        if any(half.offset in ended_by(one.raw_body) for one in ends):
            return HalfState.ROLLED_BACK
        if reply.header.next_begin_offset <= at:
            return HalfState.OPEN
        at = reply.header.next_begin_offset
    queries.add_missing(
        "its transaction", f"over {EXPLAIN_OP_RECORDS_MAX} others ended since it began"
    )
    return HalfState.UNKNOWN


async def _producers(queries: Queries, responder: Responder, group: str) -> int | None:
    request = GetProducerConnectionList(producer_group=group)
    try:
        reply = await queries.reply(responder.address, request)
    except Rejected:
        return 0  # the broker's reply if no producer of the group is connected
    except KourouError as error:
        queries.add_missing(f"producers of {group}", error)
        return None
    return len(decode_producer_connection(body_of(reply)).connections)


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else 0
