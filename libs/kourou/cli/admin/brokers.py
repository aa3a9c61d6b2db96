"""`kourou admin`: the commands for brokers, clusters and name servers, and exports of both.

The names in exported files are RocketMQ's, so that tools that read its exports read these. A file
is written under a temporary name and renamed, so that no reader sees a part of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.command import Broker, OneBroker, OneCluster, command
from kourou.cli.admin.report import Report
from kourou.errors import BadRequest, Rejected
from kourou.model.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic

if TYPE_CHECKING:
    from kourou.protocol.bodies.route_bodies import ClusterInfo
    from kourou.sync import Client

Key = Annotated[str, typer.Option("-k", "--key", help="The key.")]
Value = Annotated[str, typer.Option("-v", "--value", help="Its value.")]
Namespace = Annotated[str, typer.Option("-s", "--namespace", help="The namespace of the key.")]


# -- which broker ---------------------------------------------------------------------------------


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
    from kourou.client.session.discovery import store_host_of

    return text in addresses or text in [
        f"{host}:{port}" for host, port in map(store_host_of, addresses)
    ]


def chosen_brokers(client: Client, broker: str | None, cluster: str | None) -> list[str]:
    """One broker, those of a cluster, or all."""
    if broker is not None:
        return [broker_name(client, broker)]
    names: list[str] = client.admin.brokers.names()
    if cluster is None:
        return names
    inside = client.admin.cluster.info().clusters.get(cluster)
    if inside is None:
        raise BadRequest(f"cluster {cluster!r} not found")
    return [name for name in names if name in inside]


def _required_brokers(client: Client, broker: str | None, cluster: str | None) -> list[str]:
    if broker is None and cluster is None:
        raise BadRequest("no broker was named", hint="-b BROKER, or -c CLUSTER")
    return chosen_brokers(client, broker, cluster)


# -- clusters and brokers -------------------------------------------------------------------------


@command("clusterList", repeats=True)
def cluster_list(
    client: Client,
    *,
    more: Annotated[
        bool, typer.Option("-m", "--moreStats", help="Include message counts.")
    ] = False,
) -> Report:
    """List clusters, their brokers and addresses."""
    info = client.admin.cluster.info()
    if more:
        return _cluster_statistics(client, info)
    rows = [
        (cluster, name, broker_id, address)
        for cluster, names in sorted(info.clusters.items())
        for name in sorted(names)
        if name in info.brokers
        for broker_id, address in sorted(info.brokers[name].broker_addrs.items())
    ]
    return Report(("cluster", "broker", "id", "address"), rows)


def _cluster_statistics(client: Client, info: ClusterInfo) -> Report:
    """Message counts of the day, and disk usage, of every broker."""
    rows = []
    for cluster, names in sorted(info.clusters.items()):
        for name in sorted(set(names) & set(info.brokers)):
            metrics = client.admin.brokers.runtime(name)
            rows.append(
                (
                    cluster,
                    name,
                    metrics.get("brokerVersionDesc"),
                    _number(metrics, "msgPutTotalTodayNow"),
                    _number(metrics, "msgGetTotalTodayNow"),
                    metrics.get("commitLogDiskRatio"),
                    metrics.get("runtime"),
                )
            )
    return Report(("cluster", "broker", "version", "in", "out", "disk", "running"), rows)


def _number(metrics: Mapping[str, str], name: str) -> int | None:
    text = metrics.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


@command("brokerStatus", "Show rates, offsets and sizes of a broker.")
def broker_status(
    client: Client, *, broker: OneBroker = None, cluster: OneCluster = None
) -> Report:
    """Show rates, offsets and sizes of a broker, or of those of a cluster."""
    names = _required_brokers(client, broker, cluster)
    return _tables({name: client.admin.brokers.runtime(name) for name in names}, "broker")


@command("getBrokerConfig")
def broker_config(
    client: Client, *, broker: OneBroker = None, cluster: OneCluster = None
) -> Report:
    """Show all settings of a broker."""
    names = _required_brokers(client, broker, cluster)
    return _tables({name: client.admin.brokers.config(name) for name in names}, "broker")


@command("updateBrokerConfig", "Change a setting of a running broker.")
def update_broker_config(
    client: Client,
    key: Annotated[str, typer.Option("-k", "--key", help="A setting that can change at run time.")],
    value: Value,
    *,
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Change a setting of a running broker, or of all brokers of a cluster."""
    now: dict[str, dict[str, str]] = {}
    for name in _required_brokers(client, broker, cluster):
        client.admin.brokers.update_config(name, {key: value})
        now[name] = {key: client.admin.brokers.config(name).get(key, "")}
    return _tables(now, "broker")


def _tables(found: Mapping[str, Mapping[str, str]], whose: str) -> Report:
    """One table for each name; with several tables, a column has the name."""
    if len(found) == 1:
        ((_, only),) = found.items()
        return Report(("key", "value"), sorted(only.items()))
    rows = [
        (name, key, value)
        for name, table in sorted(found.items())
        for key, value in sorted(table.items())
    ]
    return Report((whose, "key", "value"), rows)


@command("wipeWritePerm", "Stop writes to a broker (before a shutdown).")
def wipe_write_perm(client: Client, broker: Broker) -> Report:
    """Remove a broker from the routes for sending, before a shutdown."""
    name = broker_name(client, broker)
    client.admin.brokers.wipe_write_perm(name)
    return Report(
        remarks=[f"{name} accepts no more writes once clients have new routes (up to 40 s)"]
    )


@command("addWritePerm", "Allow writes to a broker again.")
def add_write_perm(client: Client, broker: Broker) -> Report:
    """Put a broker back into the routes for sending."""
    name = broker_name(client, broker)
    client.admin.brokers.add_write_perm(name)
    return Report(remarks=[f"{name} accepts writes again"])


@command("deleteExpiredCommitLog")
def delete_expired(
    client: Client, *, broker: OneBroker = None, cluster: OneCluster = None
) -> Report:
    """Delete expired log segments now."""
    names = chosen_brokers(client, broker, cluster)
    for name in names:
        client.admin.brokers.delete_expired_log(name)
    return Report(remarks=[f"{name} deletes expired log segments now" for name in names])


@command("cleanExpiredCQ", "Delete expired queue and index files.")
def clean_queues(client: Client, *, broker: OneBroker = None, cluster: OneCluster = None) -> Report:
    """Delete queue and index files that refer only to expired messages."""
    names = chosen_brokers(client, broker, cluster)
    for name in names:
        client.admin.brokers.clean_expired_queues(name)
    return Report(remarks=[f"{name} deletes expired queue and index files now" for name in names])


@command("cleanUnusedTopic", "Delete queues of deleted topics.")
def clean_topics(client: Client, *, broker: OneBroker = None, cluster: OneCluster = None) -> Report:
    """Delete queues of deleted topics."""
    names = chosen_brokers(client, broker, cluster)
    for name in names:
        client.admin.brokers.clean_unused_topics(name)
    return Report(remarks=[f"{name} deletes queues of deleted topics now" for name in names])


# -- name servers ---------------------------------------------------------------------------------


@command("getNamesrvConfig")
def namesrv_config(client: Client) -> Report:
    """Show all settings of the name servers."""
    return _tables(client.admin.name_servers.settings(), "name server")


@command("updateNamesrvConfig", "Change a setting of the name servers.")
def update_namesrv_config(client: Client, key: Key, value: Value) -> Report:
    """Change a run-time setting of the name servers."""
    client.admin.name_servers.update_settings({key: value})
    return Report(remarks=[f"{key} is {value}"])


@command("updateKvConfig", "Set a key at the name servers.")
def put_key_value(client: Client, namespace: Namespace, key: Key, value: Value) -> Report:
    """Set a key of a namespace at every name server."""
    client.admin.name_servers.put(namespace, key, value)
    return Report(("namespace", "key", "value"), [(namespace, key, value)])


@command("deleteKvConfig", "Delete a key at the name servers.")
def delete_key_value(client: Client, namespace: Namespace, key: Key) -> Report:
    """Remove a key of a namespace, at every name server."""
    client.admin.name_servers.delete(namespace, key)
    return Report(remarks=[f"{namespace} no longer has the key {key}"])


@command("getKvConfig", "Show keys and values at the name servers.")
def key_values(
    client: Client,
    namespace: Namespace,
    *,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Only this key.")] = None,
) -> Report:
    """Show the keys and values of a namespace, or one of them."""
    values: dict[str, str] = client.admin.name_servers.list(namespace)
    if key is not None:
        if key not in values:
            raise Rejected(f"namespace {namespace} has no key {key}")
        values = {key: values[key]}
    remarks = [] if values else [f"namespace {namespace} has no keys"]
    return Report(("key", "value"), sorted(values.items()), remarks)


# -- exports --------------------------------------------------------------------------------------

Folder = Annotated[
    Path, typer.Option("-f", "--filePath", help="The output folder (created if missing).")
]
HERE = Path("rocketmq-export")


@command("exportMetadata", "Export topics and groups as JSON.")
def export_metadata(
    client: Client,
    *,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    folder: Folder = HERE,
    only_topics: Annotated[bool, typer.Option("-t", "--topic", help="Only topics.")] = False,
    only_groups: Annotated[
        bool, typer.Option("-g", "--subscriptionGroup", help="Only groups.")
    ] = False,
    special: Annotated[
        bool, typer.Option("-s", "--specialTopic", help="Include retry and dead-letter topics.")
    ] = False,
) -> Report:
    """Write the topics and groups of a broker or a cluster into metadata.json."""
    from kourou.clock import SystemClock
    from kourou.model.topic import DataVersion
    from kourou.protocol.bodies.config_bodies import encode_group_configs, encode_topic_configs

    exported: dict[str, Any] = {"exportTime": SystemClock().now_ms()}
    if only_topics or not only_groups:
        topics = {
            name: config
            for configs in client.admin.topics.all_configs(broker=broker, cluster=cluster).values()
            for name, config in configs.items()
            if not is_system_topic(name)
            and (special or not name.startswith((RETRY_PREFIX, DLQ_PREFIX)))
        }
        table = json.loads(encode_topic_configs(topics.values(), DataVersion()))
        exported["topicConfigTable"] = table["topicConfigTable"]
    if only_groups or not only_topics:
        groups = {
            name: config
            for configs in client.admin.groups.configs(broker=broker, cluster=cluster).values()
            for name, config in configs.items()
            if not is_system_group(name)
        }
        table = json.loads(encode_group_configs(groups.values(), DataVersion()))
        exported["subscriptionGroupTable"] = table["subscriptionGroupTable"]
    return _write(folder / "metadata.json", exported)


@command("exportConfigs", "Export broker settings as JSON.")
def export_configs(client: Client, *, cluster: OneCluster = None, folder: Folder = HERE) -> Report:
    """Write the settings of a cluster's brokers and of the name servers into configs.json."""
    names = chosen_brokers(client, None, cluster)
    settings = client.admin.name_servers.settings()
    exported = {
        "brokerConfigs": {name: client.admin.brokers.config(name) for name in names},
        "clusterScale": {"namesrvSize": len(settings), "masterBrokerSize": len(names)},
        "namesrvConfigs": settings,
    }
    return _write(folder / "configs.json", exported)


@command("exportMetrics", "Export broker metrics as JSON.")
def export_metrics(client: Client, *, cluster: OneCluster = None, folder: Folder = HERE) -> Report:
    """Write the metrics of a cluster's brokers into metrics.json."""
    names = chosen_brokers(client, None, cluster)
    metrics = {name: client.admin.brokers.runtime(name) for name in names}
    totals = {
        name: sum(int(one[name]) for one in metrics.values() if one.get(name, "").isdigit())
        for name in ("msgPutTotalTodayNow", "msgGetTotalTodayNow")
    }
    return _write(folder / "metrics.json", {"evaluateReport": metrics, "totalData": totals})


def _write(path: Path, exported: Mapping[str, Any]) -> Report:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(exported, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
    return Report(("file", "bytes"), [(str(path), path.stat().st_size)])
