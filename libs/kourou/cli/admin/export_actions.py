"""Exports to files: topics and groups, settings, metrics.

The names in the files are RocketMQ's, so that tools that read its exports read these. A file is
written under a temporary name and renamed, so that no reader sees a part of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.cli.admin.actions import chosen_brokers
from kourou.cli.admin.report import Report
from kourou.clock import SystemClock
from kourou.model.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from kourou.model.topic import DataVersion
from kourou.protocol.bodies.config_bodies import encode_group_configs, encode_topic_configs
from kourou.sync import Client


@dataclass(frozen=True, slots=True)
class Metadata:
    """What to export. `special`: retry and dead-letter topics, too."""

    topics: bool
    groups: bool
    special: bool


def metadata(
    client: Client, broker: str | None, cluster: str | None, folder: Path, what: Metadata
) -> Report:
    """Topics and groups, without those that every broker has."""
    found: dict[str, Any] = {"exportTime": SystemClock().now_ms()}
    if what.topics:
        topics = {
            name: config
            for configs in client.admin.topics.all_configs(broker=broker, cluster=cluster).values()
            for name, config in configs.items()
            if not is_system_topic(name)
            and (what.special or not name.startswith((RETRY_PREFIX, DLQ_PREFIX)))
        }
        table = json.loads(encode_topic_configs(topics.values(), DataVersion()))
        found["topicConfigTable"] = table["topicConfigTable"]
    if what.groups:
        groups = {
            name: config
            for configs in client.admin.groups.configs(broker=broker, cluster=cluster).values()
            for name, config in configs.items()
            if not is_system_group(name)
        }
        table = json.loads(encode_group_configs(groups.values(), DataVersion()))
        found["subscriptionGroupTable"] = table["subscriptionGroupTable"]
    return _written(folder / "metadata.json", found)


def configs(client: Client, cluster: str | None, folder: Path) -> Report:
    """Settings of brokers and name servers."""
    names = chosen_brokers(client, None, cluster)
    found = {
        "brokerConfigs": {name: client.admin.brokers.config(name) for name in names},
        "clusterScale": {
            "namesrvSize": len(settings := client.admin.name_servers.settings()),
            "masterBrokerSize": len(names),
        },
        "namesrvConfigs": settings,
    }
    return _written(folder / "configs.json", found)


def metrics(client: Client, cluster: str | None, folder: Path) -> Report:
    """Metrics of brokers, and their sums."""
    names = chosen_brokers(client, None, cluster)
    figures = {name: client.admin.brokers.runtime(name) for name in names}
    totals = {
        name: sum(int(one[name]) for one in figures.values() if one.get(name, "").isdigit())
        for name in ("msgPutTotalTodayNow", "msgGetTotalTodayNow")
    }
    found = {"evaluateReport": figures, "totalData": totals}
    return _written(folder / "metrics.json", found)


def _written(path: Path, found: Mapping[str, Any]) -> Report:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)
    return Report(("file", "bytes"), [(str(path), path.stat().st_size)])
