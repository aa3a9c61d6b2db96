"""`kourou admin`: the commands that try a cluster out or keep an eye on it, and their arguments.

Lives here: names and letters. May not live here: what a command does
(kourou.cli.admin.watching_actions), which is imported when one is called.
"""

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

Amount = Annotated[int, typer.Option("-a", "--amount", min=1, help="How many messages.")]
Size = Annotated[int, typer.Option("-s", "--size", min=0, help="Bytes of each.")]


@command("sendMsgStatus", "Send to a broker and say what becomes of it.")
def send_status(
    broker: Broker,
    namesrv: NameServer = None,
    size: Annotated[int, typer.Option("-s", "--messageSize", min=0, help="Bytes of each.")] = 128,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="How many.")] = 50,
    json: Json = False,
) -> int:
    """Send messages to the topic that is named as the broker, one after the other."""
    from kourou.cli.admin import watching_actions

    return report(
        namesrv,
        lambda client: watching_actions.send_status(client, broker, size, count),
        as_json=json,
    )


@command("checkMsgSendRT", "How long sends to a topic take.")
def check_send_times(
    topic: Topic,
    namesrv: NameServer = None,
    amount: Amount = 100,
    size: Size = 128,
    json: Json = False,
) -> int:
    """Send messages to a topic's queues in turn, one after the other, with the time of each."""
    from kourou.cli.admin import watching_actions

    return report(
        namesrv,
        lambda client: watching_actions.send_times(client, topic, amount, size),
        as_json=json,
    )


@command("clusterRT", "How long sends to every broker take.")
def cluster_times(
    namesrv: NameServer = None,
    cluster: OneCluster = None,
    amount: Amount = 100,
    size: Size = 128,
    room: Annotated[
        str, typer.Option("-m", "--machineRoom", help="A name for the lines.")
    ] = "noname",
    plain: Annotated[
        Switch, typer.Option("-p", "--printLog", help="As lines, which --json gives.")
    ] = Switch.FALSE,
    interval: Interval = None,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """Send messages to the topic of every broker, with the mean time and the failures."""
    from kourou.cli.admin import watching_actions

    return report(
        namesrv,
        lambda client: watching_actions.cluster_times(client, cluster, amount, size, room),
        as_json=json or plain.on,
        interval_s=interval,
        rounds=rounds,
    )


@command("startMonitoring", "Groups that lag or fail, again and again.")
def monitor(
    namesrv: NameServer = None,
    lag: Annotated[int, typer.Option("--lag", min=0, help="A lag above this is told.")] = 100_000,
    interval: Interval = 60,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """Every minute: groups that lag, whose members disagree, fail or do not answer."""
    from kourou.cli.admin import watching_actions

    return report(
        namesrv,
        lambda client: watching_actions.troubles(client, lag),
        as_json=json,
        interval_s=interval,
        rounds=rounds,
    )
