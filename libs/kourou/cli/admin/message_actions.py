"""The actions of the commands for messages: one or a few requests, one report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kourou.cli.admin.actions import message_by_id, shown_messages
from kourou.cli.admin.moments import as_text
from kourou.cli.admin.options import GROUP, READER_GROUP
from kourou.cli.admin.report import Report
from kourou.cli.tail import as_json_line
from kourou.client.admin.messages import MessageNotFound
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import BadRequest, TopicNotFound
from kourou.model.message import RESERVED_PROPERTIES, PullStatus
from kourou.model.topic import MessageQueue
from kourou.protocol.record.message_trace import (
    Consumed,
    ConsumeStarted,
    Published,
    TraceRecord,
    TransactionEnded,
)
from kourou.sync import Client

PULL_COUNT = 500


@dataclass(frozen=True, slots=True)
class Look:
    """Which messages to show and how; times in ms since 1970, None for an open end."""

    tags: str
    begin_ms: int | None
    end_ms: int | None
    bodies: bool
    charset: str
    count_max: int


@dataclass(frozen=True, slots=True)
class Sending:
    """How to send one message."""

    key: str | None
    tag: str | None
    broker: str | None
    queue_id: int | None
    traced: bool


# -- single messages ------------------------------------------------------------------------------


def by_id(
    client: Client,
    message_id: str,
    topic: str | None,
    *,
    group: str | None,
    client_id: str | None,
    again: bool,
) -> Report:
    """Show a message, deliver it to a consumer of a group, or send it again."""
    if group is None and not again:
        return message_by_id(client, topic, message_id)
    message = _found(client, message_id, topic)
    if group is not None:
        return _consumed_directly(client, group, message, client_id)
    properties = {
        name: value for name, value in message.properties.items() if name not in RESERVED_PROPERTIES
    }
    sent = client.send(
        message.topic,
        message.raw_body,
        tag=message.tag,
        keys=list(message.keys),
        properties=properties,
    )
    return Report(("message_id", "sent as"), [(message.message_id, sent.message_id)])


def by_unique_key(
    client: Client,
    message_id: str,
    topic: str,
    *,
    group: str | None,
    client_id: str | None,
    show_all: bool,
) -> Report:
    """Show the message with a unique key, or all its copies, or deliver it to a consumer of a
    group.
    """
    messages = client.admin.messages
    if group is not None:
        return _consumed_directly(
            client, group, messages.by_unique_key(topic, message_id), client_id
        )
    if not show_all:
        return shown_messages([messages.by_unique_key(topic, message_id)])
    found = messages.copies(topic, message_id)
    if not found:
        raise MessageNotFound(f"no message of {topic} has the id {message_id}")
    return shown_messages(found)


def by_offset(client: Client, topic: str, broker: str, queue_id: int, offset: int) -> Report:
    """The message at an offset; raises MessageNotFound if there is none."""
    consumer = client.pull_consumer(READER_GROUP)
    found = consumer.pull(MessageQueue(topic, broker, queue_id), offset, count_max=1)
    if found.status is not PullStatus.FOUND or found.messages[0].offset != offset:
        raise MessageNotFound(
            f"no message at {topic}/{broker}/{queue_id}@{offset}; "
            f"the queue has {found.min_offset} to {found.max_offset}"
        )
    return shown_messages(found.messages)


def trace(client: Client, message_id: str, trace_topic: str) -> Report:
    """The trace records that clients stored for a message."""
    found = client.admin.messages.trace(message_id, trace_topic=trace_topic)
    remarks = [] if found else ["no traces found (message tracing is enabled in the client)"]
    rows = [_traced(one) for one in found]
    return Report(TRACE_COLUMNS, rows, remarks, failed=bool(found.missing), missing=found.missing)


TRACE_COLUMNS = ("what", "when", "group", "ms", "worked", "detail")


def _traced(one: TraceRecord) -> tuple[Any, ...]:
    when = as_text(one.timestamp_ms)
    match one:
        case Published():
            return (
                "sent",
                when,
                one.group,
                one.cost_ms,
                one.success,
                f"{one.topic} {one.tag}".strip(),
            )
        case ConsumeStarted():
            return "given", when, one.group, None, None, f"attempt {one.retry_times + 1}"
        case Consumed():
            how = one.context_code.name.lower()
            return "consumed", when, one.group or None, one.cost_ms, one.success, how
        case TransactionEnded():
            asked = " on request" if one.from_check else ""
            return "ended", when, one.group, None, None, f"{one.state}{asked}"


def tracks(client: Client, message_id: str, topic: str | None) -> Report:
    """The state of a message in each group of its topic."""
    message = _found(client, message_id, topic)
    rows = [
        (one.group, one.kind.value, one.consumed, one.offset, one.reason or None)
        for one in client.admin.messages.tracks(message)
    ]
    columns = ("group", "track", "consumed", "next offset", "reason")
    return Report(columns, rows, [] if rows else ["no group consumes the topic"])


def _found(client: Client, message_id: str, topic: str | None) -> ReceivedMessage:
    messages = client.admin.messages
    found: ReceivedMessage = (
        messages.by_offset_id(message_id) if topic is None else messages.by_id(topic, message_id)
    )
    return found


def _consumed_directly(
    client: Client, group: str, message: ReceivedMessage, client_id: str | None
) -> Report:
    done = client.admin.members.consume(group, message, client_id or "")
    row = (message.message_id, group, done.consume_result, done.spent_time_mills, done.remark)
    worked = done.consume_result in ("CR_SUCCESS", "CR_COMMIT")
    return Report(("message_id", "group", "result", "ms", "remark"), [row], failed=not worked)


# -- queues ---------------------------------------------------------------------------------------


def messages_of(client: Client, topic: str, look: Look) -> Report:
    """The messages of a topic, queue by queue."""
    consumer = client.pull_consumer(READER_GROUP)
    found: list[ReceivedMessage] = []
    for queue in consumer.queues(topic):
        found += _read(consumer, queue, look, look.count_max - len(found))
    return _told(found, look)


def messages_of_queue(
    client: Client, topic: str, broker: str, queue_id: int, look: Look, *, counted: bool
) -> Report:
    """The messages of one queue, or their number by tag."""
    consumer = client.pull_consumer(READER_GROUP)
    queue = MessageQueue(topic, broker, queue_id)
    if queue not in consumer.queues(topic):
        raise TopicNotFound(f"queue {queue!s} not found")
    found = _read(consumer, queue, look, look.count_max)
    if not counted:
        return _told(found, look)
    tags = Counter(message.tag for message in found)
    rows = sorted(tags.items(), key=lambda row: (-row[1], row[0] or ""))
    return Report(("tag", "messages"), rows, [f"{len(found):,} in all"])


def consumed(
    client: Client,
    topic: str,
    look: Look,
    *,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
    group: str | None,
) -> Report:
    """Messages of the chosen queues, from an offset or a time on."""
    if offset is not None and (broker is None or queue_id is None):
        raise BadRequest("an offset belongs to one queue", hint="name it: -b BROKER -i QUEUE")
    consumer = client.pull_consumer(group or READER_GROUP)
    queues = [
        queue
        for queue in consumer.queues(topic)
        if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]
    if not queues:
        raise TopicNotFound(f"topic {topic} has no such queue")
    found: list[ReceivedMessage] = []
    for queue in queues:
        found += _read(consumer, queue, look, look.count_max, first=offset)
    return _told(found, look)


def queue_units(
    client: Client,
    topic: str,
    broker: str | None,
    queue_id: int,
    index: int,
    *,
    count: int,
    group: str | None,
) -> Report:
    """Units of a queue as they are stored."""
    from kourou.cli.admin.actions import broker_name

    if broker is None:
        broker = min(client.admin.topics.config(topic))
    queue = MessageQueue(topic, broker_name(client, broker), queue_id)
    look = client.admin.messages.units(queue, index, count=count, group=group)
    rows = [
        (index + place, one.physic_offset, one.physic_size, one.tags_code, one.eval, one.msg)
        for place, one in enumerate(look.units)
    ]
    columns = ("offset", "position", "size", "tag code", "wanted", "message")
    return Report(columns, rows, [f"the queue has {look.min_index} to {look.max_index}"])


def _read(
    consumer: Any, queue: MessageQueue, look: Look, count_max: int, *, first: int | None = None
) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    for message in _pulled(consumer, queue, look, first):
        if len(found) >= count_max:
            break
        found.append(message)
    return found


def _pulled(
    consumer: Any, queue: MessageQueue, look: Look, first: int | None
) -> Iterator[ReceivedMessage]:
    offset = consumer.min_offset(queue) if first is None else first
    if first is None and look.begin_ms is not None:
        offset = consumer.offset_by_time(queue, look.begin_ms)
    while True:
        found = consumer.pull(queue, offset, expression=look.tags, count_max=PULL_COUNT)
        if found.status is PullStatus.OFFSET_ILLEGAL and found.next_offset <= offset:
            return
        for message in found.messages:
            if look.end_ms is not None and message.store_timestamp > look.end_ms:
                return
            yield message
        if found.next_offset <= offset or found.next_offset >= found.max_offset:
            return
        offset = found.next_offset


def _told(found: list[ReceivedMessage], look: Look) -> Report:
    columns = ["topic", "broker", "queue", "offset", "stored", "message_id", "tag", "keys"]
    if look.bodies:
        columns.append("body")
    rows = []
    for message in found:
        facts = json.loads(as_json_line(message))
        facts["stored"] = as_text(message.store_timestamp)
        facts["keys"] = " ".join(message.keys)
        if look.bodies:
            facts["body"] = _decoded(message.raw_body, look.charset)
        rows.append(tuple(facts[name] for name in columns))
    remarks = [f"{len(rows):,} messages"]
    if len(rows) >= look.count_max:
        remarks.append("stopped there; there may be more")
    return Report(columns, rows, remarks)


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset)
    except LookupError:
        raise BadRequest(f"unknown character set {charset!r}") from None
    except UnicodeDecodeError:
        return f"({len(body)} bytes, not valid {charset})"


# -- sending --------------------------------------------------------------------------------------


def send(namesrv: str | None, topic: str, body: str, how: Sending, *, as_json: bool) -> int:
    """Send one message with a separate producer, because message traces are a producer setting."""
    if how.queue_id is not None and how.broker is None:
        raise BadRequest("a queue's number belongs to a broker", hint="-b BROKER -i QUEUE")
    producer = ProducerSettings(producer_group=GROUP, message_trace=how.traced)
    with Client(namesrv, group=GROUP, producer=producer) as client:
        queue = _queue(client, topic, how)
        keys = [] if how.key is None else how.key.split()
        sent = client.send(topic, body, tag=how.tag, keys=keys, queue=queue)
        row = (
            sent.queue.broker_name,
            sent.queue.queue_id,
            sent.offset,
            sent.status.value,
            sent.message_id,
        )
        Report(("broker", "queue", "offset", "status", "message_id"), [row]).show(as_json=as_json)
    return 0


def _queue(client: Client, topic: str, how: Sending) -> MessageQueue | None:
    if how.broker is None:
        return None
    if how.queue_id is not None:
        return MessageQueue(topic, how.broker, how.queue_id)
    queues: list[MessageQueue] = client.pull_consumer(READER_GROUP).queues(topic)
    for queue in queues:
        if queue.broker_name == how.broker:
            return queue
    raise TopicNotFound(f"broker {how.broker} has no queue of {topic}")
