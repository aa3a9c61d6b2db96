"""`kourou admin`: the commands for topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.command import OneBroker, OneCluster, OneTopic, Switch, Topic, command
from kourou.cli.admin.report import Report, local_time
from kourou.errors import BadRequest, KourouError, Rejected, TopicNotFound
from kourou.model.limits import TOPIC_QUEUES_MAX
from kourou.model.names import DLQ_PREFIX, READER_GROUP, RETRY_PREFIX
from kourou.model.topic import Permission

if TYPE_CHECKING:
    from kourou.sync import Client

PERMS = frozenset({2, 4, 6})

Perm = Annotated[int, typer.Option("-p", "--perm", help="2 write, 4 read, 6 both.")]


@command("updateTopic", "Create or change a topic.")
def update_topic(
    client: Client,
    topic: Topic,
    *,
    write: Annotated[
        int,
        typer.Option(
            "-w", "--writeQueueNums", min=1, max=TOPIC_QUEUES_MAX, help=("Number of write queues.")
        ),
    ] = 8,
    read: Annotated[
        int | None,
        typer.Option(
            "-r",
            "--readQueueNums",
            min=1,
            max=TOPIC_QUEUES_MAX,
            help=("Number of read queues (default: as -w)."),
        ),
    ] = None,
    perm: Perm = 6,
    order: Annotated[
        Switch, typer.Option("-o", "--order", help="An ordered topic.")
    ] = Switch.FALSE,
    unit: Annotated[
        Switch, typer.Option("-u", "--unit", help="A topic of RocketMQ's units.")
    ] = Switch.FALSE,
    unit_sub: Annotated[
        Switch, typer.Option("-s", "--hasUnitSub", help="A topic that units subscribe.")
    ] = Switch.FALSE,
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Create a topic, or change its queues and permission."""
    client.admin.topics.create(
        topic,
        queues=write,
        read_queues=write if read is None else read,
        perm=check_perm(perm),
        order=order.on,
        sys_flag=unit.on | unit_sub.on << 1,
        broker=broker,
        cluster=cluster,
    )
    configs = client.admin.topics.config(topic)
    rows = [
        (name, topic, one.write_queue_nums, one.read_queue_nums, one.perm, one.order)
        for name, one in sorted(configs.items())
    ]
    return Report(("broker", "topic", "write", "read", "perm", "order"), rows)


def check_perm(perm: int) -> Permission:
    """Convert a number to a permission; raises BadRequest for other numbers."""
    if perm not in PERMS:
        raise BadRequest(f"perm {perm} is neither 2 (write), 4 (read) nor 6 (both)")
    return Permission(perm)


@command("updateTopicPerm", "Change the permissions of a topic.")
def update_perm(
    client: Client,
    topic: Topic,
    perm: Perm,
    *,
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Change the permissions of a topic only."""
    before = client.admin.topics.set_perm(topic, check_perm(perm), broker=broker, cluster=cluster)
    rows = [(name, topic, old, perm) for name, old in sorted(before.items())]
    return Report(("broker", "topic", "before", "perm"), rows)


@command("deleteTopic", "Delete a topic with queues and offsets.")
def delete_topic(client: Client, topic: Topic, *, cluster: OneCluster = None) -> Report:
    """Delete a topic with its queues and the offsets of all groups."""
    if topic not in client.admin.topics.list() and not _has_broker(client, topic):
        raise TopicNotFound(f"topic {topic!r} not found; nothing was deleted")
    client.admin.topics.delete(topic, cluster=cluster)
    return Report(remarks=[f"deleted {topic}"])


def _has_broker(client: Client, topic: str) -> bool:
    """True if a broker has the topic, even if no name server lists it yet."""
    try:
        return bool(client.admin.topics.config(topic))
    except TopicNotFound:
        return False


@command("topicList")
def topic_list(
    client: Client,
    *,
    clusters: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="Include cluster and consumer groups.")
    ] = False,
) -> Report:
    """List all topics."""
    if not clusters:
        return Report(("topic",), [(name,) for name in client.admin.topics.list()])
    rows: list[tuple[str, str, str | None]] = []
    for cluster in sorted(client.admin.cluster.info().clusters):
        for topic in client.admin.name_servers.topics_of(cluster):
            groups = _groups_of(client, topic)
            rows += [(cluster, topic, group) for group in groups]
            if not groups:
                rows.append((cluster, topic, None))
    return Report(("cluster", "topic", "group"), rows)


def _groups_of(client: Client, topic: str) -> list[str]:
    try:
        return list(client.admin.topics.consumer_groups(topic))
    except TopicNotFound:  # a name server lists it, but no broker has it
        return []


@command("topicRoute")
def topic_route(
    client: Client,
    topic: Topic,
    *,
    as_list: Annotated[
        bool, typer.Option("-l", "--list", help="Ignored: the output is always a list.")
    ] = False,
) -> Report:
    """Show the brokers and queues of a topic."""
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


@command("topicStatus", "Show offsets and last write of every queue.")
def topic_status(client: Client, topic: Topic) -> Report:
    """Show minimum and maximum offset and last write of every queue."""
    rows = [
        (
            queue.broker_name,
            queue.queue_id,
            one.min_offset,
            one.max_offset,
            local_time(one.last_update_timestamp),
        )
        for queue, one in client.admin.topics.stats(topic).items()
    ]
    return Report(("broker", "queue", "min", "max", "last stored"), rows)


@command("topicClusterList")
def topic_clusters(client: Client, topic: Topic) -> Report:
    """Show the clusters of a topic."""
    brokers = {one.broker_name for one in client.admin.topics.route(topic).queue_datas}
    clusters = client.admin.cluster.info().clusters
    rows = [(name,) for name in sorted(clusters) if brokers & set(clusters[name])]
    return Report(("cluster",), rows)


@command("updateOrderConf", "Change the order setting of a topic.")
def update_order_conf(
    client: Client,
    topic: Topic,
    method: Annotated[str, typer.Option("-m", "--method", help="put, get or delete.")],
    *,
    conf: Annotated[
        str | None, typer.Option("-v", "--orderConf", help="broker:queues;broker:queues")
    ] = None,
) -> Report:
    """Put, get or delete the order setting of a topic at the name servers."""
    from kourou.model.names import ORDER_NAMESPACE

    name_servers = client.admin.name_servers
    match method.strip().lower():
        case "put":
            if conf is None:
                raise BadRequest("put requires a setting", hint="-v broker-a:4;broker-b:4")
            name_servers.put_order(topic, _parsed_order(conf))
            return Report(remarks=[f"the order setting of {topic} is {conf.strip()}"])
        case "get":
            value = name_servers.get(ORDER_NAMESPACE, topic)
            if value is None:
                raise Rejected(f"topic {topic} has no order setting")
            return Report(("topic", "order"), [(topic, value)])
        case "delete":
            name_servers.delete(ORDER_NAMESPACE, topic)
            return Report(remarks=[f"the topic {topic} no longer has an order setting"])
        case _:
            raise BadRequest(f"unknown method {method!r}", hint="put, get or delete")


def _parsed_order(conf: str) -> dict[str, int]:
    queues: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in conf.split(";"))):
        name, _, count = part.rpartition(":")
        if not name or not count.isascii() or not count.isdigit() or int(count) < 1:
            raise BadRequest(f"{part!r} is not BROKER:NUMBER", hint="broker-a:4;broker-b:4")
        queues[name] = int(count)
    return queues


@command("allocateMQ", "Show how queues would be assigned.")
def allocate(
    client: Client,
    topic: Topic,
    consumers: Annotated[
        str, typer.Option("-i", "--ipList", help="Consumers, separated by commas.")
    ],
) -> Report:
    """Show how a group of these consumers would share a topic's queues (average strategy)."""
    from kourou.client.consumer.allocation import Averagely

    names = sorted({name.strip() for name in consumers.split(",") if name.strip()})
    if not names:
        raise BadRequest("no consumer was named", hint="-i 10.0.0.1,10.0.0.2")
    queues = sorted(client.pull_consumer(READER_GROUP).queues(topic))
    share = Averagely()
    rows = [
        (name, queue.broker_name, queue.queue_id)
        for name in names
        for queue in share(queues, names, name)
    ]
    return Report(("member", "broker", "queue"), rows)


# -- statistics -----------------------------------------------------------------------------------


@command("statsAll", "Show rates and totals of topics and groups.", repeats=True)
def stats_all(
    client: Client,
    *,
    topic: OneTopic = None,
    active: Annotated[
        bool, typer.Option("-a", "--activeTopic", help="Only active topics and groups.")
    ] = False,
) -> Report:
    """Show for each topic and group: messages per second, per 24 hours, and lag."""
    columns = ("topic", "group", "lag", "in/s", "out/s", "in 24 h", "out 24 h")
    names = client.admin.topics.list() if topic is None else [topic]
    rows = []
    for name in names:
        if topic is None and name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        rows += [row for row in _stats_of(client, name) if not active or _is_active(row)]
    return Report(columns, rows)


Row = tuple[str, str | None, int | None, float, float, int, int]


def _is_active(row: Row) -> bool:
    return bool(row[3] or row[4])


def _stats_of(client: Client, topic: str) -> list[Row]:
    try:
        brokers = sorted(client.admin.topics.config(topic))
    except TopicNotFound:
        return []
    in_rate, in_sum = _rates(client, brokers, "TOPIC_PUT_NUMS", topic)
    rows: list[Row] = []
    for group in _groups_of(client, topic):
        out_rate, out_sum = _rates(client, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
        rows.append((topic, group, _lag(client, group, topic), in_rate, out_rate, in_sum, out_sum))
    return rows or [(topic, None, None, in_rate, 0.0, in_sum, 0)]


def _rates(client: Client, brokers: list[str], item: str, key: str) -> tuple[float, int]:
    """Sums over the brokers that have this statistic; 0 if no broker has it."""
    rate, total = 0.0, 0
    for name in brokers:
        try:
            found = client.admin.brokers.statistics(name, item, key)
        except Rejected:
            continue
        rate += found.stats_minute.tps
        total += found.stats_day.sum or found.stats_hour.sum or found.stats_minute.sum
    return round(rate, 2), total


def _lag(client: Client, group: str, topic: str) -> int | None:
    try:
        lag: int = client.admin.offsets.lag(group, topic)
    except KourouError:  # the group is deleted, or a broker does not reply: missing is not zero
        return None
    return lag
