"""Lookup of the message that a text identifies.

topic/broker/queue@offset     a queue offset: if nothing is stored there, the reason is known
32 or 56 hexadecimal digits   an offset message ID, if it contains a registered broker's host
anything else                 a key, looked up in the given topic, or in all topics
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kourou.client.consumer.received import ReceivedMessage, from_record
from kourou.client.explain.asking import READER_GROUP, Asking, Voice
from kourou.client.explain.copies import home_of, place_of
from kourou.client.explain.facts import Form, Lookup
from kourou.client.session.connections import body_of
from kourou.client.session.discovery import store_host_of
from kourou.errors import BadRequest, Code, Corrupt, KourouError
from kourou.model.limits import EXPLAIN_ASKED_LENGTH_MAX, EXPLAIN_TOPICS_MAX
from kourou.model.names import (
    CHECK_GIVEN_UP_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TRACE_TOPIC,
    is_system_topic,
)
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.status_bodies import decode_queue_look
from kourou.protocol.messages.pulls import (
    PullFlag,
    PullMessage,
    QueryConsumeQueue,
    ViewMessageById,
)
from kourou.protocol.record.layout import Host
from kourou.protocol.record.message_id import decode_offset_id

BEFORE_ITS_TOPIC = (SCHEDULE_TOPIC, HALF_TOPIC, CHECK_GIVEN_UP_TOPIC)
"""Topics that may contain a message before, or instead of, the topic that it was sent to."""

_PLACE = re.compile(r"([%|a-zA-Z0-9_-]+)/([^/@\s]+)/([0-9]{1,9})@([0-9]{1,18})")
_PULLED = frozenset(int(code) for code in Code if code.name.startswith(("PULL_", "MESSAGE_COR")))


@dataclass(frozen=True, slots=True)
class Found:
    """How the message was looked up, and the `messages` found, one per message ID, newest first."""

    lookup: Lookup
    messages: tuple[ReceivedMessage, ...] = ()


async def find(asking: Asking, asked: str, topic: str | None) -> Found:
    """Look up the message. Raises BadRequest if the text cannot identify a message."""
    if not asked or len(asked) > EXPLAIN_ASKED_LENGTH_MAX or not asked.isprintable():
        raise BadRequest(
            f"{asked[:80]!r} is not a message reference",
            hint="use an ID, topic/broker/queue@offset, or a key",
        )
    place = _PLACE.fullmatch(asked)
    if place is not None:
        queue = MessageQueue(place[1], place[2], int(place[3]))
        return await _at(asking, queue, int(place[4]))
    try:
        host, position = decode_offset_id(asked)
    except BadRequest:
        host = None
    if host is not None and 0 < host[1] < 65_536:
        found = await _by_offset_id(asking, host, position)
        if found.messages or found.lookup.damage:
            return found
        by_key = await _by_key(asking, asked, topic)
        return by_key if by_key.messages else found
    return await _by_key(asking, asked, topic)


# -- a queue offset -------------------------------------------------------------------------------


async def _at(asking: Asking, queue: MessageQueue, offset: int) -> Found:
    lookup = Lookup(
        Form.PLACE,
        tuple(asking.voices),
        tuple(asking.away),
        topic=queue.topic,
        place=(queue, offset),
    )
    voice = asking.voices.get(queue.broker_name)
    if voice is None:
        return Found(replace(lookup, broker_known=queue.broker_name in asking.away))
    if queue.topic not in voice.topics:
        return Found(replace(lookup, topic_known=False))
    config = voice.topics[queue.topic]
    lookup = replace(lookup, queues=max(config.read_queue_nums, config.write_queue_nums))
    request = QueryConsumeQueue(topic=queue.topic, queue_id=queue.queue_id, index=offset, count=1)
    try:
        look = decode_queue_look(body_of(await asking.reply(voice.address, request)))
    except KourouError as error:
        if error.wire_code != Code.SYSTEM_ERROR:
            asking.lack(f"{queue!s}", error)
        return Found(replace(lookup, queue_known=False))
    lookup = replace(lookup, bounds=(look.min_index, look.max_index))
    if not look.min_index <= offset < look.max_index:
        return Found(lookup)
    for unit in look.units:
        message = await _record(asking, voice, unit.physic_offset)
        if message is not None and (message.queue, message.offset) == (queue, offset):
            return Found(lookup, (message,))
    damage = await _damage(asking, voice, queue, offset)
    return Found(replace(lookup, damage=damage) if damage else _unconfirmed(lookup, voice))


def _unconfirmed(lookup: Lookup, voice: Voice) -> Lookup:
    """Add what the commit waits for: the disk, or followers."""
    told = next((one.told for one in voice.members if one.address == voice.address), None)
    if told is None:
        return lookup
    behind = tuple(f"brokerId {one.broker_id}" for one in told.followers if one.lag_bytes)
    return replace(lookup, behind=behind, flushed=told.flushed >= told.end)


async def _record(asking: Asking, voice: Voice, position: int) -> ReceivedMessage | None:
    reply = await asking.ask(
        f"the record at {position} of {voice.broker}", voice, ViewMessageById(offset=position)
    )
    return None if reply is None else from_record(body_of(reply), voice.broker)


async def _damage(asking: Asking, voice: Voice, queue: MessageQueue, offset: int) -> str:
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
    reply = await asking.ask(f"a pull at {queue!s}@{offset}", voice, request, also=_PULLED)
    if reply is None or reply.code == Code.PULL_NOT_FOUND:
        return ""
    return reply.remark or "it was left out of what a reader is given"


# -- an offset message ID -------------------------------------------------------------------------


async def _by_offset_id(asking: Asking, host: Host, position: int) -> Found:
    """Look up an offset message ID.

    Every replica of a log has the record at the same position, with its leader's host in it.
    """
    known = [
        voice
        for voice in asking.voices.values()
        if host in [store_host_of(one.address) for one in voice.members]
    ]
    lookup = Lookup(
        Form.OFFSET_ID,
        tuple(asking.voices),
        host=f"{host[0]}:{host[1]}",
        host_known=bool(known),
    )
    # The ID contains the broker's own address, which may differ from its registered addresses.
    for voice in known or asking.voices.values():
        try:
            reply = await asking.reply(voice.address, ViewMessageById(offset=position))
            message = from_record(body_of(reply), voice.broker)
        except Corrupt as error:
            if known:
                return Found(replace(lookup, damage=str(error)))
            continue
        except KourouError as error:
            if error.wire_code != Code.SYSTEM_ERROR:  # which means: no record there
                asking.lack(f"the record at {position} of {voice.broker}", error)
            continue
        if message.position == position and message.stored().store_host == host:
            return Found(lookup, (message,))
    return Found(lookup)


# -- a key ----------------------------------------------------------------------------------------


async def _by_key(asking: Asking, key: str, topic: str | None) -> Found:
    topics = _searched(asking) if topic is None else [topic]
    cut = topics[:EXPLAIN_TOPICS_MAX]
    if len(cut) < len(topics):
        asking.lack(
            f"{len(topics) - len(cut)} topics",
            f"without a topic, at most {EXPLAIN_TOPICS_MAX} topics are searched",
        )
    found = await asking.everywhere([*cut, *BEFORE_ITS_TOPIC], key)
    if topic is not None:
        if not found:  # perhaps only a retry or a dead letter is left
            found = await asking.everywhere(_of_groups(asking)[:EXPLAIN_TOPICS_MAX], key)
        found = [one for one in found if home_of(place_of(one)) == topic or one.topic == topic]
    lookup = Lookup(
        Form.KEY,
        tuple(asking.voices),
        tuple(asking.away),
        topic=topic,
        topics_searched=len(cut),
    )
    exact = [one for one in found if one.message_id == key]
    found = sorted(exact or found, key=lambda one: one.store_timestamp, reverse=True)
    return Found(lookup, tuple({one.message_id: one for one in reversed(found)}.values())[::-1])


def _searched(asking: Asking) -> list[str]:
    """Return the topics to search: those of applications, then retry and dead-letter topics."""
    own = set(asking.voices)  # every broker's own topic, which is not used for messages
    applications = [
        name
        for name in _names(asking)
        if not (is_system_topic(name) or name == TRACE_TOPIC or name in own)
        and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    ]
    return [*applications, *_of_groups(asking)]


def _of_groups(asking: Asking) -> list[str]:
    return [name for name in _names(asking) if name.startswith((RETRY_PREFIX, DLQ_PREFIX))]


def _names(asking: Asking) -> list[str]:
    return sorted({name for voice in asking.voices.values() for name in voice.topics})
