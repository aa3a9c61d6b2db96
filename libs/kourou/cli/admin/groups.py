"""`kourou admin`: the commands for groups, their consumers, offsets and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.brokers import broker_name
from kourou.cli.admin.command import (
    TEXT,
    Broker,
    Group,
    OneBroker,
    OneCluster,
    OneTopic,
    Switch,
    Topic,
    command,
    moment,
)
from kourou.cli.admin.report import Report, local_time
from kourou.errors import GroupNotFound, KourouError
from kourou.model.subscription import GroupConfig
from kourou.model.topic import MessageQueue

if TYPE_CHECKING:
    from kourou.client.admin.dead_letters import StoredDeadLetter
    from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo
    from kourou.sync import Client

Force = Annotated[
    Switch, typer.Option("-f", "--force", help=("Allow moving forward as well as back."))
]
OneClient = Annotated[
    str | None, typer.Option("-i", "--clientId", help="Only the consumer with this client ID.")
]


@command("updateSubGroup", "Create or change a consumer group.")
def update_group(
    client: Client,
    group: Group,
    *,
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
) -> Report:
    """Create or change a consumer group; options left out get their default."""
    given = {
        "consume_enable": None if enable is None else enable.on,
        "consume_from_min_enable": None if from_min is None else from_min.on,
        "consume_broadcast_enable": None if broadcast is None else broadcast.on,
        "retry_queue_nums": retry_queues,
        "retry_max_times": retry_max,
        "broker_id": broker_id,
        "which_broker_when_consume_slowly": slow_id,
        "notify_consumer_ids_changed_enable": None if notify is None else notify.on,
    }
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    config = replace(GroupConfig(group), **settings)
    client.admin.groups.create(config, broker=broker, cluster=cluster)
    return group_config(client, group)


@command("deleteSubGroup")
def delete_group(
    client: Client,
    group: Group,
    *,
    offsets: Annotated[
        Switch, typer.Option("-r", "--removeOffset", help="Delete its offsets as well.")
    ] = Switch.FALSE,
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Delete a consumer group."""
    known = any(one.name == group for one in client.admin.groups.list())
    # Offsets can outlive their group, so brokers are asked to delete them in any case.
    if not known and not offsets.on:
        raise GroupNotFound(f"group {group!r} not found; nothing was deleted")
    client.admin.groups.delete(group, remove_offsets=offsets.on, broker=broker, cluster=cluster)
    if not known:
        return Report(remarks=[f"group {group} not found; its offsets, if any, were deleted"])
    return Report(remarks=[f"deleted {group}"])


@command("subGroupList")
def group_list(client: Client) -> Report:
    """List consumer groups."""
    rows = [
        (one.name, one.consume_enable, one.retry_max_times) for one in client.admin.groups.list()
    ]
    return Report(("group", "may consume", "attempts"), rows)


@command("getConsumerConfig")
def group_config(client: Client, group: Group) -> Report:
    """Show the settings of a consumer group."""
    configs = {
        name: groups[group]
        for name, groups in client.admin.groups.configs().items()
        if group in groups
    }
    if not configs:
        raise GroupNotFound(f"group {group!r} not found")
    names = [one.name for one in fields(GroupConfig) if one.name != "name"]
    rows = [
        (broker, *(getattr(config, name) for name in names))
        for broker, config in sorted(configs.items())
    ]
    return Report(("broker", *names), rows)


# -- progress -------------------------------------------------------------------------------------


@command("consumerProgress", "Show offsets and lag of one or all groups.")
def consumer_progress(
    client: Client,
    *,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", "--groupName", "--consumerGroup", help="Only this group."),
    ] = None,
    topic: OneTopic = None,
    owners: Annotated[
        Switch, typer.Option("-s", "--showClientIP", help="Show the consumer that owns each queue.")
    ] = Switch.FALSE,
) -> Report:
    """Show a group's offset and lag in every queue."""
    if group is None:
        return _all_progress(client)
    return progress(client, group, topic, _owners(client, group) if owners.on else None)


def progress(
    client: Client,
    group: str,
    topic: str | None,
    owners: Mapping[MessageQueue, str] | None = None,
) -> Report:
    """A group's offset and lag in every queue, and with `owners` the consumer of the queue."""
    rows = [
        (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            one.broker_offset,
            one.consumer_offset,
            max(0, one.broker_offset - one.consumer_offset),
            *(() if owners is None else (owners.get(queue),)),
            local_time(one.last_timestamp),
        )
        for queue, one in client.admin.offsets.of(group, topic).items()
    ]
    member = () if owners is None else ("member",)
    columns = ("topic", "broker", "queue", "end", "group", "lag", *member, "last consumed")
    return Report(columns, rows, [f"lag {sum(row[5] for row in rows):,} in all"])


def _all_progress(client: Client) -> Report:
    """Every group that exists or has offsets: consumers, lag."""
    lags: dict[str, int] = {}
    for broker in client.admin.brokers.names():
        for name, topics in client.admin.offsets.everywhere(broker).groups.items():
            lag = sum(
                max(0, one.broker_offset - one.consumer_offset)
                for stats in topics
                for one in stats.offsets.values()
            )
            lags[name] = lags.get(name, 0) + lag
    rows = []
    for group in sorted({one.name for one in client.admin.groups.list()} | set(lags)):
        model, version, count = _connected(client, group)
        rows.append((group, count, version, model, lags.get(group)))
    return Report(("group", "members", "version", "model", "lag"), rows)


def _connected(client: Client, group: str) -> tuple[str | None, int | None, int]:
    """The message model, the lowest version and the number of a group's consumers."""
    try:
        connected = client.admin.groups.connections(group)
    except KourouError:  # no consumer is connected
        return None, None, 0
    versions = [consumer.version for consumer in connected.connections]
    return connected.message_model.value, min(versions), len(versions)


def _owners(client: Client, group: str) -> dict[MessageQueue, str]:
    """The consumer of each queue, as consumers report it."""
    from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo

    return {
        queue: client_id
        for client_id, info in client.admin.members.running_infos(group).items()
        if isinstance(info, ConsumerRunningInfo)
        for queue in info.queues
    }


# -- consumers and producers ----------------------------------------------------------------------


@command("consumerConnection", "List the connected consumers of a group.")
def consumer_connection(client: Client, group: Group, *, broker: OneBroker = None) -> Report:
    """List the connected consumers of a group and their subscriptions."""
    connected = client.admin.groups.connections(group)
    rows = [
        (one.client_id, one.client_addr, one.language, one.version) for one in connected.connections
    ]
    remarks = [
        f"{topic}: {one.expression} ({one.kind})"
        for topic, one in sorted(connected.subscriptions.items())
    ]
    remarks.append(f"{connected.consume_type.value} {connected.message_model.value}")
    return Report(("client", "address", "language", "version"), rows, remarks)


@command("producerConnection", "List the connected producers of a group.")
def producer_connection(
    client: Client,
    group: Annotated[
        str, typer.Option("-g", "--group", "--producerGroup", help="The producer group.")
    ],
    *,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="Only at brokers with this topic.")
    ] = None,
) -> Report:
    """List the connected producers of a group."""
    rows = [
        (one.client_id, one.client_addr, one.language, one.version)
        for one in client.admin.groups.producers(group)
    ]
    return Report(("client", "address", "language", "version"), rows)


@command("producer", "List all connected producers.")
def all_producers(client: Client, *, broker: OneBroker = None) -> Report:
    """List all connected producers with group and last heartbeat."""
    rows = [
        (
            group,
            one.client_id,
            one.remote_ip,
            one.language,
            one.version,
            local_time(one.last_update_timestamp),
        )
        for group, producers in client.admin.members.all_producers(broker).items()
        for one in producers
    ]
    remarks = [] if rows else ["no producer is connected"]
    columns = ("group", "client", "address", "language", "version", "last heartbeat")
    return Report(columns, rows, remarks)


@command("consumerStatus", "Show the status of a group's consumers.")
def consumer_status(
    client: Client,
    group: Group,
    *,
    client_id: OneClient = None,
    broker: OneBroker = None,
    stacks: Annotated[
        bool, typer.Option("-s", "--jstack", help="Include the thread stacks.")
    ] = False,
) -> Report:
    """Show rates, queues and offsets reported by every consumer, or all details of one."""
    if client_id is not None:
        return _details(client.admin.members.running_info(group, client_id, stacks=stacks))
    rows = []
    remarks = []
    for name, info in client.admin.members.running_infos(group, stacks=stacks).items():
        if isinstance(info, KourouError):
            remarks.append(f"{name} does not answer: {info}")
            continue
        rows += [
            (
                name,
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                one.commit_offset,
                one.cached_msg_count,
                one.locked,
                local_time(one.last_consume_timestamp),
            )
            for queue, one in sorted(info.queues.items())
        ]
        if stacks and info.jstack:
            remarks += [f"{name}:", info.jstack]
    columns = ("client", "topic", "broker", "queue", "at", "waiting", "locked", "last consumed")
    return Report(columns, rows, remarks, failed=any("does not answer" in one for one in remarks))


def _details(info: ConsumerRunningInfo) -> Report:
    """Everything that one consumer reports."""
    rows: list[tuple[str, str, Any]] = [
        ("setting", name, value) for name, value in sorted(info.properties.items())
    ]
    rows += [("subscription", one.topic, one.expression) for one in info.subscriptions]
    for queue, one in sorted(info.queues.items()):
        rows.append(
            ("queue", str(queue), (f"offset {one.commit_offset}, {one.cached_msg_count} cached"))
        )
    for topic, rate in sorted(info.rates.items()):
        rates = (
            f"{rate.consume_ok_tps:.2f} consumed/s, {rate.consume_failed_tps:.2f} failed/s, "
            f"{rate.pull_tps:.2f} pulled/s, {rate.consume_rt:.2f} ms each"
        )
        rows.append(("rates", topic, rates))
    return Report(("kind", "name", "value"), rows, [info.jstack] if info.jstack else [])


# -- offsets --------------------------------------------------------------------------------------


@command("brokerConsumeStats", "Show the offsets of all groups at a broker.")
def broker_consume_stats(
    client: Client,
    broker: Broker,
    *,
    level: Annotated[
        int, typer.Option("-l", "--level", min=0, help="Only queues with at least this lag.")
    ] = 0,
    order: Annotated[
        Switch, typer.Option("-o", "--order", help="Only ordered topics.")
    ] = Switch.FALSE,
    timeout: Annotated[
        int | None, typer.Option("-t", "--timeoutMillis", help="Ignored (mqadmin compatibility).")
    ] = None,
) -> Report:
    """Show the offset of every group in every queue of one broker."""
    stats = client.admin.offsets.everywhere(broker_name(client, broker), ordered_only=order.on)
    rows = [
        (
            queue.topic,
            group,
            queue.broker_name,
            queue.queue_id,
            one.broker_offset,
            one.consumer_offset,
            lag,
            local_time(one.last_timestamp),
        )
        for group, topics in sorted(stats.groups.items())
        for topic in topics
        for queue, one in sorted(topic.offsets.items())
        if (lag := max(0, one.broker_offset - one.consumer_offset)) >= level
    ]
    columns = ("topic", "group", "broker", "queue", "end", "at", "lag", "last consumed")
    return Report(columns, rows, [f"lag {stats.total_lag:,} in all"])


@command("resetOffsetByTime")
def reset_offsets(
    client: Client,
    group: Group,
    topic: Topic,
    time: Annotated[
        int,
        typer.Option(
            "-s",
            "--timestamp",
            parser=moment,
            metavar=TEXT,
            help="now, ms, ISO, or yyyy-MM-dd#HH:mm:ss:SSS.",
        ),
    ],
    *,
    force: Force = Switch.TRUE,
    cplus: Annotated[bool, typer.Option("-c", "--cplus", help="For C++ clients.")] = False,
) -> Report:
    """Reset a group's offsets to a time."""
    new = client.admin.offsets.reset(group, topic, time, force=force.on)
    rows = [(queue.broker_name, queue.queue_id, offset) for queue, offset in new.items()]
    return Report(("broker", "queue", "offset"), rows)


@command("skipAccumulatedMessage", "Skip the backlog of a group.")
def skip_backlog(
    client: Client, group: Group, topic: Topic, *, force: Force = Switch.TRUE
) -> Report:
    """Reset a group's offsets to the end; the backlog is not consumed."""
    from kourou.client.admin.groups import TO_THE_END_MS

    return reset_offsets(client, group, topic, TO_THE_END_MS)


@command("cloneGroupOffset")
def clone_offsets(
    client: Client,
    source: Annotated[str, typer.Option("-s", "--srcGroup", help="The group to copy from.")],
    target: Annotated[str, typer.Option("-d", "--destGroup", help="The group to copy to.")],
    topic: Topic,
    *,
    offline: Annotated[
        Switch, typer.Option("-o", "--offline", help="Ignored (mqadmin compatibility).")
    ] = Switch.FALSE,
) -> Report:
    """Copy the offsets of one group to another."""
    client.admin.offsets.clone(source, target, topic)
    return progress(client, target, topic)


# -- dead letters ---------------------------------------------------------------------------------

Count = Annotated[int, typer.Option("--max", min=1, max=10_000, help="Maximum number of results.")]
Ids = Annotated[
    list[str] | None, typer.Option("-i", "--msgId", help="Only this message (repeatable).")
]


@command("deadLetters", "List the dead letters of a group.")
def dead_letters(client: Client, group: Group, *, count: Count = 64) -> Report:
    """List the unhandled dead letters of a group, oldest first."""
    listed = client.admin.dead_letters.of(group, count_max=count)
    rows = [
        (
            one.message.queue.broker_name,
            one.message.offset,
            one.message.message_id,
            one.topic,
            one.attempts,
            local_time(one.message.store_timestamp),
            one.reason,
        )
        for one in listed
    ]
    remarks = []
    if len(listed) >= count:
        remarks.append(f"limited to the oldest {count}; there may be more (--max)")
    elif not listed:
        remarks.append(_no_dead_letters(group))
    columns = ("broker", "offset", "message_id", "topic", "attempts", "died", "reason")
    return Report(columns, rows, remarks)


@command("resendDeadLetters", "Redeliver dead letters to their group.")
def resend_dead_letters(
    client: Client, group: Group, *, ids: Ids = None, count: Count = 64
) -> Report:
    """Redeliver dead letters to their group: all that `deadLetters` lists, or -i."""
    listed = client.admin.dead_letters.of(group, count_max=count)
    chosen = [_dead_letter(listed, group, one) for one in ids] if ids else list(listed)
    outcomes = client.admin.dead_letters.resend(group, chosen)
    rows = [
        (one, error is None, None if error is None else str(error))
        for one, error in outcomes.items()
    ]
    failed = any(error is not None for error in outcomes.values())
    remarks = []
    if not ids and not failed and chosen:
        client.admin.dead_letters.deal_with(group, chosen)
    elif not chosen:
        remarks.append(_no_dead_letters(group))
    else:
        remarks.append(
            "they remain listed; discardDeadLetters -i removes them and all earlier ones"
        )
    return Report(("message_id", "sent", "error"), rows, remarks, failed=failed)


@command("discardDeadLetters", "Discard dead letters.")
def discard_dead_letters(
    client: Client,
    group: Group,
    *,
    until: Annotated[
        str | None,
        typer.Option("-i", "--msgId", help="Up to this message (default: all that are listed)."),
    ] = None,
    count: Count = 64,
) -> Report:
    """Discard dead letters: they are no longer listed, and stay in the log until it expires."""
    chosen = list(client.admin.dead_letters.of(group, count_max=count))
    if until is not None:
        last = _dead_letter(chosen, group, until).message
        chosen = [
            one
            for one in chosen
            if one.message.queue == last.queue and one.message.offset <= last.offset
        ]
    client.admin.dead_letters.deal_with(group, chosen)
    rows = [(one.message.message_id, one.topic, one.reason) for one in chosen]
    return Report(("message_id", "topic", "reason"), rows, [f"{len(rows)} are no longer listed"])


def _no_dead_letters(group: str) -> str:
    return f"the group {group} has no dead letters"


def _dead_letter(
    listed: Sequence[StoredDeadLetter], group: str, message_id: str
) -> StoredDeadLetter:
    from kourou.client.admin.messages import MessageNotFound

    for one in listed:
        message = one.message
        if message_id in (message.message_id, message.offset_message_id):
            return one
    raise MessageNotFound(
        f"group {group} has no dead letter {message_id} among those listed",
        hint="list more of them with --max",
    )
