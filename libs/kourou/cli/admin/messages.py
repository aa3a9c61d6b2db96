"""`kourou admin`: the commands for messages: find, show, trace, print, send."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.brokers import broker_name
from kourou.cli.admin.command import GROUP, TEXT, Switch, Topic, command, moment
from kourou.cli.admin.report import Report, local_time
from kourou.errors import BadRequest, TopicNotFound
from kourou.model.names import READER_GROUP
from kourou.model.topic import MessageQueue

if TYPE_CHECKING:
    from kourou.client.consumer.received import ReceivedMessage
    from kourou.protocol.record.message_trace import TraceRecord
    from kourou.sync import Client

PULL_COUNT = 500
NO_END_MS = 2**62

MessageId = Annotated[
    str, typer.Option("-i", "--msgId", help=("The message ID (producer's or broker's)."))
]
MaybeTopic = Annotated[
    str | None,
    typer.Option("-t", "--topic", help=("The topic; required for a producer's message ID.")),
]
MaybeGroup = Annotated[
    str | None,
    typer.Option("-g", "--group", "--consumerGroup", help="Deliver it to this group now."),
]
MaybeClient = Annotated[
    str | None,
    typer.Option(
        "-d", "--clientId", help=("The consumer to deliver to (default: last heartbeat).")
    ),
]
Begin = Annotated[
    int | None,
    typer.Option(
        "-b",
        "--beginTimestamp",
        parser=moment,
        metavar=TEXT,
        help=("Only messages stored since this time."),
    ),
]
End = Annotated[
    int | None,
    typer.Option(
        "-e",
        "--endTimestamp",
        parser=moment,
        metavar=TEXT,
        help=("Only messages stored up to this time."),
    ),
]
Charset = Annotated[str, typer.Option("-c", "--charsetName", help="Character set of the bodies.")]
SubExpression = Annotated[
    str, typer.Option("-s", "--subExpression", help="Tags, like 'TagA || TagB'; * for all.")
]
PrintBody = Annotated[Switch, typer.Option("-d", "--printBody", help="Include the bodies.")]
Most = Annotated[int, typer.Option("--max", min=1, help="Maximum number of results.")]


# -- single messages ------------------------------------------------------------------------------


@command("queryMsgById", "Show a message, or redeliver it.")
def message_by_id(
    client: Client,
    message_id: MessageId,
    *,
    topic: MaybeTopic = None,
    group: MaybeGroup = None,
    client_id: MaybeClient = None,
    again: Annotated[
        Switch, typer.Option("-s", "--sendMessage", help="Send it to its topic again.")
    ] = Switch.FALSE,
    unit: Annotated[
        str | None, typer.Option("-u", "--unitName", help=("Ignored (mqadmin compatibility)."))
    ] = None,
) -> Report:
    """Show a message by ID, deliver it to a group (-g), or send it again (-s true)."""
    from kourou.model.message import RESERVED_PROPERTIES

    if group is None and not again.on:
        return _show_by_id(client, topic, message_id)
    message = _message(client, message_id, topic)
    if group is not None:
        return _consume_directly(client, group, message, client_id)
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


def _show_by_id(client: Client, topic: str | None, message_id: str) -> Report:
    """One message by either kind of ID; a unique key requires its topic."""
    from kourou.client.admin.messages import MessageNotFound

    messages = client.admin.messages
    if topic is None:
        try:
            return _shown([messages.by_offset_id(message_id)])
        except (BadRequest, MessageNotFound) as missing:
            raise type(missing)(
                missing.message,
                hint="for a message ID printed by `kourou send`, also give the topic: -t TOPIC",
            ) from missing
    return _shown([messages.by_id(topic, message_id)])


def _message(client: Client, message_id: str, topic: str | None) -> ReceivedMessage:
    messages = client.admin.messages
    message: ReceivedMessage = (
        messages.by_offset_id(message_id) if topic is None else messages.by_id(topic, message_id)
    )
    return message


def _consume_directly(
    client: Client, group: str, message: ReceivedMessage, client_id: str | None
) -> Report:
    result = client.admin.members.consume(group, message, client_id or "")
    row = (
        message.message_id,
        group,
        result.consume_result,
        result.spent_time_mills,
        result.remark,
    )
    failed = result.consume_result not in ("CR_SUCCESS", "CR_COMMIT")
    return Report(("message_id", "group", "result", "ms", "remark"), [row], failed=failed)


@command("queryMsgByUniqueKey", "Find messages by the producer's message ID.")
def message_by_unique_key(
    client: Client,
    message_id: MessageId,
    topic: Topic,
    *,
    group: MaybeGroup = None,
    client_id: MaybeClient = None,
    show_all: Annotated[
        bool, typer.Option("-a", "--showAll", help="Show all copies, including retries.")
    ] = False,
) -> Report:
    """Find a message by the producer's ID, list all copies (-a), or deliver it to a group (-g)."""
    from kourou.client.admin.messages import MessageNotFound

    messages = client.admin.messages
    if group is not None:
        message = messages.by_unique_key(topic, message_id)
        return _consume_directly(client, group, message, client_id)
    if not show_all:
        return _shown([messages.by_unique_key(topic, message_id)])
    copies = messages.copies(topic, message_id)
    if not copies:
        raise MessageNotFound(f"no message of {topic} has the id {message_id}")
    return _shown(copies)


@command("queryMsgByKey")
def messages_by_key(
    client: Client,
    topic: Topic,
    key: Annotated[str, typer.Option("-k", "--key", "--msgKey", help="The business key.")],
    *,
    begin: Annotated[
        int,
        typer.Option(parser=moment, metavar=TEXT, help="Only messages stored since this time."),
    ] = 0,
    end: Annotated[
        int | None,
        typer.Option(parser=moment, metavar=TEXT, help="Only messages stored up to this time."),
    ] = None,
    count: Annotated[
        int, typer.Option("--max", min=1, max=64, help=("Maximum number of messages per broker."))
    ] = 32,
) -> Report:
    """Find messages by business key, newest first."""
    messages = client.admin.messages.by_key(
        topic, key, begin_ms=begin, end_ms=NO_END_MS if end is None else end, count_max=count
    )
    report = _shown(messages)
    if len(messages) >= count:
        report.remarks.append(
            f"limited to the newest {count} per broker; there may be more (--max)"
        )
    elif not messages:
        report.remarks.append("none")
    return report


@command("queryMsgByOffset", "Show the message at an offset of a queue.")
def message_by_offset(
    client: Client,
    topic: Topic,
    broker: Annotated[str, typer.Option("-b", "--broker", "--brokerName", help="The broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, help="The queue.")],
    offset: Annotated[int, typer.Option("-o", "--offset", min=0, help="The offset in the queue.")],
) -> Report:
    """Show the message at an offset of a queue."""
    from kourou.client.admin.messages import MessageNotFound
    from kourou.model.message import PullStatus

    consumer = client.pull_consumer(READER_GROUP)
    pulled = consumer.pull(MessageQueue(topic, broker, queue_id), offset, count_max=1)
    if pulled.status is not PullStatus.FOUND or pulled.messages[0].offset != offset:
        raise MessageNotFound(
            f"no message at {topic}/{broker}/{queue_id}@{offset}; "
            f"the queue has {pulled.min_offset} to {pulled.max_offset}"
        )
    return _shown(pulled.messages)


def _shown(messages: Sequence[ReceivedMessage]) -> Report:
    """Messages, one per row; the exit code is 1 if a broker did not reply."""
    from kourou.cli.tail import as_json_line
    from kourou.client.admin.messages import QueryResults

    missing = messages.missing if isinstance(messages, QueryResults) else {}
    objects = [json.loads(as_json_line(message)) for message in messages]
    columns = ("topic", "broker", "queue", "offset", "message_id", "tag", "keys", "body")
    rows = [
        tuple(
            " ".join(one[name]) if name == "keys" else one.get(name, "(binary)") for name in columns
        )
        for one in objects
    ]
    return Report(columns, rows, failed=bool(missing), missing=missing)


# -- trace and tracks -----------------------------------------------------------------------------


@command("queryMsgTraceById", "Show the client traces of a message.")
def message_trace(
    client: Client,
    message_id: MessageId,
    *,
    trace_topic: Annotated[
        str, typer.Option("-t", "--traceTopic", help="The trace topic.")
    ] = "RMQ_SYS_TRACE_TOPIC",
) -> Report:
    """Show the client traces of a message: producer, consumers, times, durations, results."""
    records = client.admin.messages.trace(message_id, trace_topic=trace_topic)
    remarks = [] if records else ["no traces found (message tracing is enabled in the client)"]
    return Report(
        ("what", "when", "group", "ms", "worked", "detail"),
        [_trace_row(one) for one in records],
        remarks,
        failed=bool(records.missing),
        missing=records.missing,
    )


def _trace_row(one: TraceRecord) -> tuple[Any, ...]:
    from kourou.protocol.record.message_trace import (
        Consumed,
        ConsumeStarted,
        Published,
        TransactionEnded,
    )

    when = local_time(one.timestamp_ms)
    match one:
        case Published():
            detail = f"{one.topic} {one.tag}".strip()
            return "sent", when, one.group, one.cost_ms, one.success, detail
        case ConsumeStarted():
            return "given", when, one.group, None, None, f"attempt {one.retry_times + 1}"
        case Consumed():
            how = one.context_code.name.lower()
            return "consumed", when, one.group or None, one.cost_ms, one.success, how
        case TransactionEnded():
            on_request = " on request" if one.from_check else ""
            return "ended", when, one.group, None, None, f"{one.state}{on_request}"


@command("messageTrack", "Show which groups consumed a message.")
def message_track(client: Client, message_id: MessageId, *, topic: MaybeTopic = None) -> Report:
    """Show for each group of the topic: consumed, pending or filtered out, with the reason."""
    message = _message(client, message_id, topic)
    rows = [
        (one.group, one.kind.value, one.consumed, one.offset, one.reason or None)
        for one in client.admin.messages.tracks(message)
    ]
    columns = ("group", "track", "consumed", "next offset", "reason")
    return Report(columns, rows, [] if rows else ["no group consumes the topic"])


# -- the messages of queues -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """Which messages to print and how; times in ms since 1970, None for an open end."""

    tags: str
    begin_ms: int | None
    end_ms: int | None
    bodies: bool
    charset: str
    count_max: int


@command("printMsg", "Print the messages of a topic.")
def print_messages(
    client: Client,
    topic: Topic,
    *,
    begin: Begin = None,
    end: End = None,
    tags: SubExpression = "*",
    body: PrintBody = Switch.TRUE,
    charset: Charset = "UTF-8",
    count: Most = 1_000,
) -> Report:
    """Print the messages of a topic, queue by queue."""
    selection = MessageSelection(tags, begin, end, body.on, charset, count)
    consumer = client.pull_consumer(READER_GROUP)
    messages: list[ReceivedMessage] = []
    for queue in consumer.queues(topic):
        messages += _read(consumer, queue, selection, count - len(messages))
    return _printed(messages, selection)


@command("printMsgByQueue", "Print the messages or tag counts of a queue.")
def print_queue(
    client: Client,
    topic: Topic,
    broker: Annotated[str, typer.Option("-a", "--brokerName", help="The broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, help="The queue.")],
    *,
    begin: Begin = None,
    end: End = None,
    tags: SubExpression = "*",
    body: PrintBody = Switch.FALSE,
    printed: Annotated[
        Switch, typer.Option("-p", "--printMsg", help="Print the messages.")
    ] = Switch.FALSE,
    calculate: Annotated[
        Switch, typer.Option("-f", "--calculate", help="Count the messages by tag.")
    ] = Switch.FALSE,
    charset: Charset = "UTF-8",
    count: Most = 100_000,
) -> Report:
    """Print the messages of a queue (-p), or count them by tag (-f)."""
    selection = MessageSelection(tags, begin, end, body.on, charset, count)
    consumer = client.pull_consumer(READER_GROUP)
    queue = MessageQueue(topic, broker, queue_id)
    if queue not in consumer.queues(topic):
        raise TopicNotFound(f"queue {queue!s} not found")
    messages = _read(consumer, queue, selection, count)
    if printed.on or not calculate.on:
        return _printed(messages, selection)
    counts = Counter(message.tag for message in messages)
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0] or ""))
    return Report(("tag", "messages"), rows, [f"{len(messages):,} in all"])


@command("queryCq", "Print consume queue entries.")
def queue_units(
    client: Client,
    topic: Topic,
    queue_id: Annotated[int, typer.Option("-q", "--queue", min=0, help="The queue.")],
    index: Annotated[int, typer.Option("-i", "--index", min=0, help="The first offset.")],
    *,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="Number of messages.")] = 10,
    broker: Annotated[
        str | None,
        typer.Option("-b", "--broker", help=("The broker (default: the first with the topic).")),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--consumer", help=("Check whether this group's filter matches.")),
    ] = None,
) -> Report:
    """Print consume queue entries: log position, size, tag code."""
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


# -- sending --------------------------------------------------------------------------------------


@command("sendMessage", "Send one message.")
def send_message(
    client: Client,
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", help="The message body.")],
    *,
    key: Annotated[
        str | None, typer.Option("-k", "--key", help=("The keys, separated by spaces."))
    ] = None,
    tag: Annotated[str | None, typer.Option("-c", "--tags", help="The tag.")] = None,
    broker: Annotated[str | None, typer.Option("-b", "--broker", help="The target broker.")] = None,
    queue_id: Annotated[
        int | None, typer.Option("-i", "--qid", min=0, help="The target queue (with -b).")
    ] = None,
    traced: Annotated[
        Switch, typer.Option("-m", "--msgTraceEnable", help="Record a message trace.")
    ] = Switch.FALSE,
) -> Report:
    """Send one message and print where it is stored."""
    from kourou.client.settings.client_settings import ProducerSettings

    if queue_id is not None and broker is None:
        raise BadRequest("a queue's number belongs to a broker", hint="-b BROKER -i QUEUE")
    queue = _target_queue(client, topic, broker, queue_id)
    keys = [] if key is None else key.split()
    # Message trace is a setting of a producer, so it has a producer of its own.
    settings = ProducerSettings(producer_group=GROUP, message_trace=traced.on)
    with client.producer(settings) as producer:
        sent = producer.send(topic, body, tag=tag, keys=keys, queue=queue)
    row = (
        sent.queue.broker_name,
        sent.queue.queue_id,
        sent.offset,
        sent.status.value,
        sent.message_id,
    )
    return Report(("broker", "queue", "offset", "status", "message_id"), [row])


def _target_queue(
    client: Client, topic: str, broker: str | None, queue_id: int | None
) -> MessageQueue | None:
    if broker is None:
        return None
    if queue_id is not None:
        return MessageQueue(topic, broker, queue_id)
    queues: list[MessageQueue] = client.pull_consumer(READER_GROUP).queues(topic)
    for queue in queues:
        if queue.broker_name == broker:
            return queue
    raise TopicNotFound(f"broker {broker} has no queue of {topic}")


# -- reading --------------------------------------------------------------------------------------


@command("consumeMessage", "Read messages without changing offsets.")
def consume_message(
    client: Client,
    topic: Topic,
    *,
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerName", help="Only this broker.")
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option("-i", "--queueId", min=0, help="Only this queue.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("-o", "--offset", min=0, help="Start at this offset.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", "--consumerGroup", help="Read as this group."),
    ] = None,
    begin: Annotated[
        int | None,
        typer.Option(
            "-s",
            "--beginTimestamp",
            parser=moment,
            metavar=TEXT,
            help=("Only messages stored since this time."),
        ),
    ] = None,
    end: End = None,
    count: Annotated[
        int,
        typer.Option(
            "-c", "--MessageNumber", min=1, help=("Maximum number of messages per queue.")
        ),
    ] = 128,
) -> Report:
    """Read messages without changing offsets."""
    if offset is not None and (broker is None or queue_id is None):
        raise BadRequest("an offset belongs to one queue", hint="name it: -b BROKER -i QUEUE")
    selection = MessageSelection("*", begin, end, True, "UTF-8", count)
    consumer = client.pull_consumer(group or READER_GROUP)
    queues = [
        queue
        for queue in consumer.queues(topic)
        if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]
    if not queues:
        raise TopicNotFound(f"topic {topic} has no such queue")
    messages: list[ReceivedMessage] = []
    for queue in queues:
        messages += _read(consumer, queue, selection, count, first=offset)
    return _printed(messages, selection)


def _read(
    consumer: Any,
    queue: MessageQueue,
    selection: MessageSelection,
    count_max: int,
    *,
    first: int | None = None,
) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    for message in _pulled(consumer, queue, selection, first):
        if len(messages) >= count_max:
            break
        messages.append(message)
    return messages


def _pulled(
    consumer: Any, queue: MessageQueue, selection: MessageSelection, first: int | None
) -> Iterator[ReceivedMessage]:
    from kourou.model.message import PullStatus

    offset = consumer.min_offset(queue) if first is None else first
    if first is None and selection.begin_ms is not None:
        offset = consumer.offset_by_time(queue, selection.begin_ms)
    while True:
        pulled = consumer.pull(queue, offset, expression=selection.tags, count_max=PULL_COUNT)
        if pulled.status is PullStatus.OFFSET_ILLEGAL and pulled.next_offset <= offset:
            return
        for message in pulled.messages:
            if selection.end_ms is not None and message.store_timestamp > selection.end_ms:
                return
            yield message
        if pulled.next_offset <= offset or pulled.next_offset >= pulled.max_offset:
            return
        offset = pulled.next_offset


def _printed(messages: Sequence[ReceivedMessage], selection: MessageSelection) -> Report:
    from kourou.cli.tail import as_json_line

    columns = ["topic", "broker", "queue", "offset", "stored", "message_id", "tag", "keys"]
    if selection.bodies:
        columns.append("body")
    rows = []
    for message in messages:
        values = json.loads(as_json_line(message))
        values["stored"] = local_time(message.store_timestamp)
        values["keys"] = " ".join(message.keys)
        if selection.bodies:
            values["body"] = _decoded(message.raw_body, selection.charset)
        rows.append(tuple(values[name] for name in columns))
    remarks = [f"{len(rows):,} messages"]
    if len(rows) >= selection.count_max:
        remarks.append("stopped there; there may be more")
    return Report(columns, rows, remarks)


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset)
    except LookupError:
        raise BadRequest(f"unknown character set {charset!r}") from None
    except UnicodeDecodeError:
        return f"({len(body)} bytes, not valid {charset})"
