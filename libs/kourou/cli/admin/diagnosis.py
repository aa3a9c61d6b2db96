"""`kourou admin`: the commands that test and monitor a cluster, and explain where a message is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.brokers import broker_name, chosen_brokers
from kourou.cli.admin.command import Broker, OneCluster, Switch, Topic, command
from kourou.cli.admin.report import Report
from kourou.clock import SystemClock
from kourou.errors import KourouError, TopicNotFound
from kourou.model.names import READER_GROUP
from kourou.model.topic import MessageQueue

if TYPE_CHECKING:
    from kourou.client.explain.explanation import Explanation
    from kourou.sync import Client

Amount = Annotated[int, typer.Option("-a", "--amount", min=1, help="Number of messages.")]
Size = Annotated[int, typer.Option("-s", "--size", min=0, help="Body size in bytes.")]

TimedSend = tuple[str | None, int, str | None]
"""Status, ms, error."""


# -- test messages --------------------------------------------------------------------------------


@command("sendMsgStatus", "Send test messages to a broker.")
def send_status(
    client: Client,
    broker: Broker,
    *,
    size: Annotated[
        int, typer.Option("-s", "--messageSize", min=0, help=("Body size in bytes."))
    ] = 128,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="Number of messages.")] = 50,
) -> Report:
    """Send test messages to a broker's own topic, one after the other."""
    queue = _own_queue(broker_name(client, broker))
    sends = [_send(client, queue, size) for _ in range(count)]
    rows = [(number, *one) for number, one in enumerate(sends, 1)]
    failed = any(error is not None for _, _, error in sends)
    return Report(("number", "status", "ms", "error"), rows, _summary(sends), failed=failed)


@command("checkMsgSendRT", "Measure the send latency of a topic.")
def check_send_times(
    client: Client, topic: Topic, *, amount: Amount = 100, size: Size = 128
) -> Report:
    """Measure the send latency of a topic, queue by queue."""
    queues: list[MessageQueue] = client.pull_consumer(READER_GROUP).queues(topic)
    if not queues:
        raise TopicNotFound(f"topic {topic} has no queue")
    rows = []
    sends = []
    for number in range(amount):
        queue = queues[number % len(queues)]
        one = _send(client, queue, size)
        sends.append(one)
        rows.append((queue.broker_name, queue.queue_id, one[2] is None, one[1], one[2]))
    failed = any(error is not None for _, _, error in sends)
    columns = ("broker", "queue", "sent", "ms", "error")
    return Report(columns, rows, _summary(sends), failed=failed)


@command("clusterRT", "Measure the send latency of all brokers.", repeats=True)
def cluster_times(
    client: Client,
    *,
    cluster: OneCluster = None,
    amount: Amount = 100,
    size: Size = 128,
    room: Annotated[
        str, typer.Option("-m", "--machineRoom", help="A label for the output lines.")
    ] = "noname",
    plain: Annotated[
        Switch, typer.Option("-p", "--printLog", help="Print lines (as --json does).")
    ] = Switch.FALSE,
) -> Report:
    """Measure the mean send latency and the failures of every broker."""
    clusters = client.admin.cluster.info().clusters
    rows = []
    for name in chosen_brokers(client, None, cluster):
        queue = _own_queue(name)
        sends = [_send(client, queue, size) for _ in range(amount)]
        stored_ms = [ms for _, ms, error in sends if error is None]
        where = next((one for one, names in sorted(clusters.items()) if name in names), None)
        mean = round(sum(stored_ms) / len(stored_ms), 2) if stored_ms else None
        rows.append((where, name, room, mean, len(stored_ms), amount - len(stored_ms)))
    return Report(
        ("cluster", "broker", "room", "mean ms", "sent", "failed"),
        rows,
        failed=any(row[-1] for row in rows),
        always_json=plain.on,
    )


def _own_queue(broker: str) -> MessageQueue:
    """A queue of the topic that has the broker's name (brokerTopicEnable)."""
    return MessageQueue(broker, broker, 0)


def _send(client: Client, queue: MessageQueue, size: int) -> TimedSend:
    clock = SystemClock()
    start_ms = clock.monotonic_ms()
    try:
        status = client.send(queue.topic, b"a" * size, queue=queue).status.value
    except KourouError as error:
        return None, clock.monotonic_ms() - start_ms, str(error)
    return status, clock.monotonic_ms() - start_ms, None


def _summary(sends: list[TimedSend]) -> list[str]:
    stored_ms = [ms for _, ms, error in sends if error is None]
    if not stored_ms:
        return ["no message was stored"]
    mean = sum(stored_ms) / len(stored_ms)
    return [f"{len(stored_ms)} of {len(sends)} stored, {mean:.2f} ms on average"]


# -- problems -------------------------------------------------------------------------------------


@command("startMonitoring", "Monitor lag and failures of groups.", repeats=True, interval_s=60)
def monitor(
    client: Client,
    *,
    lag: Annotated[int, typer.Option("--lag", min=0, help="Report a lag above this.")] = 100_000,
) -> Report:
    """Report every minute groups with lag, failures, unresponsive or inconsistent consumers."""
    rows: list[tuple[str, str, str]] = []
    for broker in client.admin.brokers.names():
        for group, topics in client.admin.offsets.everywhere(broker).groups.items():
            behind = sum(
                max(0, one.broker_offset - one.consumer_offset)
                for stats in topics
                for one in stats.offsets.values()
            )
            if behind > lag:
                rows.append((group, "lags", f"{behind:,} messages at {broker}"))
    for config in client.admin.groups.list():
        rows += _problems_of(client, config.name)
    remarks = [] if rows else ["no problems found"]
    return Report(("group", "trouble", "how"), sorted(rows), remarks, failed=bool(rows))


def _problems_of(client: Client, group: str) -> list[tuple[str, str, str]]:
    """Consumers of a group that do not reply, that fail, or whose subscriptions differ."""
    try:
        infos = client.admin.members.running_infos(group)
    except KourouError:  # no consumer is connected, which alone is not a problem
        return []
    problems: list[tuple[str, str, str]] = []
    subscriptions = set()
    for name, info in infos.items():
        if isinstance(info, KourouError):
            problems.append((group, "does not answer", f"{name}: {info}"))
            continue
        subscriptions.add(frozenset((one.topic, one.expression) for one in info.subscriptions))
        for topic, rate in info.rates.items():
            if rate.consume_failed_tps > 0:
                how = f"{name}: {rate.consume_failed_tps:.2f} of {topic} a second"
                problems.append((group, "fails", how))
    if len(subscriptions) > 1:
        problems.append((group, "disagrees", "consumers have different subscriptions"))
    return problems


# -- one message ----------------------------------------------------------------------------------


class ExplanationReport(Report):
    """An explanation: text lines, or one JSON object."""

    def __init__(self, explanation: Explanation) -> None:
        from kourou.client.explain.explanation import lines_of

        super().__init__(remarks=list(lines_of(explanation)), failed=is_bad(explanation))
        self.explanation = explanation

    def show(self, *, as_json: bool) -> None:
        """Print the explanation."""
        if as_json:
            import msgspec

            print(msgspec.json.encode(self.explanation).decode(), flush=True)
        else:
            super().show(as_json=False)


def is_bad(explanation: Explanation) -> bool:
    """True if the message, or a group's copy of it, is blocked or gone."""
    causes = [explanation.causes[0], *(group.causes[0] for group in explanation.groups)]
    return any(one.severity in ("blocked", "gone") for one in causes)


@command("why", "Explain where a message is and who consumed it.")
def why(
    client: Client,
    message: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGE", help="A message ID, topic/broker/queue@offset, or a key."
        ),
    ],
    *,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="The topic (default: search all).")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", "--consumerGroup", help="Only this group."),
    ] = None,
) -> Report:
    """Explain where a message is stored and replicated, and its state in each group.

    Every reason has a code that does not change; docs/why.md has them all. Exit code 1 if it is
    blocked or gone.
    """
    return ExplanationReport(client.admin.explain.message(message, topic=topic, group=group))
