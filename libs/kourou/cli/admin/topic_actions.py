"""The less frequent admin commands for topics: a few requests and one report each."""

from __future__ import annotations

from kourou.cli.admin.options import READER_GROUP
from kourou.cli.admin.report import Report
from kourou.client.admin.name_servers import ORDER_NAMESPACE
from kourou.client.consumer.allocation import Averagely
from kourou.errors import BadRequest, KourouError, Rejected, TopicNotFound
from kourou.model.names import DLQ_PREFIX, RETRY_PREFIX
from kourou.model.topic import Permission
from kourou.sync import Client

PERMS = frozenset({2, 4, 6})


def check_perm(perm: int) -> Permission:
    """Convert a number to a permission; raises BadRequest for other numbers."""
    if perm not in PERMS:
        raise BadRequest(f"perm {perm} is neither 2 (write), 4 (read) nor 6 (both)")
    return Permission(perm)


def update_perm(
    client: Client, topic: str, perm: int, *, broker: str | None, cluster: str | None
) -> Report:
    """Change a topic's permission."""
    before = client.admin.topics.set_perm(topic, check_perm(perm), broker=broker, cluster=cluster)
    rows = [(name, topic, old, perm) for name, old in sorted(before.items())]
    return Report(("broker", "topic", "before", "perm"), rows)


def topics_by_cluster(client: Client) -> Report:
    """Every topic with its cluster and its consumer groups."""
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


def clusters_of(client: Client, topic: str) -> Report:
    """The clusters whose brokers have a topic."""
    brokers = {one.broker_name for one in client.admin.topics.route(topic).queue_datas}
    clusters = client.admin.cluster.info().clusters
    rows = [(name,) for name in sorted(clusters) if brokers & set(clusters[name])]
    return Report(("cluster",), rows)


def order_conf(client: Client, topic: str, method: str, conf: str | None) -> Report:
    """Put, get or delete an order setting."""
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
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in conf.split(";"))):
        name, _, count = part.rpartition(":")
        if not name or not count.isascii() or not count.isdigit() or int(count) < 1:
            raise BadRequest(f"{part!r} is not BROKER:NUMBER", hint="broker-a:4;broker-b:4")
        found[name] = int(count)
    return found


def allocate(client: Client, topic: str, members: str) -> Report:
    """The queues that each of these consumers would get."""
    names = sorted({name.strip() for name in members.split(",") if name.strip()})
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


def stats_all(client: Client, only: str | None, *, active_only: bool) -> Report:
    """Messages per second and per day, for every topic and each of its groups."""
    columns = ("topic", "group", "lag", "in/s", "out/s", "in 24 h", "out 24 h")
    topics = client.admin.topics.list() if only is None else [only]
    rows = []
    for topic in topics:
        if only is None and topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        rows += [row for row in _stats_of(client, topic) if not active_only or _moves(row)]
    return Report(columns, rows)


Row = tuple[str, str | None, int | None, float, float, int, int]


def _moves(row: Row) -> bool:
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
