"""`kourou admin`: the commands and their arguments.

Lives here: names and letters, which are those of RocketMQ's mqadmin. May not live here: what a
command does (kourou.cli.admin.actions), which is imported when one is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kourou.cli.admin.report import Report
    from kourou.sync import Client

admin = typer.Typer(help="What operators do, by the names of RocketMQ's mqadmin.")

NameServer = Annotated[
    str | None,
    typer.Option(
        "-n", "--namesrv", metavar="ADDR", help="Name servers, host:port;…; else NAMESRV_ADDR."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One object a row.")]
Topic = Annotated[str, typer.Option("-t", "--topic", help="The topic.")]
Group = Annotated[str, typer.Option("-g", "--group", help="The group.")]
Broker = Annotated[str, typer.Option("-b", "--broker", help="A broker's name, or its address.")]
OneBroker = Annotated[
    str | None, typer.Option("-b", "--broker", help="Only this one: its name, or its address.")
]
OneCluster = Annotated[str | None, typer.Option("-c", "--cluster", help="Only this cluster.")]

TO_THE_END_MS = 2**62
GROUP = "kourou-admin"


def _report(namesrv: str | None, ask: Callable[[Client], Report], *, as_json: bool) -> None:
    from kourou.sync import Client

    with Client(namesrv, group=GROUP) as client:
        ask(client).show(as_json=as_json)


def _now_ms() -> int:
    from kourou.clock import SystemClock

    return SystemClock().now_ms()


# -- topics ---------------------------------------------------------------------------------------
@admin.command("updateTopic", short_help="Create or change a topic.")
def update_topic(
    topic: Topic,
    namesrv: NameServer = None,
    write: Annotated[int, typer.Option("-w", min=1, help="Write queues.")] = 8,
    read: Annotated[int | None, typer.Option("-r", min=1, help="Read queues; else as -w.")] = None,
    perm: Annotated[int, typer.Option("-p", help="2 write, 4 read, 6 both.")] = 6,
    order: Annotated[bool, typer.Option("-o", help="An ordered topic.")] = False,
    cluster: OneCluster = None,
    json: Json = False,
) -> None:
    """Create a topic, or change its queues and permission."""
    from kourou.cli.admin import actions

    queues = write if read is None else read
    _report(
        namesrv,
        lambda client: actions.update_topic(
            client, topic, write=write, read=queues, perm=perm, order=order, cluster=cluster
        ),
        as_json=json,
    )


@admin.command("deleteTopic", short_help="Delete a topic, its queues, all progress in it.")
def delete_topic(topic: Topic, namesrv: NameServer = None, cluster: OneCluster = None) -> None:
    """Delete a topic, its queues and all groups' progress in it."""
    from kourou.cli.admin import actions

    _report(
        namesrv, lambda client: actions.delete_topic(client, topic, cluster=cluster), as_json=False
    )


@admin.command("topicList")
def topic_list(namesrv: NameServer = None, json: Json = False) -> None:
    """The names of all topics."""
    from kourou.cli.admin import actions

    _report(namesrv, actions.topic_list, as_json=json)


@admin.command("topicRoute")
def topic_route(topic: Topic, namesrv: NameServer = None, json: Json = False) -> None:
    """Which brokers have a topic's queues."""
    from kourou.cli.admin import actions

    _report(namesrv, lambda client: actions.topic_route(client, topic), as_json=json)


@admin.command("topicStatus", short_help="Bounds of every queue, and its last write.")
def topic_status(topic: Topic, namesrv: NameServer = None, json: Json = False) -> None:
    """Smallest and next offset of every queue, and when it was last written."""
    from kourou.cli.admin import actions

    _report(namesrv, lambda client: actions.topic_status(client, topic), as_json=json)


# -- groups ---------------------------------------------------------------------------------------
@admin.command("updateSubGroup")
def update_group(group: Group, namesrv: NameServer = None, cluster: OneCluster = None) -> None:
    """Create a consumer group."""
    from kourou.cli.admin import actions

    _report(
        namesrv, lambda client: actions.update_group(client, group, cluster=cluster), as_json=False
    )


@admin.command("deleteSubGroup")
def delete_group(
    group: Group,
    namesrv: NameServer = None,
    offsets: Annotated[bool, typer.Option("-r", help="Its progress, too.")] = False,
) -> None:
    """Delete a consumer group."""
    from kourou.cli.admin import actions

    _report(
        namesrv,
        lambda client: actions.delete_group(client, group, remove_offsets=offsets),
        as_json=False,
    )


@admin.command("subGroupList")
def group_list(namesrv: NameServer = None, json: Json = False) -> None:
    """All consumer groups."""
    from kourou.cli.admin import actions

    _report(namesrv, actions.group_list, as_json=json)


@admin.command("consumerProgress", short_help="How far a group is in every queue.")
def consumer_progress(
    group: Group,
    namesrv: NameServer = None,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
    json: Json = False,
) -> None:
    """How far a group is in every queue, and what lies before it."""
    from kourou.cli.admin import actions

    _report(namesrv, lambda client: actions.consumer_progress(client, group, topic), as_json=json)


@admin.command("consumerConnection")
def consumer_connection(group: Group, namesrv: NameServer = None, json: Json = False) -> None:
    """Which consumers of a group are connected."""
    from kourou.cli.admin import actions

    _report(
        namesrv, lambda client: actions.connections(client, group, producers=False), as_json=json
    )


@admin.command("producerConnection")
def producer_connection(group: Group, namesrv: NameServer = None, json: Json = False) -> None:
    """Which producers of a group are connected."""
    from kourou.cli.admin import actions

    _report(
        namesrv, lambda client: actions.connections(client, group, producers=True), as_json=json
    )


@admin.command("resetOffsetByTime")
def reset_offset(
    group: Group,
    topic: Topic,
    time: Annotated[str, typer.Option("-s", help="now, ms, ISO, or yyyy-MM-dd#HH:mm:ss:SSS.")],
    namesrv: NameServer = None,
    force: Annotated[bool, typer.Option("-f/-F", help="Forward as well as back.")] = True,
    json: Json = False,
) -> None:
    """Move a group to what was stored at a time."""
    from kourou.cli.admin import actions
    from kourou.cli.admin.moments import moment_ms

    at_ms = moment_ms(time, _now_ms())
    _report(
        namesrv,
        lambda client: actions.reset_offsets(client, group, topic, at_ms, force=force),
        as_json=json,
    )


@admin.command("skipAccumulatedMessage", short_help="Move a group to the end, past what waits.")
def skip_backlog(
    group: Group, topic: Topic, namesrv: NameServer = None, json: Json = False
) -> None:
    """Move a group to the end: what lies before it is not consumed."""
    from kourou.cli.admin import actions

    _report(namesrv, lambda client: actions.skip_backlog(client, group, topic), as_json=json)


@admin.command("cloneGroupOffset")
def clone_offset(
    source: Annotated[str, typer.Option("-s", help="The group that is there.")],
    target: Annotated[str, typer.Option("-d", help="The group that is to begin there.")],
    topic: Topic,
    namesrv: NameServer = None,
    json: Json = False,
) -> None:
    """Let one group begin where another stands."""
    from kourou.cli.admin import actions

    _report(
        namesrv, lambda client: actions.clone_offsets(client, source, target, topic), as_json=json
    )


# -- messages -------------------------------------------------------------------------------------
@admin.command("queryMsgById")
def message_by_id(
    message_id: Annotated[
        str, typer.Option("-i", help="Offset message id; or, with -t, what send prints.")
    ],
    namesrv: NameServer = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="Its topic: needed for a unique key.")
    ] = None,
    json: Json = False,
) -> None:
    """One message by its id."""
    from kourou.cli.admin import actions

    _report(namesrv, lambda client: actions.message_by_id(client, topic, message_id), as_json=json)


@admin.command("queryMsgByKey")
def messages_by_key(
    topic: Topic,
    key: Annotated[str, typer.Option("-k", "--key", help="The business key.")],
    namesrv: NameServer = None,
    begin: Annotated[str, typer.Option(help="Stored from then on.")] = "0",
    end: Annotated[str | None, typer.Option(help="Stored until then.")] = None,
    count: Annotated[int, typer.Option("--max", min=1, max=64, help="At most; a broker.")] = 32,
    json: Json = False,
) -> None:
    """Messages with a business key, newest first."""
    from kourou.cli.admin import actions
    from kourou.cli.admin.moments import moment_ms

    begin_ms = moment_ms(begin, _now_ms())
    end_ms = TO_THE_END_MS if end is None else moment_ms(end, _now_ms())
    _report(
        namesrv,
        lambda client: actions.messages_by_key(
            client, topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count
        ),
        as_json=json,
    )


# -- brokers --------------------------------------------------------------------------------------
@admin.command("clusterList")
def cluster_list(namesrv: NameServer = None, json: Json = False) -> None:
    """All clusters, their brokers and addresses."""
    from kourou.cli.admin import actions

    _report(namesrv, actions.cluster_list, as_json=json)


@admin.command("brokerStatus")
def broker_status(broker: Broker, namesrv: NameServer = None, json: Json = False) -> None:
    """Rates, bounds and sizes of a broker."""
    from kourou.cli.admin import actions

    _report(namesrv, lambda client: actions.broker_status(client, broker), as_json=json)


@admin.command("getBrokerConfig")
def broker_config(broker: Broker, namesrv: NameServer = None, json: Json = False) -> None:
    """Every setting of a broker, as it is now."""
    from kourou.cli.admin import actions

    _report(namesrv, lambda client: actions.broker_config(client, broker), as_json=json)


@admin.command("updateBrokerConfig")
def update_broker_config(
    broker: Broker,
    key: Annotated[str, typer.Option("-k", "--key", help="A key that may change at run time.")],
    value: Annotated[str, typer.Option("-v", "--value", help="Its value.")],
    namesrv: NameServer = None,
    json: Json = False,
) -> None:
    """Change a setting while the broker runs."""
    from kourou.cli.admin import actions

    _report(
        namesrv,
        lambda client: actions.update_broker_config(client, broker, key, value),
        as_json=json,
    )


@admin.command("wipeWritePerm", short_help="No more sends to a broker, before it stops.")
def wipe_write_perm(broker: Broker, namesrv: NameServer = None) -> None:
    """Take a broker out of the routes for sending, before it is stopped."""
    from kourou.cli.admin import actions

    _report(
        namesrv, lambda client: actions.write_permission(client, broker, wipe=True), as_json=False
    )


@admin.command("addWritePerm", short_help="Sends to that broker again.")
def add_write_perm(broker: Broker, namesrv: NameServer = None) -> None:
    """Put a broker back into the routes for sending."""
    from kourou.cli.admin import actions

    _report(
        namesrv, lambda client: actions.write_permission(client, broker, wipe=False), as_json=False
    )


@admin.command("deleteExpiredCommitLog")
def delete_expired(
    namesrv: NameServer = None, broker: OneBroker = None, cluster: OneCluster = None
) -> None:
    """Delete expired log segments now, at whatever hour."""
    from kourou.cli.admin import actions

    _report(namesrv, lambda client: actions.delete_expired(client, broker, cluster), as_json=False)


@admin.command("cleanExpiredCQ", short_help="Delete queue and index files that expired.")
def clean_queues(
    namesrv: NameServer = None, broker: OneBroker = None, cluster: OneCluster = None
) -> None:
    """Delete files of queues and index that name only expired messages."""
    from kourou.cli.admin import actions

    _report(namesrv, lambda client: actions.clean_queues(client, broker, cluster), as_json=False)
