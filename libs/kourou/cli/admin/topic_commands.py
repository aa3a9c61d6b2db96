"""`kourou admin`: the commands for topics, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from kourou.cli.admin.options import (
    Interval,
    Json,
    NameServer,
    OneBroker,
    OneCluster,
    OneTopic,
    Rounds,
    Switch,
    Topic,
    command,
    report,
)
from kourou.model.limits import TOPIC_QUEUES_MAX

Perm = Annotated[int, typer.Option("-p", "--perm", help="2 write, 4 read, 6 both.")]


@command("updateTopic", "Create or change a topic.")
def update_topic(
    topic: Topic,
    namesrv: NameServer = None,
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
    json: Json = False,
) -> int:
    """Create a topic, or change its queues and permission."""
    from kourou.cli.admin import actions

    queues = write if read is None else read
    return report(
        namesrv,
        lambda client: actions.update_topic(
            client,
            topic,
            write=write,
            read=queues,
            perm=perm,
            order=order.on,
            sys_flag=unit.on | unit_sub.on << 1,
            broker=broker,
            cluster=cluster,
        ),
        as_json=json,
    )


@command("updateTopicPerm", "Change the permissions of a topic.")
def update_perm(
    topic: Topic,
    perm: Perm,
    namesrv: NameServer = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Change the permissions of a topic only."""
    from kourou.cli.admin import topic_actions

    return report(
        namesrv,
        lambda client: topic_actions.update_perm(
            client, topic, perm, broker=broker, cluster=cluster
        ),
        as_json=json,
    )


@command("deleteTopic", "Delete a topic with queues and offsets.")
def delete_topic(
    topic: Topic, namesrv: NameServer = None, cluster: OneCluster = None, json: Json = False
) -> int:
    """Delete a topic with its queues and the offsets of all groups."""
    from kourou.cli.admin import actions

    return report(
        namesrv, lambda client: actions.delete_topic(client, topic, cluster=cluster), as_json=json
    )


@command("topicList")
def topic_list(
    namesrv: NameServer = None,
    clusters: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="Include cluster and consumer groups.")
    ] = False,
    json: Json = False,
) -> int:
    """List all topics."""
    from kourou.cli.admin import actions, topic_actions

    ask = topic_actions.topics_by_cluster if clusters else actions.topic_list
    return report(namesrv, ask, as_json=json)


@command("topicRoute")
def topic_route(
    topic: Topic,
    namesrv: NameServer = None,
    as_list: Annotated[
        bool, typer.Option("-l", "--list", help="Ignored: the output is always a list.")
    ] = False,
    json: Json = False,
) -> int:
    """Show the brokers and queues of a topic."""
    from kourou.cli.admin import actions

    return report(namesrv, lambda client: actions.topic_route(client, topic), as_json=json)


@command("topicStatus", "Show offsets and last write of every queue.")
def topic_status(topic: Topic, namesrv: NameServer = None, json: Json = False) -> int:
    """Show minimum and maximum offset and last write of every queue."""
    from kourou.cli.admin import actions

    return report(namesrv, lambda client: actions.topic_status(client, topic), as_json=json)


@command("topicClusterList")
def topic_clusters(topic: Topic, namesrv: NameServer = None, json: Json = False) -> int:
    """Show the clusters of a topic."""
    from kourou.cli.admin import topic_actions

    return report(namesrv, lambda client: topic_actions.clusters_of(client, topic), as_json=json)


@command("updateOrderConf", "Change the order setting of a topic.")
def update_order_conf(
    topic: Topic,
    method: Annotated[str, typer.Option("-m", "--method", help="put, get or delete.")],
    namesrv: NameServer = None,
    conf: Annotated[
        str | None, typer.Option("-v", "--orderConf", help="broker:queues;broker:queues")
    ] = None,
    json: Json = False,
) -> int:
    """Put, get or delete the order setting of a topic at the name servers."""
    from kourou.cli.admin import topic_actions

    return report(
        namesrv,
        lambda client: topic_actions.order_conf(client, topic, method, conf),
        as_json=json,
    )


@command("allocateMQ", "Show how queues would be assigned.")
def allocate(
    topic: Topic,
    members: Annotated[str, typer.Option("-i", "--ipList", help="Consumers, separated by commas.")],
    namesrv: NameServer = None,
    json: Json = False,
) -> int:
    """Show how a group of these consumers would share a topic's queues (average strategy)."""
    from kourou.cli.admin import topic_actions

    return report(
        namesrv, lambda client: topic_actions.allocate(client, topic, members), as_json=json
    )


@command("statsAll", "Show rates and totals of topics and groups.")
def stats_all(
    namesrv: NameServer = None,
    topic: OneTopic = None,
    active: Annotated[
        bool, typer.Option("-a", "--activeTopic", help="Only active topics and groups.")
    ] = False,
    interval: Interval = None,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """Show for each topic and group: messages per second, per 24 hours, and lag."""
    from kourou.cli.admin import topic_actions

    return report(
        namesrv,
        lambda client: topic_actions.stats_all(client, topic, active_only=active),
        as_json=json,
        interval_s=interval,
        rounds=rounds,
    )
