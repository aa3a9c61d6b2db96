"""`kourou admin`: the commands for brokers, clusters and name servers, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kourou.cli.admin.options import (
    Broker,
    Interval,
    Json,
    NameServer,
    OneBroker,
    OneCluster,
    Rounds,
    command,
    report,
)

Key = Annotated[str, typer.Option("-k", "--key", help="The key.")]
Value = Annotated[str, typer.Option("-v", "--value", help="Its value.")]
Namespace = Annotated[str, typer.Option("-s", "--namespace", help="The namespace of the key.")]


@command("clusterList")
def cluster_list(
    namesrv: NameServer = None,
    more: Annotated[
        bool, typer.Option("-m", "--moreStats", help="Include message counts.")
    ] = False,
    interval: Interval = None,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """List clusters, their brokers and addresses."""
    from kourou.cli.admin import actions, broker_actions

    ask = broker_actions.cluster_statistics if more else actions.cluster_list
    return report(namesrv, ask, as_json=json, interval_s=interval, rounds=rounds)


@command("brokerStatus", "Show rates, offsets and sizes of a broker.")
def broker_status(
    namesrv: NameServer = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Show rates, offsets and sizes of a broker, or of those of a cluster."""
    from kourou.cli.admin import broker_actions

    return report(
        namesrv,
        lambda client: broker_actions.broker_status(client, broker, cluster),
        as_json=json,
    )


@command("getBrokerConfig")
def broker_config(
    namesrv: NameServer = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Show all settings of a broker."""
    from kourou.cli.admin import broker_actions

    return report(
        namesrv,
        lambda client: broker_actions.broker_config(client, broker, cluster),
        as_json=json,
    )


@command("updateBrokerConfig", "Change a setting of a running broker.")
def update_broker_config(
    key: Annotated[str, typer.Option("-k", "--key", help="A setting that can change at run time.")],
    value: Value,
    namesrv: NameServer = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Change a setting of a running broker, or of all brokers of a cluster."""
    from kourou.cli.admin import broker_actions

    return report(
        namesrv,
        lambda client: broker_actions.update_broker_config(client, broker, cluster, key, value),
        as_json=json,
    )


@command("wipeWritePerm", "Stop writes to a broker (before a shutdown).")
def wipe_write_perm(broker: Broker, namesrv: NameServer = None, json: Json = False) -> int:
    """Remove a broker from the routes for sending, before a shutdown."""
    from kourou.cli.admin import actions

    return report(
        namesrv, lambda client: actions.write_permission(client, broker, wipe=True), as_json=json
    )


@command("addWritePerm", "Allow writes to a broker again.")
def add_write_perm(broker: Broker, namesrv: NameServer = None, json: Json = False) -> int:
    """Put a broker back into the routes for sending."""
    from kourou.cli.admin import actions

    return report(
        namesrv, lambda client: actions.write_permission(client, broker, wipe=False), as_json=json
    )


@command("deleteExpiredCommitLog")
def delete_expired(
    namesrv: NameServer = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Delete expired log segments now."""
    from kourou.cli.admin import actions

    return report(
        namesrv, lambda client: actions.delete_expired(client, broker, cluster), as_json=json
    )


@command("cleanExpiredCQ", "Delete expired queue and index files.")
def clean_queues(
    namesrv: NameServer = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Delete queue and index files that refer only to expired messages."""
    from kourou.cli.admin import actions

    return report(
        namesrv, lambda client: actions.clean_queues(client, broker, cluster), as_json=json
    )


@command("cleanUnusedTopic", "Delete queues of deleted topics.")
def clean_topics(
    namesrv: NameServer = None,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Delete queues of deleted topics."""
    from kourou.cli.admin import broker_actions

    return report(
        namesrv, lambda client: broker_actions.clean_topics(client, broker, cluster), as_json=json
    )


# -- name servers ---------------------------------------------------------------------------------


@command("getNamesrvConfig")
def namesrv_config(namesrv: NameServer = None, json: Json = False) -> int:
    """Show all settings of the name servers."""
    from kourou.cli.admin import broker_actions

    return report(namesrv, broker_actions.namesrv_config, as_json=json)


@command("updateNamesrvConfig", "Change a setting of the name servers.")
def update_namesrv_config(
    key: Key, value: Value, namesrv: NameServer = None, json: Json = False
) -> int:
    """Change a run-time setting of the name servers."""
    from kourou.cli.admin import broker_actions

    return report(
        namesrv,
        lambda client: broker_actions.update_namesrv_config(client, key, value),
        as_json=json,
    )


@command("updateKvConfig", "Set a key at the name servers.")
def put_key_value(
    namespace: Namespace, key: Key, value: Value, namesrv: NameServer = None, json: Json = False
) -> int:
    """Set a key of a namespace at every name server."""
    from kourou.cli.admin import broker_actions

    return report(
        namesrv,
        lambda client: broker_actions.put_key_value(client, namespace, key, value),
        as_json=json,
    )


@command("deleteKvConfig", "Delete a key at the name servers.")
def delete_key_value(
    namespace: Namespace, key: Key, namesrv: NameServer = None, json: Json = False
) -> int:
    """Remove a key of a namespace, at every name server."""
    from kourou.cli.admin import broker_actions

    return report(
        namesrv,
        lambda client: broker_actions.delete_key_value(client, namespace, key),
        as_json=json,
    )


@command("getKvConfig", "Show keys and values at the name servers.")
def key_values(
    namespace: Namespace,
    namesrv: NameServer = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Only this key.")] = None,
    json: Json = False,
) -> int:
    """Show the keys and values of a namespace, or one of them."""
    from kourou.cli.admin import broker_actions

    return report(
        namesrv, lambda client: broker_actions.key_values(client, namespace, key), as_json=json
    )


# -- export ---------------------------------------------------------------------------------------

Folder = Annotated[
    Path, typer.Option("-f", "--filePath", help="The output folder (created if missing).")
]
HERE = Path("rocketmq-export")


@command("exportMetadata", "Export topics and groups as JSON.")
def export_metadata(
    namesrv: NameServer = None,
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
    json: Json = False,
) -> int:
    """Write the topics and groups of a broker or a cluster into metadata.json."""
    from kourou.cli.admin import export_actions

    what = export_actions.Metadata(
        topics=only_topics or not only_groups,
        groups=only_groups or not only_topics,
        special=special,
    )
    return report(
        namesrv,
        lambda client: export_actions.metadata(client, broker, cluster, folder, what),
        as_json=json,
    )


@command("exportConfigs", "Export broker settings as JSON.")
def export_configs(
    namesrv: NameServer = None,
    cluster: OneCluster = None,
    folder: Folder = HERE,
    json: Json = False,
) -> int:
    """Write the settings of a cluster's brokers and of the name servers into configs.json."""
    from kourou.cli.admin import export_actions

    return report(
        namesrv, lambda client: export_actions.configs(client, cluster, folder), as_json=json
    )


@command("exportMetrics", "Export broker metrics as JSON.")
def export_metrics(
    namesrv: NameServer = None,
    cluster: OneCluster = None,
    folder: Folder = HERE,
    json: Json = False,
) -> int:
    """Write the metrics of a cluster's brokers into metrics.json."""
    from kourou.cli.admin import export_actions

    return report(
        namesrv, lambda client: export_actions.metrics(client, cluster, folder), as_json=json
    )
