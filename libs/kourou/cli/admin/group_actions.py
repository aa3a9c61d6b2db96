"""The less frequent admin commands for groups: a few requests and one report each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from kourou.cli.admin.moments import as_text
from kourou.cli.admin.report import Report
from kourou.errors import GroupNotFound, KourouError
from kourou.model.subscription import GroupConfig
from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo
from kourou.sync import Client


def update_group(
    client: Client,
    group: str,
    wanted: Mapping[str, Any],
    *,
    broker: str | None,
    cluster: str | None,
) -> Report:
    """Create or change a group; as in mqadmin, settings that are left out get their default."""
    config = replace(GroupConfig(group), **wanted)
    client.admin.groups.create(config, broker=broker, cluster=cluster)
    return group_config(client, group)


def group_config(client: Client, group: str) -> Report:
    """A group's settings at every broker."""
    found = {
        name: groups[group]
        for name, groups in client.admin.groups.configs().items()
        if group in groups
    }
    if not found:
        raise GroupNotFound(f"group {group!r} not found")
    names = [one.name for one in fields(GroupConfig) if one.name != "name"]
    rows = [
        (broker, *(getattr(config, name) for name in names))
        for broker, config in sorted(found.items())
    ]
    return Report(("broker", *names), rows)


# -- offsets --------------------------------------------------------------------------------------


def all_progress(client: Client) -> Report:
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
        model, version, members = _members(client, group)
        rows.append((group, members, version, model, lags.get(group)))
    return Report(("group", "members", "version", "model", "lag"), rows)


def _members(client: Client, group: str) -> tuple[str | None, int | None, int]:
    try:
        found = client.admin.groups.connections(group)
    except KourouError:  # no consumer is connected
        return None, None, 0
    versions = [member.version for member in found.connections]
    return found.message_model.value, min(versions), len(versions)


def progress_with_owners(client: Client, group: str, topic: str | None) -> Report:
    """A group's offsets and lag, and the consumer of each queue."""
    owners = {
        queue: client_id
        for client_id, info in client.admin.members.running_infos(group).items()
        if isinstance(info, ConsumerRunningInfo)
        for queue in info.queues
    }
    rows = [
        (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            one.broker_offset,
            one.consumer_offset,
            max(0, one.broker_offset - one.consumer_offset),
            owners.get(queue),
            as_text(one.last_timestamp),
        )
        for queue, one in client.admin.offsets.of(group, topic).items()
    ]
    columns = ("topic", "broker", "queue", "end", "group", "lag", "member", "last consumed")
    return Report(columns, rows, [f"lag {sum(row[5] for row in rows):,} in all"])


def broker_consume_stats(client: Client, broker: str, level: int, *, ordered: bool) -> Report:
    """The offsets of every group at one broker."""
    from kourou.cli.admin.actions import broker_name

    stats = client.admin.offsets.everywhere(broker_name(client, broker), ordered_only=ordered)
    rows = [
        (
            queue.topic,
            group,
            queue.broker_name,
            queue.queue_id,
            one.broker_offset,
            one.consumer_offset,
            lag,
            as_text(one.last_timestamp),
        )
        for group, topics in sorted(stats.groups.items())
        for topic in topics
        for queue, one in sorted(topic.offsets.items())
        if (lag := max(0, one.broker_offset - one.consumer_offset)) >= level
    ]
    columns = ("topic", "group", "broker", "queue", "end", "at", "lag", "last consumed")
    return Report(columns, rows, [f"lag {stats.total_lag:,} in all"])


# -- consumers and producers ----------------------------------------------------------------------


def consumers(client: Client, group: str, broker: str | None) -> Report:
    """The connected consumers and the subscriptions of a group."""
    found = client.admin.groups.connections(group)
    rows = [
        (one.client_id, one.client_addr, one.language, one.version) for one in found.connections
    ]
    remarks = [
        f"{topic}: {one.expression} ({one.kind})"
        for topic, one in sorted(found.subscriptions.items())
    ]
    remarks.append(f"{found.consume_type.value} {found.message_model.value}")
    return Report(("client", "address", "language", "version"), rows, remarks)


def all_producers(client: Client, broker: str | None) -> Report:
    """All producers, optionally of one broker."""
    found = client.admin.members.all_producers(broker)
    rows = [
        (
            group,
            one.client_id,
            one.remote_ip,
            one.language,
            one.version,
            as_text(one.last_update_timestamp),
        )
        for group, members in found.items()
        for one in members
    ]
    remarks = [] if rows else ["no producer is connected"]
    columns = ("group", "client", "address", "language", "version", "last heartbeat")
    return Report(columns, rows, remarks)


def consumer_status(client: Client, group: str, client_id: str | None, *, stacks: bool) -> Report:
    """The status that every consumer reports, or all details of one."""
    if client_id is not None:
        return _everything(client.admin.members.running_info(group, client_id, stacks=stacks))
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
                as_text(one.last_consume_timestamp),
            )
            for queue, one in sorted(info.queues.items())
        ]
        if stacks and info.jstack:
            remarks += [f"{name}:", info.jstack]
    columns = ("client", "topic", "broker", "queue", "at", "waiting", "locked", "last consumed")
    return Report(columns, rows, remarks, failed=any("does not answer" in one for one in remarks))


def _everything(info: ConsumerRunningInfo) -> Report:
    rows: list[tuple[str, str, Any]] = [
        ("setting", name, value) for name, value in sorted(info.properties.items())
    ]
    rows += [("subscription", one.topic, one.expression) for one in info.subscriptions]
    for queue, one in sorted(info.queues.items()):
        rows.append(
            ("queue", str(queue), (f"offset {one.commit_offset}, {one.cached_msg_count} cached"))
        )
    for topic, rate in sorted(info.rates.items()):
        told = (
            f"{rate.consume_ok_tps:.2f} consumed/s, {rate.consume_failed_tps:.2f} failed/s, "
            f"{rate.pull_tps:.2f} pulled/s, {rate.consume_rt:.2f} ms each"
        )
        rows.append(("rates", topic, told))
    return Report(("kind", "name", "value"), rows, [info.jstack] if info.jstack else [])
