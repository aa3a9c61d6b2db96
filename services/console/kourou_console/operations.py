"""All operations of the API, chapter by chapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kourou_console.api import (
    brokers,
    clients,
    cluster,
    dead_letters,
    filters,
    groups,
    history,
    leases,
    messages,
    offsets,
    overview,
    probes,
    sends,
    spark,
    tail,
    topic_changes,
    topic_details,
    topics,
)
from kourou_console.api import pending_messages as pending
from kourou_console.gateway import Gateway
from kourou_console.leases.leases import Leases
from kourou_console.messages.transactions import HalfMessages
from kourou_console.metrics.sampler import Sampler
from kourou_console.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *overview.CALLER_OPERATIONS,
    *sends.OPERATIONS,
    *leases.OPERATIONS,
    *messages.OPERATIONS,
    *tail.OPERATIONS,
    *dead_letters.OPERATIONS,
    *pending.OPERATIONS,
    *messages.EXPLAIN_OPERATIONS,
    *overview.OPERATIONS,
    *cluster.OPERATIONS,
    *brokers.OPERATIONS,
    *topics.OPERATIONS,
    *topic_changes.OPERATIONS,
    *topic_details.OPERATIONS,
    *groups.OPERATIONS,
    *clients.OPERATIONS,
    *dead_letters.DISCARD_OPERATIONS,
    *offsets.OPERATIONS,
    *filters.OPERATIONS,
    *cluster.QUOTA_OPERATIONS,
    *history.OPERATIONS,
    *history.AUDIT_OPERATIONS,
    *cluster.NAME_SERVER_OPERATIONS,
    *spark.OPERATIONS,
    *probes.OPERATIONS,
)
"""In the order of the reference page."""

STARTED: tuple[Callable[[Gateway], Any], ...] = (HalfMessages, Leases, Sampler)
"""Components (kourou_console.gateway) that start with the service, not at the first call."""
