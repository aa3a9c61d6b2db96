"""`kourou admin`: the commands for messages, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from kourou.cli.admin.options import (
    TO_THE_END_MS,
    Json,
    NameServer,
    Switch,
    Topic,
    command,
    moment,
    report,
)

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
    str | None,
    typer.Option("-b", "--beginTimestamp", help=("Only messages stored since this time.")),
]
End = Annotated[
    str | None, typer.Option("-e", "--endTimestamp", help=("Only messages stored up to this time."))
]
Charset = Annotated[str, typer.Option("-c", "--charsetName", help="Character set of the bodies.")]
SubExpression = Annotated[
    str, typer.Option("-s", "--subExpression", help="Tags, like 'TagA || TagB'; * for all.")
]
PrintBody = Annotated[Switch, typer.Option("-d", "--printBody", help="Include the bodies.")]
Most = Annotated[int, typer.Option("--max", min=1, help="Maximum number of results.")]


def _moments(begin: str | None, end: str | None) -> tuple[int | None, int | None]:
    return (
        None if begin is None else moment(begin),
        None if end is None else moment(end),
    )


@command("queryMsgById", "Show a message, or redeliver it.")
def message_by_id(
    message_id: MessageId,
    namesrv: NameServer = None,
    topic: MaybeTopic = None,
    group: MaybeGroup = None,
    client_id: MaybeClient = None,
    again: Annotated[
        Switch, typer.Option("-s", "--sendMessage", help="Send it to its topic again.")
    ] = Switch.FALSE,
    unit: Annotated[
        str | None, typer.Option("-u", "--unitName", help=("Ignored (mqadmin compatibility)."))
    ] = None,
    json: Json = False,
) -> int:
    """Show a message by ID, deliver it to a group (-g), or send it again (-s true)."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv,
        lambda client: message_actions.by_id(
            client, message_id, topic, group=group, client_id=client_id, again=again.on
        ),
        as_json=json,
    )


@command("queryMsgByUniqueKey", "Find messages by the producer's message ID.")
def message_by_unique_key(
    message_id: MessageId,
    topic: Topic,
    namesrv: NameServer = None,
    group: MaybeGroup = None,
    client_id: MaybeClient = None,
    show_all: Annotated[
        bool, typer.Option("-a", "--showAll", help="Show all copies, including retries.")
    ] = False,
    json: Json = False,
) -> int:
    """Find a message by the producer's ID, list all copies (-a), or deliver it to a group (-g)."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv,
        lambda client: message_actions.by_unique_key(
            client, message_id, topic, group=group, client_id=client_id, show_all=show_all
        ),
        as_json=json,
    )


@command("queryMsgByKey")
def messages_by_key(
    topic: Topic,
    key: Annotated[str, typer.Option("-k", "--key", "--msgKey", help="The business key.")],
    namesrv: NameServer = None,
    begin: Annotated[str, typer.Option(help="Only messages stored since this time.")] = "0",
    end: Annotated[str | None, typer.Option(help="Only messages stored up to this time.")] = None,
    count: Annotated[
        int, typer.Option("--max", min=1, max=64, help=("Maximum number of messages per broker."))
    ] = 32,
    json: Json = False,
) -> int:
    """Find messages by business key, newest first."""
    from kourou.cli.admin import actions

    begin_ms = moment(begin)
    end_ms = TO_THE_END_MS if end is None else moment(end)
    return report(
        namesrv,
        lambda client: actions.messages_by_key(
            client, topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count
        ),
        as_json=json,
    )


@command("queryMsgByOffset", "Show the message at an offset of a queue.")
def message_by_offset(
    topic: Topic,
    broker: Annotated[str, typer.Option("-b", "--broker", "--brokerName", help="The broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, help="The queue.")],
    offset: Annotated[int, typer.Option("-o", "--offset", min=0, help="The offset in the queue.")],
    namesrv: NameServer = None,
    json: Json = False,
) -> int:
    """Show the message at an offset of a queue."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv,
        lambda client: message_actions.by_offset(client, topic, broker, queue_id, offset),
        as_json=json,
    )


@command("queryMsgTraceById", "Show the client traces of a message.")
def message_trace(
    message_id: MessageId,
    namesrv: NameServer = None,
    trace_topic: Annotated[
        str, typer.Option("-t", "--traceTopic", help="The trace topic.")
    ] = "RMQ_SYS_TRACE_TOPIC",
    json: Json = False,
) -> int:
    """Show the client traces of a message: producer, consumers, times, durations, results."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv,
        lambda client: message_actions.trace(client, message_id, trace_topic),
        as_json=json,
    )


@command("messageTrack", "Show which groups consumed a message.")
def message_track(
    message_id: MessageId, namesrv: NameServer = None, topic: MaybeTopic = None, json: Json = False
) -> int:
    """Show for each group of the topic: consumed, pending or filtered out, with the reason."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv, lambda client: message_actions.tracks(client, message_id, topic), as_json=json
    )


@command("printMsg", "Print the messages of a topic.")
def print_messages(
    topic: Topic,
    namesrv: NameServer = None,
    begin: Begin = None,
    end: End = None,
    tags: SubExpression = "*",
    body: PrintBody = Switch.TRUE,
    charset: Charset = "UTF-8",
    count: Most = 1_000,
    json: Json = False,
) -> int:
    """Print the messages of a topic, queue by queue."""
    from kourou.cli.admin import message_actions

    begin_ms, end_ms = _moments(begin, end)
    look = message_actions.Look(tags, begin_ms, end_ms, body.on, charset, count)
    return report(
        namesrv,
        lambda client: message_actions.messages_of(client, topic, look),
        as_json=json,
    )


@command("printMsgByQueue", "Print the messages or tag counts of a queue.")
def print_queue(
    topic: Topic,
    broker: Annotated[str, typer.Option("-a", "--brokerName", help="The broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, help="The queue.")],
    namesrv: NameServer = None,
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
    json: Json = False,
) -> int:
    """Print the messages of a queue (-p), or count them by tag (-f)."""
    from kourou.cli.admin import message_actions

    begin_ms, end_ms = _moments(begin, end)
    look = message_actions.Look(tags, begin_ms, end_ms, body.on, charset, count)
    return report(
        namesrv,
        lambda client: message_actions.messages_of_queue(
            client, topic, broker, queue_id, look, counted=calculate.on and not printed.on
        ),
        as_json=json,
    )


@command("queryCq", "Print consume queue entries.")
def queue_units(
    topic: Topic,
    queue_id: Annotated[int, typer.Option("-q", "--queue", min=0, help="The queue.")],
    index: Annotated[int, typer.Option("-i", "--index", min=0, help="The first offset.")],
    namesrv: NameServer = None,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="Number of messages.")] = 10,
    broker: Annotated[
        str | None,
        typer.Option("-b", "--broker", help=("The broker (default: the first with the topic).")),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--consumer", help=("Check whether this group's filter matches.")),
    ] = None,
    json: Json = False,
) -> int:
    """Print consume queue entries: log position, size, tag code."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv,
        lambda client: message_actions.queue_units(
            client, topic, broker, queue_id, index, count=count, group=group
        ),
        as_json=json,
    )


# -- sending and consuming ------------------------------------------------------------------------


@command("sendMessage", "Send one message.")
def send_message(
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", help="The message body.")],
    namesrv: NameServer = None,
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
    json: Json = False,
) -> int:
    """Send one message and print where it is stored."""
    from kourou.cli.admin import message_actions

    return message_actions.send(
        namesrv,
        topic,
        body,
        message_actions.Sending(key, tag, broker, queue_id, traced.on),
        as_json=json,
    )


@command("consumeMessage", "Read messages without changing offsets.")
def consume_message(
    topic: Topic,
    namesrv: NameServer = None,
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
        str | None,
        typer.Option("-s", "--beginTimestamp", help=("Only messages stored since this time.")),
    ] = None,
    end: End = None,
    count: Annotated[
        int,
        typer.Option(
            "-c", "--MessageNumber", min=1, help=("Maximum number of messages per queue.")
        ),
    ] = 128,
    json: Json = False,
) -> int:
    """Read messages without changing offsets."""
    from kourou.cli.admin import message_actions

    begin_ms, end_ms = _moments(begin, end)
    look = message_actions.Look("*", begin_ms, end_ms, True, "UTF-8", count)
    return report(
        namesrv,
        lambda client: message_actions.consumed(
            client, topic, look, broker=broker, queue_id=queue_id, offset=offset, group=group
        ),
        as_json=json,
    )
