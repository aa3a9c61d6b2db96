"""All stored copies of one message: sent, delayed, half, retried, dead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kourou.client.consumer.received import ReceivedMessage, from_records
from kourou.client.explain.asking import READER_GROUP, Asking, Voice
from kourou.client.explain.facts import Copy, Delay, Half, HalfState, Kind, Place, Storage
from kourou.client.session.connections import body_of
from kourou.errors import Code, Corrupt, KourouError, Rejected
from kourou.model.limits import EXPLAIN_OP_RECORDS_MAX
from kourou.model.message import Property, delay_of
from kourou.model.names import (
    CHECK_GIVEN_UP_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    dlq_topic,
    retry_topic,
)
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import MASTER_ID
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou.protocol.bodies.lists_body import decode_producer_connection
from kourou.protocol.messages.groups import GetProducerConnectionList
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose committed offsets tell how far the transaction queues are processed."""

PULL_COUNT = 256
PULL_BYTES = 1 << 20
_END = frozenset({int(Code.PULL_NOT_FOUND), int(Code.PULL_RETRY_IMMEDIATELY)})


def place_of(message: ReceivedMessage) -> Place:
    """Return a stored record as a copy of its message."""
    kind, group = _kind_of(message)
    return Place(
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


def _kind_of(message: ReceivedMessage) -> tuple[Kind, str | None]:
    topic = message.queue.topic
    real = message.properties.get(Property.REAL_TOPIC, "")
    if topic == SCHEDULE_TOPIC:
        if real.startswith(RETRY_PREFIX):
            return Kind.RETRY_WAIT, real.removeprefix(RETRY_PREFIX)
        return Kind.DELAYED, None
    if topic in (HALF_TOPIC, CHECK_GIVEN_UP_TOPIC):
        return (Kind.HALF if topic == HALF_TOPIC else Kind.GIVEN_UP), None
    if topic.startswith(RETRY_PREFIX):
        return Kind.RETRY, topic.removeprefix(RETRY_PREFIX)
    if topic.startswith(DLQ_PREFIX):
        return Kind.DEAD_LETTER, topic.removeprefix(DLQ_PREFIX)
    return Kind.SENT, None


async def copies_of(
    asking: Asking, message: ReceivedMessage, home: str, groups: Iterable[str]
) -> tuple[Place, ...]:
    """Return every copy of the message that brokers have, including this one, oldest first."""
    topics = [home, SCHEDULE_TOPIC, HALF_TOPIC, CHECK_GIVEN_UP_TOPIC]
    for group in groups:
        topics += [retry_topic(group), dlq_topic(group)]
    found: list[ReceivedMessage] = [message]
    if Property.UNIQ_KEY in message.properties:
        others = await asking.everywhere(dict.fromkeys(topics), message.message_id)
        found += [one for one in others if one.message_id == message.message_id]
    places = {
        (place.queue.broker_name, place.position): place
        for place in map(place_of, found)
        if home_of(place) == home
    }
    return tuple(sorted(places.values(), key=lambda one: (one.stored_ms, one.position)))


def home_of(place: Place) -> str:
    """Return the topic that a copy was originally sent to."""
    topic, known = place.queue.topic, place.properties
    if place.kind in (Kind.DELAYED, Kind.RETRY_WAIT, Kind.HALF, Kind.GIVEN_UP):
        topic = known.get(Property.REAL_TOPIC, topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return known.get(Property.RETRY_TOPIC) or known.get(Property.DLQ_ORIGIN_TOPIC) or topic
    return topic


def main_of(asked: Place, places: Sequence[Place], *, exact: bool) -> Place:
    """Return the copy that groups consume; if there is none, the last one before that stage.

    `exact` is true if the user gave the position or ID of exactly this copy.
    """
    if exact and asked.kind is Kind.SENT:
        return asked
    for kind in (Kind.SENT, Kind.GIVEN_UP, Kind.HALF, Kind.DELAYED):
        found = [one for one in places if one.kind is kind]
        if found:
            return found[0] if kind is Kind.SENT else found[-1]
    return asked


# -- replicas -------------------------------------------------------------------------------------


def storage_of(place: Place, voice: Voice) -> Storage:
    """Return which replicas have the message, and how durably, from the replicas' replies."""
    spoke = next((one for one in voice.members if one.address == voice.address), None)
    told = None if spoke is None else spoke.told
    if told is None:
        return Storage(place.position, place.end, None, None, (), voice.leads)
    seen = {one.broker_id: one for one in told.followers} if told.leads else {}
    copies: list[Copy] = []
    for member in voice.members:
        number = member.registered_id if member.told is None else member.told.broker_id
        follower = seen.pop(number, None)
        if member.told is not None:
            copies.append(_own_copy(place, member.address, member.told, told.in_sync, follower))
        elif follower is not None:
            copies.append(_seen_copy(place, follower, str(member.error)))
        else:
            copies.append(Copy(number, member.address, number == MASTER_ID, why=str(member.error)))
    copies += [_seen_copy(place, one, "") for one in seen.values()]
    return Storage(
        place.position,
        place.end,
        told.flushed >= place.end,
        told.confirmed >= place.end,
        tuple(sorted(copies, key=lambda one: (not one.leads, one.broker_id))),
        voice.leads,
    )


def _own_copy(
    place: Place,
    address: str,
    told: ReplicasView,
    in_sync: Sequence[int],
    follower: FollowerView | None,
) -> Copy:
    """Return a replica's own report, with the lag as its leader knows it, if the leader does."""
    return Copy(
        told.broker_id,
        address,
        told.leads,
        told.state,
        told.end >= place.end,
        told.flushed >= place.end,
        None if told.leads or not in_sync else told.broker_id in in_sync,
        told.lag_bytes if follower is None else follower.lag_bytes,
        told.lag_ms if follower is None else follower.lag_ms,
    )


def _seen_copy(place: Place, follower: FollowerView, why: str) -> Copy:
    """Return the leader's report on a replica that did not reply itself."""
    return Copy(
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


def delay_of_message(places: Sequence[Place], levels_ms: Sequence[int]) -> Delay | None:
    """Return the delay of the message's newest delayed copy."""
    waiting = [one for one in places if one.kind is Kind.DELAYED]
    if not waiting:
        return None
    last = waiting[-1]
    text = last.properties.get(Property.DELAY, "")
    level = int(text) if text.isdecimal() and len(text) < 10 else last.queue.queue_id + 1
    due_ms = last.stored_ms + delay_of(level, levels_ms) if levels_ms and level else None
    delivered = any(one.kind is Kind.SENT and one.stored_ms >= last.stored_ms for one in places)
    return Delay(level, due_ms, last, delivered)


# -- transaction ----------------------------------------------------------------------------------


async def half_of_message(asking: Asking, places: Sequence[Place]) -> Half | None:
    """Return the state of the transaction that the half message belongs to."""
    halves = [one for one in places if one.kind is Kind.HALF]
    given_up = [one for one in places if one.kind is Kind.GIVEN_UP]
    if not halves and not given_up:
        return None
    last = max(halves or given_up, key=lambda one: (one.stored_ms, one.offset))
    group = last.properties.get(Property.PGROUP, "")
    checks = _number(last.properties.get(Property.TRANSACTION_CHECK_TIMES))
    if any(one.kind is Kind.SENT and one.stored_ms >= last.stored_ms for one in places):
        return Half(HalfState.COMMITTED, group, checks, last)
    if given_up:
        return Half(HalfState.GIVEN_UP, group, checks, last)
    voice = asking.voices.get(last.queue.broker_name)
    if voice is None:
        return Half(HalfState.UNKNOWN, group, checks, last)
    state = await _state_of(asking, voice, last)
    producers = await _producers(asking, voice, group) if state is HalfState.OPEN else None
    return Half(state, group, checks, last, producers)


async def _state_of(asking: Asking, voice: Voice, half: Place) -> HalfState:
    """Return whether the half message is open or rolled back.

    Below the committed offset of its queue all half messages are resolved. Above it, op messages
    resolve them; only op messages that the broker has not processed yet are relevant.
    """
    if Property.BATCH in half.properties:
        asking.lack("its transaction", "it is part of a batch that is committed as a whole")
        return HalfState.UNKNOWN
    done = await asking.committed(voice, TRANSACTION_GROUP, HALF_TOPIC, half.queue.queue_id)
    if done is not None and done > half.offset:
        return HalfState.ROLLED_BACK
    at = await asking.committed(voice, TRANSACTION_GROUP, OP_TOPIC, 0) or 0
    if OP_TOPIC not in voice.topics:
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
        reply = await asking.ask("ends of transactions", voice, request, also=_END)
        if reply is None or not isinstance(reply.header, PullResponse):
            return HalfState.UNKNOWN
        if reply.code == Code.PULL_NOT_FOUND:
            return HalfState.OPEN
        try:
            ends = from_records(body_of(reply), voice.broker) if reply.body else []
        except Corrupt as error:
            asking.lack("ends of transactions", error)
            return HalfState.UNKNOWN
        if any(half.offset in ended_by(one.raw_body) for one in ends):
            return HalfState.ROLLED_BACK
        if reply.header.next_begin_offset <= at:
            return HalfState.OPEN
        at = reply.header.next_begin_offset
    asking.lack("its transaction", f"over {EXPLAIN_OP_RECORDS_MAX} others ended since it began")
    return HalfState.UNKNOWN


def ended_by(body: bytes) -> list[int]:
    """Return the half offsets that an op message resolves; RocketMQ 5 joins several by commas."""
    return [int(text) for text in body.split(b",") if text.isdigit() and len(text) < 20]


async def _producers(asking: Asking, voice: Voice, group: str) -> int | None:
    request = GetProducerConnectionList(producer_group=group)
    try:
        reply = await asking.reply(voice.address, request)
    except Rejected:
        return 0  # the broker's reply if no producer of the group is connected
    except KourouError as error:
        asking.lack(f"producers of {group}", error)
        return None
    return len(decode_producer_connection(body_of(reply)).connections)


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else 0
