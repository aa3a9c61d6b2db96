"""The frequent admin commands: each is one request to the client's admin API and one report."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from kourou.cli.admin.moments import as_text
from kourou.cli.admin.report import Report
from kourou.cli.admin.topic_actions import check_perm
from kourou.cli.tail import as_json_line
from kourou.client.admin.groups import TO_THE_END_MS
from kourou.client.admin.messages import Found, MessageNotFound
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.session.discovery import store_host_of
from kourou.errors import BadRequest, GroupNotFound, TopicNotFound
from kourou.protocol.bodies.route_bodies import ClusterInfo
from kourou.sync import Client

# -- topics ---------------------------------------------------------------------------------------


def update_topic(
    client: Client,
    topic: str,
    *,
    write: int,
    read: int,
    perm: int,
    order: bool,
    sys_flag: int,
    broker: str | None,
    cluster: str | None,
) -> Report:
    """Create or change a topic."""
    client.admin.topics.create(
        topic,
        queues=write,
        read_queues=read,
        perm=check_perm(perm),
        order=order,
        sys_flag=sys_flag,
        broker=broker,
        cluster=cluster,
    )
    configs = client.admin.topics.config(topic)
    rows = [
        (name, topic, one.write_queue_nums, one.read_queue_nums, one.perm, one.order)
        for name, one in sorted(configs.items())
    ]
    return Report(("broker", "topic", "write", "read", "perm", "order"), rows)


def delete_topic(client: Client, topic: str, *, cluster: str | None) -> Report:
    """Delete a topic everywhere; raises TopicNotFound if no broker has it."""
    if topic not in client.admin.topics.list() and not _known(client, topic):
        raise TopicNotFound(f"topic {topic!r} not found; nothing was deleted")
    client.admin.topics.delete(topic, cluster=cluster)
    return Report(remarks=[f"deleted {topic}"])


def _known(client: Client, topic: str) -> bool:
    """True if a broker has the topic, even if no name server lists it yet."""
    try:
        return bool(client.admin.topics.config(topic))
    except TopicNotFound:
        return False


def topic_list(client: Client) -> Report:
    """List all topics."""
    return Report(("topic",), [(name,) for name in client.admin.topics.list()])


def topic_route(client: Client, topic: str) -> Report:
    """The brokers and queues of a topic."""
    route = client.admin.topics.route(topic)
    addresses = {one.broker_name: one.master_addr() for one in route.broker_datas}
    rows = [
        (
            one.broker_name,
            addresses.get(one.broker_name),
            one.write_queue_nums,
            one.read_queue_nums,
            one.perm,
        )
        for one in route.queue_datas
    ]
    return Report(("broker", "address", "write", "read", "perm"), rows)


def topic_status(client: Client, topic: str) -> Report:
    """Minimum and maximum offset and last store time of every queue."""
    rows = [
        (
            queue.broker_name,
            queue.queue_id,
            one.min_offset,
            one.max_offset,
            as_text(one.last_update_timestamp),
        )
        for queue, one in client.admin.topics.stats(topic).items()
    ]
    return Report(("broker", "queue", "min", "max", "last stored"), rows)


# -- groups ---------------------------------------------------------------------------------------


def delete_group(
    client: Client,
    group: str,
    *,
    remove_offsets: bool,
    broker: str | None = None,
    cluster: str | None = None,
) -> Report:
    """Delete a consumer group everywhere; raises GroupNotFound if no broker has it.

    With `remove_offsets` brokers are asked in any case, because offsets can outlive their group.
    """
    known = any(one.name == group for one in client.admin.groups.list())
    if not known and not remove_offsets:
        raise GroupNotFound(f"group {group!r} not found; nothing was deleted")
    client.admin.groups.delete(group, remove_offsets=remove_offsets, broker=broker, cluster=cluster)
    if not known:
        return Report(remarks=[f"group {group} not found; its offsets, if any, were deleted"])
    return Report(remarks=[f"deleted {group}"])


def group_list(client: Client) -> Report:
    """List all groups."""
    rows = [
        (one.name, one.consume_enable, one.retry_max_times) for one in client.admin.groups.list()
    ]
    return Report(("group", "may consume", "attempts"), rows)


def consumer_progress(client: Client, group: str, topic: str | None) -> Report:
    """A group's offset and lag in every queue."""
    found = client.admin.offsets.of(group, topic)
    rows = [
        (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            one.broker_offset,
            one.consumer_offset,
            max(0, one.broker_offset - one.consumer_offset),
            as_text(one.last_timestamp),
        )
        for queue, one in found.items()
    ]
    columns = ("topic", "broker", "queue", "end", "group", "lag", "last consumed")
    return Report(columns, rows, [f"lag {sum(row[5] for row in rows):,} in all"])


def connections(client: Client, group: str, *, producers: bool) -> Report:
    """The connected consumers or producers of a group."""
    groups = client.admin.groups
    members = groups.producers(group) if producers else groups.members(group)
    rows = [(one.client_id, one.client_addr, one.language, one.version) for one in members]
    return Report(("client", "address", "language", "version"), rows)


def reset_offsets(
    client: Client, group: str, topic: str, timestamp_ms: int, *, force: bool
) -> Report:
    """Reset a group's offsets to a time."""
    moved = client.admin.offsets.reset(group, topic, timestamp_ms, force=force)
    rows = [(queue.broker_name, queue.queue_id, offset) for queue, offset in moved.items()]
    return Report(("broker", "queue", "offset"), rows)


def skip_backlog(client: Client, group: str, topic: str) -> Report:
    """Reset a group's offsets to the ends of its queues."""
    return reset_offsets(client, group, topic, TO_THE_END_MS, force=True)


def clone_offsets(client: Client, source: str, target: str, topic: str) -> Report:
    """Copy the offsets of one group to another."""
    client.admin.offsets.clone(source, target, topic)
    return consumer_progress(client, target, topic)


# -- messages -------------------------------------------------------------------------------------


def message_by_id(client: Client, topic: str | None, message_id: str) -> Report:
    """One message by either kind of ID; a unique key requires its topic."""
    messages = client.admin.messages
    if topic is None:
        try:
            return shown_messages([messages.by_offset_id(message_id)])
        except (BadRequest, MessageNotFound) as missing:
            raise type(missing)(
                missing.message,
                hint="for a message ID printed by `kourou send`, also give the topic: -t TOPIC",
            ) from missing
    return shown_messages([messages.by_id(topic, message_id)])


def messages_by_key(
    client: Client, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int
) -> Report:
    """Messages with a business key; adds a remark if there may be more."""
    found = client.admin.messages.by_key(
        topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count_max
    )
    report = shown_messages(found)
    if len(found) >= count_max:
        report.remarks.append(
            f"limited to the newest {count_max} per broker; there may be more (--max)"
        )
    elif not found:
        report.remarks.append("none")
    return report


def shown_messages(found: list[ReceivedMessage]) -> Report:
    """Messages, one per row; the exit code is 1 if a broker did not reply."""
    missing = found.missing if isinstance(found, Found) else {}
    objects = [json.loads(as_json_line(message)) for message in found]
    columns = ("topic", "broker", "queue", "offset", "message_id", "tag", "keys", "body")
    rows = [
        tuple(
            " ".join(one[name]) if name == "keys" else one.get(name, "(binary)") for name in columns
        )
        for one in objects
    ]
    return Report(columns, rows, failed=bool(missing), missing=missing)


# -- brokers --------------------------------------------------------------------------------------


def cluster_list(client: Client) -> Report:
    """All clusters, brokers and addresses."""
    info = client.admin.cluster.info()
    rows = [
        (cluster, name, broker_id, address)
        for cluster, names in sorted(info.clusters.items())
        for name in sorted(names)
        if name in info.brokers
        for broker_id, address in sorted(info.brokers[name].broker_addrs.items())
    ]
    return Report(("cluster", "broker", "id", "address"), rows)


def broker_name(client: Client, text: str) -> str:
    """The name of a broker, given its name or the address of one of its replicas.

    An address may have the remoting port or the ZeroMQ port.
    """
    info: ClusterInfo = client.admin.cluster.info()
    for name, broker in info.brokers.items():
        if text == name or _is_one_of(text, broker.broker_addrs.values()):
            return name
    raise BadRequest(f"broker {text!r} not found", hint=f"known: {', '.join(info.brokers)}")


def _is_one_of(text: str, addresses: Collection[str]) -> bool:
    return text in addresses or text in [
        f"{host}:{port}" for host, port in map(store_host_of, addresses)
    ]


def write_permission(client: Client, broker: str, *, wipe: bool) -> Report:
    """Remove a broker from the routes for sending, or put it back."""
    name = broker_name(client, broker)
    brokers: Any = client.admin.brokers
    if wipe:
        brokers.wipe_write_perm(name)
        told = f"{name} accepts no more writes once clients have new routes (up to 40 s)"
    else:
        brokers.add_write_perm(name)
        told = f"{name} accepts writes again"
    return Report(remarks=[told])


def delete_expired(client: Client, broker: str | None, cluster: str | None) -> Report:
    """Let brokers delete expired log segments now."""
    names = chosen_brokers(client, broker, cluster)
    for name in names:
        client.admin.brokers.delete_expired_log(name)
    return Report(remarks=[f"{name} deletes expired log segments now" for name in names])


def clean_queues(client: Client, broker: str | None, cluster: str | None) -> Report:
    """Let brokers delete queue and index files that refer only to expired messages."""
    names = chosen_brokers(client, broker, cluster)
    for name in names:
        client.admin.brokers.clean_expired_queues(name)
    return Report(remarks=[f"{name} deletes expired queue and index files now" for name in names])


def chosen_brokers(client: Client, broker: str | None, cluster: str | None) -> list[str]:
    """One broker, those of a cluster, or all."""
    if broker is not None:
        return [broker_name(client, broker)]
    names: list[str] = client.admin.brokers.names()
    if cluster is None:
        return names
    members = client.admin.cluster.info().clusters.get(cluster)
    if members is None:
        raise BadRequest(f"cluster {cluster!r} not found")
    return [name for name in names if name in members]
