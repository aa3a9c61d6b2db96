"""`kourou admin`: the commands about topics and their arguments.

Lives here: names and letters. May not live here: what a command does (kourou.cli.admin.actions,
topic_actions), which is imported when one is called.
"""

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
        typer.Option("-w", "--writeQueueNums", min=1, max=TOPIC_QUEUES_MAX, help="Write queues."),
    ] = 8,
    read: Annotated[
        int | None,
        typer.Option(
            "-r", "--readQueueNums", min=1, max=TOPIC_QUEUES_MAX, help="Read queues; else as -w."
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


@command("updateTopicPerm", "Change who may read and write a topic.")
def update_perm(
    topic: Topic,
    perm: Perm,
    namesrv: NameServer = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Change the permission of a topic, and nothing else."""
    from kourou.cli.admin import topic_actions

    return report(
        namesrv,
        lambda client: topic_actions.update_perm(
            client, topic, perm, broker=broker, cluster=cluster
        ),
        as_json=json,
    )


@command("deleteTopic", "Delete a topic, its queues, all progress in it.")
def delete_topic(
    topic: Topic, namesrv: NameServer = None, cluster: OneCluster = None, json: Json = False
) -> int:
    """Delete a topic, its queues and all groups' progress in it."""
    from kourou.cli.admin import actions

    return report(
        namesrv, lambda client: actions.delete_topic(client, topic, cluster=cluster), as_json=json
    )


@command("topicList")
def topic_list(
    namesrv: NameServer = None,
    clusters: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="With cluster and consumer groups.")
    ] = False,
    json: Json = False,
) -> int:
    """The names of all topics."""
    from kourou.cli.admin import actions, topic_actions

    ask = topic_actions.topics_by_cluster if clusters else actions.topic_list
    return report(namesrv, ask, as_json=json)


@command("topicRoute")
def topic_route(
    topic: Topic,
    namesrv: NameServer = None,
    as_list: Annotated[
        bool, typer.Option("-l", "--list", help="As a list, which it is in any case.")
    ] = False,
    json: Json = False,
) -> int:
    """Which brokers have a topic's queues."""
    from kourou.cli.admin import actions

    return report(namesrv, lambda client: actions.topic_route(client, topic), as_json=json)


@command("topicStatus", "Bounds of every queue, and its last write.")
def topic_status(topic: Topic, namesrv: NameServer = None, json: Json = False) -> int:
    """Smallest and next offset of every queue, and when it was last written."""
    from kourou.cli.admin import actions

    return report(namesrv, lambda client: actions.topic_status(client, topic), as_json=json)


@command("topicClusterList")
def topic_clusters(topic: Topic, namesrv: NameServer = None, json: Json = False) -> int:
    """Which clusters have a topic."""
    from kourou.cli.admin import topic_actions

    return report(namesrv, lambda client: topic_actions.clusters_of(client, topic), as_json=json)


@command("updateOrderConf", "The queues of an ordered topic.")
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


@command("allocateMQ", "Which member would get which queues.")
def allocate(
    topic: Topic,
    members: Annotated[str, typer.Option("-i", "--ipList", help="Members, joined by commas.")],
    namesrv: NameServer = None,
    json: Json = False,
) -> int:
    """How a group of these members would share a topic's queues, averagely."""
    from kourou.cli.admin import topic_actions

    return report(
        namesrv, lambda client: topic_actions.allocate(client, topic, members), as_json=json
    )


@command("statsAll", "Rates and sums of topics and their groups.")
def stats_all(
    namesrv: NameServer = None,
    topic: OneTopic = None,
    active: Annotated[
        bool, typer.Option("-a", "--activeTopic", help="Only what moves at the moment.")
    ] = False,
    interval: Interval = None,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """For every topic and group: messages a second in and out, in 24 hours, and the lag."""
    from kourou.cli.admin import topic_actions

    return report(
        namesrv,
        lambda client: topic_actions.stats_all(client, topic, active_only=active),
        as_json=json,
        interval_s=interval,
        rounds=rounds,
    )
