"""The actions of the commands that test and monitor a cluster."""

from __future__ import annotations

from kourou.cli.admin.actions import broker_name, chosen_brokers
from kourou.cli.admin.options import READER_GROUP
from kourou.cli.admin.report import Report
from kourou.clock import SystemClock
from kourou.errors import KourouError, TopicNotFound
from kourou.model.topic import MessageQueue
from kourou.sync import Client

Sent = tuple[str | None, int, str | None]
"""Status, ms, error."""


def send_status(client: Client, broker: str, size: int, count: int) -> Report:
    """Send messages to the topic of one broker."""
    name = broker_name(client, broker)
    queue = _own_queue(client, name)
    outcomes = [_send(client, queue, size) for _ in range(count)]
    rows = [(number, *one) for number, one in enumerate(outcomes, 1)]
    failed = sum(error is not None for _, _, error in outcomes)
    return Report(("number", "status", "ms", "error"), rows, _summed(outcomes), failed=failed > 0)


def send_times(client: Client, topic: str, amount: int, size: int) -> Report:
    """Send messages to the queues of a topic in turn."""
    queues = _queues(client, topic)
    rows = []
    outcomes = []
    for number in range(amount):
        queue = queues[number % len(queues)]
        one = _send(client, queue, size)
        outcomes.append(one)
        rows.append((queue.broker_name, queue.queue_id, one[2] is None, one[1], one[2]))
    failed = any(error is not None for _, _, error in outcomes)
    columns = ("broker", "queue", "sent", "ms", "error")
    return Report(columns, rows, _summed(outcomes), failed=failed)


def cluster_times(client: Client, cluster: str | None, amount: int, size: int, room: str) -> Report:
    """Send messages to the topic of every broker; the mean time is of those that were stored."""
    clusters = client.admin.cluster.info().clusters
    rows = []
    for name in chosen_brokers(client, None, cluster):
        queue = _own_queue(client, name)
        outcomes = [_send(client, queue, size) for _ in range(amount)]
        took = [ms for _, ms, error in outcomes if error is None]
        where = next((one for one, names in sorted(clusters.items()) if name in names), None)
        mean = round(sum(took) / len(took), 2) if took else None
        rows.append((where, name, room, mean, len(took), amount - len(took)))
    failed = any(row[-1] for row in rows)
    return Report(("cluster", "broker", "room", "mean ms", "sent", "failed"), rows, failed=failed)


def _queues(client: Client, topic: str) -> list[MessageQueue]:
    queues: list[MessageQueue] = client.pull_consumer(READER_GROUP).queues(topic)
    if not queues:
        raise TopicNotFound(f"topic {topic} has no queue")
    return queues


def _own_queue(client: Client, broker: str) -> MessageQueue:
    """A queue of the topic that has the broker's name (brokerTopicEnable)."""
    return MessageQueue(broker, broker, 0)


def _send(client: Client, queue: MessageQueue, size: int) -> Sent:
    clock = SystemClock()
    began = clock.monotonic_ms()
    try:
        status = client.send(queue.topic, b"a" * size, queue=queue).status.value
    except KourouError as error:
        return None, clock.monotonic_ms() - began, str(error)
    return status, clock.monotonic_ms() - began, None


def _summed(outcomes: list[Sent]) -> list[str]:
    took = [ms for _, ms, error in outcomes if error is None]
    if not took:
        return ["no message was stored"]
    return [f"{len(took)} of {len(outcomes)} stored, {sum(took) / len(took):.2f} ms on average"]


# -- problems -------------------------------------------------------------------------------------


def troubles(client: Client, lag_max: int) -> Report:
    """Groups with lag, and consumers that do not reply or fail; exit code 1 if there are any."""
    rows: list[tuple[str, str, str]] = []
    for broker in client.admin.brokers.names():
        for group, topics in client.admin.offsets.everywhere(broker).groups.items():
            lag = sum(
                max(0, one.broker_offset - one.consumer_offset)
                for stats in topics
                for one in stats.offsets.values()
            )
            if lag > lag_max:
                rows.append((group, "lags", f"{lag:,} messages at {broker}"))
    for config in client.admin.groups.list():
        rows += _troubles_of(client, config.name)
    remarks = [] if rows else ["no problems found"]
    return Report(("group", "trouble", "how"), sorted(rows), remarks, failed=bool(rows))


def _troubles_of(client: Client, group: str) -> list[tuple[str, str, str]]:
    try:
        infos = client.admin.members.running_infos(group)
    except KourouError:  # no consumer is connected, which alone is not a problem
        return []
    found: list[tuple[str, str, str]] = []
    wanted = set()
    for name, info in infos.items():
        if isinstance(info, KourouError):
            found.append((group, "does not answer", f"{name}: {info}"))
            continue
        wanted.add(frozenset((one.topic, one.expression) for one in info.subscriptions))
        for topic, rate in info.rates.items():
            if rate.consume_failed_tps > 0:
                how = f"{name}: {rate.consume_failed_tps:.2f} of {topic} a second"
                found.append((group, "fails", how))
    if len(wanted) > 1:
        found.append((group, "disagrees", "consumers have different subscriptions"))
    return found
