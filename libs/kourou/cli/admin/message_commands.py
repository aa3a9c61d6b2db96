"""`kourou admin`: the commands about messages and their arguments.

Lives here: names and letters. May not live here: what a command does (kourou.cli.admin.actions,
message_actions), which is imported when one is called.
"""

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

MessageId = Annotated[str, typer.Option("-i", "--msgId", help="The message's id, of either kind.")]
MaybeTopic = Annotated[
    str | None, typer.Option("-t", "--topic", help="Its topic: needed for a unique key.")
]
MaybeGroup = Annotated[
    str | None,
    typer.Option("-g", "--group", "--consumerGroup", help="Let this group consume it now."),
]
MaybeClient = Annotated[
    str | None, typer.Option("-d", "--clientId", help="This member of it; else the last heard.")
]
Begin = Annotated[str | None, typer.Option("-b", "--beginTimestamp", help="Stored from then on.")]
End = Annotated[str | None, typer.Option("-e", "--endTimestamp", help="Stored until then.")]
Charset = Annotated[str, typer.Option("-c", "--charsetName", help="Of the bodies.")]
SubExpression = Annotated[
    str, typer.Option("-s", "--subExpression", help="Tags, like 'TagA || TagB'; * for all.")
]
PrintBody = Annotated[Switch, typer.Option("-d", "--printBody", help="And their bodies.")]
Most = Annotated[int, typer.Option("--max", min=1, help="At most so many.")]


def _moments(begin: str | None, end: str | None) -> tuple[int | None, int | None]:
    return (
        None if begin is None else moment(begin),
        None if end is None else moment(end),
    )


@command("queryMsgById", "One message; or give it to a consumer again.")
def message_by_id(
    message_id: MessageId,
    namesrv: NameServer = None,
    topic: MaybeTopic = None,
    group: MaybeGroup = None,
    client_id: MaybeClient = None,
    again: Annotated[
        Switch, typer.Option("-s", "--sendMessage", help="Send it to its topic once more.")
    ] = Switch.FALSE,
    unit: Annotated[str | None, typer.Option("-u", "--unitName", help="Of no matter here.")] = None,
    json: Json = False,
) -> int:
    """One message by its id: shown, or consumed directly (-g), or sent again (-s true)."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv,
        lambda client: message_actions.by_id(
            client, message_id, topic, group=group, client_id=client_id, again=again.on
        ),
        as_json=json,
    )


@command("queryMsgByUniqueKey", "Messages by the id that their producer gave.")
def message_by_unique_key(
    message_id: MessageId,
    topic: Topic,
    namesrv: NameServer = None,
    group: MaybeGroup = None,
    client_id: MaybeClient = None,
    show_all: Annotated[
        bool, typer.Option("-a", "--showAll", help="All copies, also those that were retried.")
    ] = False,
    json: Json = False,
) -> int:
    """The message with a unique key, or every copy of it; or let a group consume it (-g)."""
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
    begin: Annotated[str, typer.Option(help="Stored from then on.")] = "0",
    end: Annotated[str | None, typer.Option(help="Stored until then.")] = None,
    count: Annotated[int, typer.Option("--max", min=1, max=64, help="At most; a broker.")] = 32,
    json: Json = False,
) -> int:
    """Messages with a business key, newest first."""
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


@command("queryMsgByOffset", "The message at a place in a queue.")
def message_by_offset(
    topic: Topic,
    broker: Annotated[str, typer.Option("-b", "--broker", "--brokerName", help="The broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, help="The queue.")],
    offset: Annotated[int, typer.Option("-o", "--offset", min=0, help="The offset in it.")],
    namesrv: NameServer = None,
    json: Json = False,
) -> int:
    """The message at an offset of a queue."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv,
        lambda client: message_actions.by_offset(client, topic, broker, queue_id, offset),
        as_json=json,
    )


@command("queryMsgTraceById", "What clients with message traces wrote of a message.")
def message_trace(
    message_id: MessageId,
    namesrv: NameServer = None,
    trace_topic: Annotated[
        str, typer.Option("-t", "--traceTopic", help="Where traces are kept.")
    ] = "RMQ_SYS_TRACE_TOPIC",
    json: Json = False,
) -> int:
    """Who sent a message, who consumed it, when, how long it took, and whether it worked."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv,
        lambda client: message_actions.trace(client, message_id, trace_topic),
        as_json=json,
    )


@command("messageTrack", "Which groups have consumed a message.")
def message_track(
    message_id: MessageId, namesrv: NameServer = None, topic: MaybeTopic = None, json: Json = False
) -> int:
    """For every group of its topic: consumed, not yet, filtered out, and why that is known."""
    from kourou.cli.admin import message_actions

    return report(
        namesrv, lambda client: message_actions.tracks(client, message_id, topic), as_json=json
    )


@command("printMsg", "The messages of a topic.")
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
    """The messages of every queue of a topic, one queue after the other."""
    from kourou.cli.admin import message_actions

    begin_ms, end_ms = _moments(begin, end)
    look = message_actions.Look(tags, begin_ms, end_ms, body.on, charset, count)
    return report(
        namesrv,
        lambda client: message_actions.messages_of(client, topic, look),
        as_json=json,
    )


@command("printMsgByQueue", "The messages of one queue, or their tags.")
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
        Switch, typer.Option("-p", "--printMsg", help="The messages themselves.")
    ] = Switch.FALSE,
    calculate: Annotated[
        Switch, typer.Option("-f", "--calculate", help="How many have which tag.")
    ] = Switch.FALSE,
    charset: Charset = "UTF-8",
    count: Most = 100_000,
    json: Json = False,
) -> int:
    """What one queue holds: its messages (-p), or how many of which tag (-f)."""
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


@command("queryCq", "Units of a queue: positions, sizes, tag codes.")
def queue_units(
    topic: Topic,
    queue_id: Annotated[int, typer.Option("-q", "--queue", min=0, help="The queue.")],
    index: Annotated[int, typer.Option("-i", "--index", min=0, help="The first offset.")],
    namesrv: NameServer = None,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="How many.")] = 10,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="The broker; else the first that has it.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("-g", "--consumer", help="Would this group get them?")
    ] = None,
    json: Json = False,
) -> int:
    """What a consume queue keeps of its messages."""
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
    body: Annotated[str, typer.Option("-p", "--body", help="Its text.")],
    namesrv: NameServer = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Its keys, by blanks.")] = None,
    tag: Annotated[str | None, typer.Option("-c", "--tags", help="Its tag.")] = None,
    broker: Annotated[str | None, typer.Option("-b", "--broker", help="To this broker.")] = None,
    queue_id: Annotated[
        int | None, typer.Option("-i", "--qid", min=0, help="Into this queue; with -b.")
    ] = None,
    traced: Annotated[
        Switch, typer.Option("-m", "--msgTraceEnable", help="With a message trace.")
    ] = Switch.FALSE,
    json: Json = False,
) -> int:
    """Send one message and say where it went."""
    from kourou.cli.admin import message_actions

    return message_actions.send(
        namesrv,
        topic,
        body,
        message_actions.Sending(key, tag, broker, queue_id, traced.on),
        as_json=json,
    )


@command("consumeMessage", "Look at messages; nobody's progress is touched.")
def consume_message(
    topic: Topic,
    namesrv: NameServer = None,
    broker: Annotated[
        str | None, typer.Option("-b", "--brokerName", help="Only of this broker.")
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option("-i", "--queueId", min=0, help="Only this queue.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("-o", "--offset", min=0, help="From this offset on.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", "--consumerGroup", help="In the name of this group."),
    ] = None,
    begin: Annotated[
        str | None, typer.Option("-s", "--beginTimestamp", help="Stored from then on.")
    ] = None,
    end: End = None,
    count: Annotated[
        int, typer.Option("-c", "--MessageNumber", min=1, help="At most so many of a queue.")
    ] = 128,
    json: Json = False,
) -> int:
    """Read messages; nobody's progress is touched."""
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
