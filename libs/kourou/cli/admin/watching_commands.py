"""`kourou admin`: the commands that test and monitor a cluster, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from kourou.cli.admin.options import (
    Broker,
    Interval,
    Json,
    NameServer,
    OneCluster,
    Rounds,
    Switch,
    Topic,
    command,
    report,
)

Amount = Annotated[int, typer.Option("-a", "--amount", min=1, help="Number of messages.")]
Size = Annotated[int, typer.Option("-s", "--size", min=0, help="Body size in bytes.")]


@command("sendMsgStatus", "Send test messages to a broker.")
def send_status(
    broker: Broker,
    namesrv: NameServer = None,
    size: Annotated[
        int, typer.Option("-s", "--messageSize", min=0, help=("Body size in bytes."))
    ] = 128,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="Number of messages.")] = 50,
    json: Json = False,
) -> int:
    """Send test messages to a broker's own topic, one after the other."""
    from kourou.cli.admin import watching_actions

    return report(
        namesrv,
        lambda client: watching_actions.send_status(client, broker, size, count),
        as_json=json,
    )


@command("checkMsgSendRT", "Measure the send latency of a topic.")
def check_send_times(
    topic: Topic,
    namesrv: NameServer = None,
    amount: Amount = 100,
    size: Size = 128,
    json: Json = False,
) -> int:
    """Measure the send latency of a topic, queue by queue."""
    from kourou.cli.admin import watching_actions

    return report(
        namesrv,
        lambda client: watching_actions.send_times(client, topic, amount, size),
        as_json=json,
    )


@command("clusterRT", "Measure the send latency of all brokers.")
def cluster_times(
    namesrv: NameServer = None,
    cluster: OneCluster = None,
    amount: Amount = 100,
    size: Size = 128,
    room: Annotated[
        str, typer.Option("-m", "--machineRoom", help="A label for the output lines.")
    ] = "noname",
    plain: Annotated[
        Switch, typer.Option("-p", "--printLog", help="Print lines (as --json does).")
    ] = Switch.FALSE,
    interval: Interval = None,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """Measure the mean send latency and the failures of every broker."""
    from kourou.cli.admin import watching_actions

    return report(
        namesrv,
        lambda client: watching_actions.cluster_times(client, cluster, amount, size, room),
        as_json=json or plain.on,
        interval_s=interval,
        rounds=rounds,
    )


@command("startMonitoring", "Monitor lag and failures of groups.")
def monitor(
    namesrv: NameServer = None,
    lag: Annotated[int, typer.Option("--lag", min=0, help="Report a lag above this.")] = 100_000,
    interval: Interval = 60,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """Report every minute groups with lag, failures, unresponsive or inconsistent consumers."""
    from kourou.cli.admin import watching_actions

    return report(
        namesrv,
        lambda client: watching_actions.troubles(client, lag),
        as_json=json,
        interval_s=interval,
        rounds=rounds,
    )
