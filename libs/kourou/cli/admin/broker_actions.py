"""Admin commands for brokers, clusters and name servers: a few requests and one report each."""

from __future__ import annotations

from collections.abc import Mapping

from kourou.cli.admin.actions import chosen_brokers
from kourou.cli.admin.report import Report
from kourou.errors import BadRequest, Rejected
from kourou.sync import Client


def cluster_statistics(client: Client) -> Report:
    """Message counts of the day, and disk usage, of every broker."""
    rows = []
    info = client.admin.cluster.info()
    for cluster, names in sorted(info.clusters.items()):
        for name in sorted(set(names) & set(info.brokers)):
            found = client.admin.brokers.runtime(name)
            rows.append(
                (
                    cluster,
                    name,
                    found.get("brokerVersionDesc"),
                    _number(found, "msgPutTotalTodayNow"),
                    _number(found, "msgGetTotalTodayNow"),
                    found.get("commitLogDiskRatio"),
                    found.get("runtime"),
                )
            )
    return Report(("cluster", "broker", "version", "in", "out", "disk", "running"), rows)


def _number(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def broker_status(client: Client, broker: str | None, cluster: str | None) -> Report:
    """Metrics of brokers."""
    names = _wanted(client, broker, cluster)
    return _tables({name: client.admin.brokers.runtime(name) for name in names}, "broker")


def broker_config(client: Client, broker: str | None, cluster: str | None) -> Report:
    """Settings of brokers."""
    names = _wanted(client, broker, cluster)
    return _tables({name: client.admin.brokers.config(name) for name in names}, "broker")


def update_broker_config(
    client: Client, broker: str | None, cluster: str | None, key: str, value: str
) -> Report:
    """Change a setting of running brokers, and show its new value."""
    now: dict[str, dict[str, str]] = {}
    for name in _wanted(client, broker, cluster):
        client.admin.brokers.update_config(name, {key: value})
        now[name] = {key: client.admin.brokers.config(name).get(key, "")}
    return _tables(now, "broker")


def clean_topics(client: Client, broker: str | None, cluster: str | None) -> Report:
    """Let brokers delete queues of deleted topics."""
    names = chosen_brokers(client, broker, cluster)
    for name in names:
        client.admin.brokers.clean_unused_topics(name)
    return Report(remarks=[f"{name} deletes queues of deleted topics now" for name in names])


def _wanted(client: Client, broker: str | None, cluster: str | None) -> list[str]:
    if broker is None and cluster is None:
        raise BadRequest("no broker was named", hint="-b BROKER, or -c CLUSTER")
    return chosen_brokers(client, broker, cluster)


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


# -- name servers ---------------------------------------------------------------------------------


def namesrv_config(client: Client) -> Report:
    """Settings of the name servers."""
    return _tables(client.admin.name_servers.settings(), "name server")


def update_namesrv_config(client: Client, key: str, value: str) -> Report:
    """Change a setting of the name servers."""
    client.admin.name_servers.update_settings({key: value})
    return Report(remarks=[f"{key} is {value}"])


def put_key_value(client: Client, namespace: str, key: str, value: str) -> Report:
    """Set a key of a namespace."""
    client.admin.name_servers.put(namespace, key, value)
    return Report(("namespace", "key", "value"), [(namespace, key, value)])


def delete_key_value(client: Client, namespace: str, key: str) -> Report:
    """Remove a key of a namespace."""
    client.admin.name_servers.delete(namespace, key)
    return Report(remarks=[f"{namespace} no longer has the key {key}"])


def key_values(client: Client, namespace: str, key: str | None) -> Report:
    """The keys and values of a namespace."""
    found: dict[str, str] = client.admin.name_servers.list(namespace)
    if key is not None:
        if key not in found:
            raise Rejected(f"namespace {namespace} has no key {key}")
        found = {key: found[key]}
    remarks = [] if found else [f"namespace {namespace} has no keys"]
    return Report(("key", "value"), sorted(found.items()), remarks)
