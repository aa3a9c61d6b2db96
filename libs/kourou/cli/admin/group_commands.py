"""`kourou admin`: the commands for groups, their consumers and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.options import (
    Broker,
    Group,
    Json,
    NameServer,
    OneBroker,
    OneCluster,
    OneTopic,
    Switch,
    Topic,
    command,
    moment,
    report,
)

if TYPE_CHECKING:
    from kourou.cli.admin.report import Report
    from kourou.sync import Client

Force = Annotated[
    Switch, typer.Option("-f", "--force", help=("Allow moving forward as well as back."))
]
OneClient = Annotated[
    str | None, typer.Option("-i", "--clientId", help="Only the consumer with this client ID.")
]


@command("updateSubGroup", "Create or change a consumer group.")
def update_group(
    group: Group,
    namesrv: NameServer = None,
    enable: Annotated[
        Switch | None, typer.Option("-s", "--consumeEnable", help="Enable consumption.")
    ] = None,
    from_min: Annotated[
        Switch | None,
        typer.Option(
            "-m",
            "--consumeFromMinEnable",
            help=("Allow consumption from the minimum offset, as in RocketMQ."),
        ),
    ] = None,
    broadcast: Annotated[
        Switch | None, typer.Option("-d", "--consumeBroadcastEnable", help="Enable broadcasting.")
    ] = None,
    retry_queues: Annotated[
        int | None,
        typer.Option(
            "-q", "--retryQueueNums", min=1, help=("Number of queues of the retry topic.")
        ),
    ] = None,
    retry_max: Annotated[
        int | None, typer.Option("-r", "--retryMaxTimes", min=0, help="Maximum number of retries.")
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option("-i", "--brokerId", min=0, help="The brokerId to read from.")
    ] = None,
    slow_id: Annotated[
        int | None,
        typer.Option(
            "-w",
            "--whichBrokerWhenConsumeSlowly",
            min=0,
            help=("The brokerId to read from when the group lags."),
        ),
    ] = None,
    notify: Annotated[
        Switch | None,
        typer.Option("-a", "--notifyConsumerIdsChanged", help="Notify consumers of group changes."),
    ] = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Create or change a consumer group; options left out get their default."""
    from kourou.cli.admin import group_actions

    wanted = {
        "consume_enable": None if enable is None else enable.on,
        "consume_from_min_enable": None if from_min is None else from_min.on,
        "consume_broadcast_enable": None if broadcast is None else broadcast.on,
        "retry_queue_nums": retry_queues,
        "retry_max_times": retry_max,
        "broker_id": broker_id,
        "which_broker_when_consume_slowly": slow_id,
        "notify_consumer_ids_changed_enable": None if notify is None else notify.on,
    }
    return report(
        namesrv,
        lambda client: group_actions.update_group(
            client,
            group,
            {name: value for name, value in wanted.items() if value is not None},
            broker=broker,
            cluster=cluster,
        ),
        as_json=json,
    )


@command("deleteSubGroup")
def delete_group(
    group: Group,
    namesrv: NameServer = None,
    offsets: Annotated[
        Switch, typer.Option("-r", "--removeOffset", help="Delete its offsets as well.")
    ] = Switch.FALSE,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Delete a consumer group."""
    from kourou.cli.admin import actions

    return report(
        namesrv,
        lambda client: actions.delete_group(
            client, group, remove_offsets=offsets.on, broker=broker, cluster=cluster
        ),
        as_json=json,
    )


@command("subGroupList")
def group_list(namesrv: NameServer = None, json: Json = False) -> int:
    """List consumer groups."""
    from kourou.cli.admin import actions

    return report(namesrv, actions.group_list, as_json=json)


@command("getConsumerConfig")
def group_config(group: Group, namesrv: NameServer = None, json: Json = False) -> int:
    """Show the settings of a consumer group."""
    from kourou.cli.admin import group_actions

    return report(namesrv, lambda client: group_actions.group_config(client, group), as_json=json)


@command("consumerProgress", "Show offsets and lag of one or all groups.")
def consumer_progress(
    namesrv: NameServer = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", "--groupName", "--consumerGroup", help="Only this group."),
    ] = None,
    topic: OneTopic = None,
    owners: Annotated[
        Switch, typer.Option("-s", "--showClientIP", help="Show the consumer that owns each queue.")
    ] = Switch.FALSE,
    json: Json = False,
) -> int:
    """Show a group's offset and lag in every queue."""
    from kourou.cli.admin import actions, group_actions

    def ask(client: Client) -> Report:
        if group is None:
            return group_actions.all_progress(client)
        if owners.on:
            return group_actions.progress_with_owners(client, group, topic)
        return actions.consumer_progress(client, group, topic)

    return report(namesrv, ask, as_json=json)


@command("consumerConnection", "List the connected consumers of a group.")
def consumer_connection(
    group: Group, namesrv: NameServer = None, broker: OneBroker = None, json: Json = False
) -> int:
    """List the connected consumers of a group and their subscriptions."""
    from kourou.cli.admin import group_actions

    return report(
        namesrv, lambda client: group_actions.consumers(client, group, broker), as_json=json
    )


@command("producerConnection", "List the connected producers of a group.")
def producer_connection(
    group: Annotated[
        str, typer.Option("-g", "--group", "--producerGroup", help="The producer group.")
    ],
    namesrv: NameServer = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="Only at brokers with this topic.")
    ] = None,
    json: Json = False,
) -> int:
    """List the connected producers of a group."""
    from kourou.cli.admin import actions

    return report(
        namesrv, lambda client: actions.connections(client, group, producers=True), as_json=json
    )


@command("producer", "List all connected producers.")
def producers(namesrv: NameServer = None, broker: OneBroker = None, json: Json = False) -> int:
    """List all connected producers with group and last heartbeat."""
    from kourou.cli.admin import group_actions

    return report(namesrv, lambda client: group_actions.all_producers(client, broker), as_json=json)


@command("consumerStatus", "Show the status of a group's consumers.")
def consumer_status(
    group: Group,
    namesrv: NameServer = None,
    client_id: OneClient = None,
    broker: OneBroker = None,
    stacks: Annotated[
        bool, typer.Option("-s", "--jstack", help="Include the thread stacks.")
    ] = False,
    json: Json = False,
) -> int:
    """Show rates, queues and offsets reported by every consumer, or all details of one."""
    from kourou.cli.admin import group_actions

    return report(
        namesrv,
        lambda client: group_actions.consumer_status(client, group, client_id, stacks=stacks),
        as_json=json,
    )


@command("brokerConsumeStats", "Show the offsets of all groups at a broker.")
def broker_consume_stats(
    broker: Broker,
    namesrv: NameServer = None,
    level: Annotated[
        int, typer.Option("-l", "--level", min=0, help="Only queues with at least this lag.")
    ] = 0,
    order: Annotated[
        Switch, typer.Option("-o", "--order", help="Only ordered topics.")
    ] = Switch.FALSE,
    timeout: Annotated[
        int | None, typer.Option("-t", "--timeoutMillis", help="Ignored (mqadmin compatibility).")
    ] = None,
    json: Json = False,
) -> int:
    """Show the offset of every group in every queue of one broker."""
    from kourou.cli.admin import group_actions

    return report(
        namesrv,
        lambda client: group_actions.broker_consume_stats(client, broker, level, ordered=order.on),
        as_json=json,
    )


# -- resetting offsets ----------------------------------------------------------------------------


@command("resetOffsetByTime")
def reset_offset(
    group: Group,
    topic: Topic,
    time: Annotated[
        str,
        typer.Option("-s", "--timestamp", help="now, ms, ISO, or yyyy-MM-dd#HH:mm:ss:SSS."),
    ],
    namesrv: NameServer = None,
    force: Force = Switch.TRUE,
    cplus: Annotated[bool, typer.Option("-c", "--cplus", help="For C++ clients.")] = False,
    json: Json = False,
) -> int:
    """Reset a group's offsets to a time."""
    from kourou.cli.admin import actions

    at_ms = moment(time)
    return report(
        namesrv,
        lambda client: actions.reset_offsets(client, group, topic, at_ms, force=force.on),
        as_json=json,
    )


@command("skipAccumulatedMessage", "Skip the backlog of a group.")
def skip_backlog(
    group: Group,
    topic: Topic,
    namesrv: NameServer = None,
    force: Force = Switch.TRUE,
    json: Json = False,
) -> int:
    """Reset a group's offsets to the end; the backlog is not consumed."""
    from kourou.cli.admin import actions

    return report(namesrv, lambda client: actions.skip_backlog(client, group, topic), as_json=json)


@command("cloneGroupOffset")
def clone_offset(
    source: Annotated[str, typer.Option("-s", "--srcGroup", help="The group to copy from.")],
    target: Annotated[str, typer.Option("-d", "--destGroup", help="The group to copy to.")],
    topic: Topic,
    namesrv: NameServer = None,
    offline: Annotated[
        Switch, typer.Option("-o", "--offline", help="Ignored (mqadmin compatibility).")
    ] = Switch.FALSE,
    json: Json = False,
) -> int:
    """Copy the offsets of one group to another."""
    from kourou.cli.admin import actions

    return report(
        namesrv, lambda client: actions.clone_offsets(client, source, target, topic), as_json=json
    )


# -- dead letters ---------------------------------------------------------------------------------

Count = Annotated[int, typer.Option("--max", min=1, max=10_000, help="Maximum number of results.")]
Ids = Annotated[
    list[str] | None, typer.Option("-i", "--msgId", help="Only this message (repeatable).")
]


@command("deadLetters", "List the dead letters of a group.")
def dead_letters(
    group: Group, namesrv: NameServer = None, count: Count = 64, json: Json = False
) -> int:
    """List the unhandled dead letters of a group, oldest first."""
    from kourou.cli.admin import dead_letter_actions

    return report(
        namesrv, lambda client: dead_letter_actions.listed(client, group, count), as_json=json
    )


@command("resendDeadLetters", "Redeliver dead letters to their group.")
def resend_dead_letters(
    group: Group, namesrv: NameServer = None, ids: Ids = None, count: Count = 64, json: Json = False
) -> int:
    """Redeliver dead letters to their group: all that `deadLetters` lists, or -i."""
    from kourou.cli.admin import dead_letter_actions

    return report(
        namesrv,
        lambda client: dead_letter_actions.resent(client, group, ids or [], count),
        as_json=json,
    )


@command("discardDeadLetters", "Discard dead letters.")
def discard_dead_letters(
    group: Group,
    namesrv: NameServer = None,
    until: Annotated[
        str | None,
        typer.Option("-i", "--msgId", help="Up to this message (default: all that are listed)."),
    ] = None,
    count: Count = 64,
    json: Json = False,
) -> int:
    """Discard dead letters: they are no longer listed, and stay in the log until it expires."""
    from kourou.cli.admin import dead_letter_actions

    return report(
        namesrv,
        lambda client: dead_letter_actions.discarded(client, group, until, count),
        as_json=json,
    )
