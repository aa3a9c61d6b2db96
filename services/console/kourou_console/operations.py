"""All operations of the API, chapter by chapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kourou_console.api import (
    alarms,
    brokers,
    browsing,
    cluster,
    dead_letters,
    discards,
    explain,
    filter_changes,
    filters,
    groups,
    history,
    leaders,
    leases,
    me,
    members,
    messages,
    name_servers,
    offsets,
    overview,
    probes,
    producing,
    queue_units,
    series,
    spark,
    tail,
    topic_changes,
    topic_groups,
    topics,
    transactions,
    waiting,
)
from kourou_console.gateway import Gateway
from kourou_console.leases.leases import Leases
from kourou_console.messages.transactions import HalfMessages
from kourou_console.metrics.sampler import Sampler
from kourou_console.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *me.OPERATIONS,
    *producing.OPERATIONS,
    *transactions.OPERATIONS,
    *leases.OPERATIONS,
    *messages.OPERATIONS,
    *browsing.OPERATIONS,
    *tail.OPERATIONS,
    *dead_letters.OPERATIONS,
    *waiting.OPERATIONS,
    *explain.OPERATIONS,
    *overview.OPERATIONS,
    *series.OPERATIONS,
    *alarms.OPERATIONS,
    *cluster.OPERATIONS,
    *brokers.OPERATIONS,
    *leaders.OPERATIONS,
    *topics.OPERATIONS,
    *topic_changes.OPERATIONS,
    *topic_groups.OPERATIONS,
    *queue_units.OPERATIONS,
    *groups.OPERATIONS,
    *members.OPERATIONS,
    *discards.OPERATIONS,
    *offsets.OPERATIONS,
    *filters.OPERATIONS,
    *filter_changes.OPERATIONS,
    *history.OPERATIONS,
    *name_servers.OPERATIONS,
    *spark.OPERATIONS,
    *probes.OPERATIONS,
)
"""In the order of the reference page."""

STARTED: tuple[Callable[[Gateway], Any], ...] = (HalfMessages, Leases, Sampler)
"""Components (kourou_console.gateway) that start with the service, not at the first call."""
