"""The table of all metrics: name, kind, labels, description, and the services that export them.

Names starting with `rocketmq_` are those of RocketMQ 5, with its labels, so that dashboards made
for RocketMQ work. Kourou's own start with `kourou_`. The reference page is generated from this
table, and a test compares the table with what running services export.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import partial


class MetricKind(Enum):
    """The kind of a metric."""

    COUNTER = "counter"  # only increases while the process lives
    GAUGE = "gauge"  # read at each scrape
    HISTOGRAM = "histogram"  # counts observations in buckets


class ServiceKind(StrEnum):
    """The service that exports a metric."""

    BROKER = "broker"
    NAMESRV = "namesrv"
    FILTER_SERVER = "filter-server"
    SPARK_ETL = "spark-etl"
    CONSOLE = "console"


BASE_LABELS: Mapping[ServiceKind, tuple[str, ...]] = {
    ServiceKind.BROKER: ("cluster", "node_type", "node_id"),
    ServiceKind.NAMESRV: ("node_type",),
    ServiceKind.FILTER_SERVER: ("node_type", "node_id"),
    ServiceKind.SPARK_ETL: ("node_type",),
    ServiceKind.CONSOLE: ("node_type",),
}
"""The labels of every sample of a service, in addition to those of the metric."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. `when` states the condition if it is not always exported."""

    name: str
    kind: MetricKind
    about: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    services: tuple[ServiceKind, ...] = (ServiceKind.BROKER,)
    when: str = ""


def _metric(
    kind: MetricKind, name: str, about: str, *labels: str, unit: str = "", when: str = ""
) -> MetricSpec:
    return MetricSpec(name, kind, about, labels, unit, when=when)


_counter = partial(_metric, MetricKind.COUNTER)
_gauge = partial(_metric, MetricKind.GAUGE)
_histogram = partial(_metric, MetricKind.HISTOGRAM)


def _of(services: tuple[ServiceKind, ...], *specs: MetricSpec) -> tuple[MetricSpec, ...]:
    """These metrics, as those of the services; in the order of the reference page."""
    return tuple(replace(spec, services=services) for spec in specs)


RPC_BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
"""RocketMQ 5's buckets of rocketmq_rpc_latency."""

DISK_BOUNDS_MS = (1, 3, 5, 7, 10, 30, 100, 300, 1_000, 3_000, 10_000)
"""A flush takes less than 1 ms on a good disk and 1 s on a degraded one."""

ETL_BOUNDS_MS = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
"""A micro-batch takes a few hundred milliseconds, however small it is."""

GATEWAY_BOUNDS_MS = (1, 3, 5, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)
"""A send takes some milliseconds; a call that waits for messages takes up to its timeout."""

LOOP_LAG_BOUNDS_MS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 300, 1_000)
"""An idle loop is late by about 0.1 ms."""

FILTER_BOUNDS_US = (1, 2, 3, 5, 7, 10, 20, 50, 100, 1_000)
"""A filter that reads a property takes 1 µs; one that reads a large body takes 100 µs."""


_BROKER = (ServiceKind.BROKER,)
_BOTH = (ServiceKind.BROKER, ServiceKind.NAMESRV, ServiceKind.FILTER_SERVER)
_NAMESRV = (ServiceKind.NAMESRV,)
_FILTER_SERVER = (ServiceKind.FILTER_SERVER,)
_BY_FILTER = ("consumer_group", "filter", "version")
_SPARK_ETL = (ServiceKind.SPARK_ETL,)
_CONSOLE = (ServiceKind.CONSOLE,)
_BY_QUERY = ("query", "job")
_TRACERS = (
    ServiceKind.BROKER,
    ServiceKind.FILTER_SERVER,
    ServiceKind.SPARK_ETL,
    ServiceKind.CONSOLE,
)
_BY_TOPIC = ("topic", "message_type", "is_system")
_BY_GROUP = ("topic", "consumer_group", "is_retry", "is_system")
_BY_CLIENT = ("language", "version", "protocol_type")
_STORAGE = ("storage_type", "storage_medium")
_TRACING = "only while the service exports traces"
_IN_A_GROUP = "only in a Raft group"

_OF_BROKERS = _of(
    _BROKER,
    # RocketMQ 5: traffic
    _counter("rocketmq_messages_in_total", "Messages stored", *_BY_TOPIC),
    _counter("rocketmq_messages_out_total", "Messages delivered", *_BY_GROUP),
    _counter("rocketmq_throughput_in_total", "Bytes stored", *_BY_TOPIC, unit="bytes"),
    _counter("rocketmq_throughput_out_total", "Bytes delivered", *_BY_GROUP, unit="bytes"),
    _histogram("rocketmq_message_size", "Sizes of messages stored", *_BY_TOPIC, unit="bytes"),
    _histogram(
        "rocketmq_rpc_latency",
        "From a request's arrival to its reply; is_long_polling marks pulls that "
        "waited for messages",
        "protocol_type",
        "request_code",
        "response_code",
        "is_long_polling",
        unit="ms",
    ),
    # RocketMQ 5: inventory
    _gauge("rocketmq_topic_number", "Topics"),
    _gauge("rocketmq_consumer_group_number", "Consumer groups"),
    _gauge("rocketmq_broker_permission", "Permission of this broker: 4 read, 2 write"),
    _gauge("rocketmq_consumer_lag_messages", "Messages a group has not consumed", *_BY_GROUP),
    _gauge("rocketmq_producer_connections", "Connections of producers", *_BY_CLIENT),
    _gauge(
        "rocketmq_consumer_connections",
        "Connections of a group's members",
        "consumer_group",
        "consume_mode",
        "is_system",
        *_BY_CLIENT,
    ),
    # RocketMQ 5: transactions
    _gauge("rocketmq_half_messages", "Half messages whose transaction is open"),
    _counter("rocketmq_commit_messages_total", "Transactions that were committed", "topic"),
    _counter("rocketmq_rollback_messages_total", "Transactions that were rolled back", "topic"),
    # RocketMQ 5: the store
    _gauge("rocketmq_storage_size", "Bytes of the commit log", *_STORAGE, unit="bytes"),
    _gauge(
        "rocketmq_storage_flush_behind_bytes", "Appended and not flushed", *_STORAGE, unit="bytes"
    ),
    _gauge(
        "rocketmq_storage_dispatch_behind_bytes",
        "Appended and not in the queues",
        *_STORAGE,
        unit="bytes",
    ),
    _gauge(
        "rocketmq_storage_message_reserve_time",
        "Age of the oldest record in the log; absent without one, or if it is damaged",
        *_STORAGE,
        unit="ms",
    ),
    # Kourou: the store
    _histogram("kourou_store_flush_latency", "Time of one flush of the log", unit="ms"),
    _histogram(
        "kourou_store_checkpoint_latency", "Time of one flush of queues and index", unit="ms"
    ),
    _gauge("kourou_quarantined_regions", "Damaged regions of the log that are quarantined"),
    _gauge("kourou_store_faulted", "1 after a failed flush, when this broker acknowledges nothing"),
    _gauge(
        "kourou_store_last_fault_timestamp_seconds",
        "Time of the last such failure of an earlier process on this store",
        unit="s",
        when="only after such a failure",
    ),
    _gauge("kourou_store_disk_used_ratio", "Share of the store's disk in use, from 0 to 1"),
    _gauge("kourou_store_disk_level", "0 normal, 1 cleaning, 2 forcing, 3 refusing, 4 starving"),
    _gauge("kourou_store_disk_refusing", "1 while messages are refused because of a full disk"),
    _gauge("kourou_store_disk_low", "1 while less than 4 GiB are free on the store's disk"),
    _counter("kourou_retention_segments_deleted_total", "Log segments deleted", "reason"),
    _gauge(
        "kourou_retention_unread_expiring_messages",
        "Messages that expire soon and that a group has not read",
        *_BY_GROUP,
    ),
    _counter(
        "kourou_retention_unread_deleted_total",
        "Messages deleted that a group had not read; from 0 on for all that groups read",
        *_BY_GROUP,
    ),
    _counter("kourou_clock_steps_total", "Changes of the system clock by over a second"),
    # Kourou: Python filters
    _gauge("kourou_filters", "Filters in Python that consumer groups have"),
    _gauge("kourou_filter_versions", "Their versions that are kept"),
    _gauge("kourou_filter_quarantined_versions", "Versions of them that are quarantined"),
    _gauge("kourou_filter_servers", "Filter servers that are registered"),
    _counter(
        "kourou_filter_skips_recorded_total",
        "Messages that were skipped because a filter failed",
        "consumer_group",
        "filter",
    ),
    # Delayed messages, retries and dead letters
    _gauge("kourou_delayed_waiting", "Delayed messages that wait, by level", "delay_level"),
    _histogram(
        "kourou_delayed_lateness", "From the end of a message's delay to its delivery", unit="ms"
    ),
    _gauge("kourou_delayed_lateness_max", "The latest delivery since the start", unit="ms"),
    _counter(
        "kourou_delayed_lost_total", "Delayed messages deleted with the log before they were due"
    ),
    _counter("kourou_delayed_undeliverable_total", "Delayed messages that are damaged"),
    _counter(
        "kourou_messages_sent_back_total",
        "Messages that consumers sent back for another attempt",
        *_BY_GROUP,
    ),
    _counter(
        "rocketmq_send_to_dlq_messages_total",
        "Messages that became dead letters; from 0 on for all that groups consume",
        *_BY_GROUP,
    ),
    # Kourou: requests
    _counter(
        "kourou_quota_requests_total",
        "Requests that a quota delayed, refused, or dropped because they are one-way",
        "quota",
        "outcome",
    ),
    _gauge("kourou_quotas", "Quotas of users, topics and groups"),
    _gauge("kourou_quota_held", "Requests and replies that wait for a quota"),
    _counter("kourou_requests_refused_total", "Requests refused", "response_code"),
    _counter("kourou_repeats_removed_total", "Repeated sends answered with their original's place"),
    _counter(
        "kourou_messages_filtered_total",
        "Messages that pulls skipped because they do not match the subscription",
        *_BY_GROUP,
    ),
    _counter(
        "kourou_filter_failures_total",
        "Messages whose properties could not be compared with their group's filter",
        *_BY_GROUP,
    ),
    _gauge("kourou_holds", "Pulls that wait for data"),
    _gauge(
        "kourou_queue_locks", "Queues that a group's members consume in order", "consumer_group"
    ),
    # Kourou: transactions
    _counter("kourou_transactions_resolved_total", "Transactions that ended", "outcome"),
    _counter("kourou_transaction_checks_total", "Producers asked about a half message"),
    _counter(
        "kourou_transaction_checks_unasked_total",
        "Checks of half messages whose producer group had no connected producer",
    ),
    # Kourou: replication
    _gauge("kourou_replication_leads", "1 while it leads its log, 0 while it follows"),
    _gauge("kourou_replication_epoch", "The newest epoch of its log"),
    _gauge("kourou_replication_followers", "Followers attached to it"),
    _gauge(
        "kourou_replication_in_sync", "Followers whose copies count", when="only of a SYNC_MASTER"
    ),
    _gauge(
        "kourou_replication_lag_bytes", "Bytes a follower has not copied", "broker_id", unit="bytes"
    ),
    _gauge(
        "kourou_replication_lag_seconds",
        "Time since a follower had all that its leader had",
        "broker_id",
        unit="s",
    ),
    # Kourou: connections between the replicas of a Raft group
    _gauge(
        "kourou_raft_peer_connected",
        "1 while it is connected to another replica",
        "peer",
        when=_IN_A_GROUP,
    ),
    _counter(
        "kourou_raft_messages_sent_total",
        "Messages sent to another replica",
        "peer",
        when=_IN_A_GROUP,
    ),
    _counter(
        "kourou_raft_messages_dropped_total",
        "Messages not sent to another replica, because it was not connected or its queue was full",
        "peer",
        when=_IN_A_GROUP,
    ),
    _gauge(
        "kourou_raft_forwarding",
        "Client requests that it forwarded to another replica",
        "peer",
        when=_IN_A_GROUP,
    ),
    # Kourou: the single-writer loop
    _counter("kourou_loop_turns_total", "Turns of the single-writer loop"),
    _counter("kourou_loop_inputs_total", "Inputs handled in them"),
    _gauge("kourou_loop_largest_batch", "Most inputs of one turn so far"),
)

_OF_CONNECTIONS = _of(
    _BOTH,
    # Kourou: connections
    _gauge("kourou_peers", "Connected peers", "carrier", "listener"),
    _counter("kourou_frames_in_total", "Frames received", "carrier"),
    _counter("kourou_frames_out_total", "Frames sent", "carrier"),
    _counter("kourou_bytes_in_total", "Bytes received", "carrier", unit="bytes"),
    _counter("kourou_bytes_out_total", "Bytes sent", "carrier", unit="bytes"),
    _counter("kourou_frames_undecodable_total", "Invalid frames received", "carrier"),
    _counter(
        "kourou_peers_cut_total",
        "Connections closed because the peer did not read, or sent invalid data",
        "carrier",
    ),
    _gauge("kourou_peers_tls", "Connected peers over TLS", "carrier", "listener"),
    _counter(
        "kourou_tls_handshakes_failed_total",
        "TLS handshakes that failed or took too long",
        "carrier",
        "listener",
    ),
    _gauge(
        "kourou_peer_queue_bytes",
        "Bytes waiting for peers that do not read",
        "carrier",
        unit="bytes",
    ),
)

_OF_TRACES = _of(
    _TRACERS,
    # Kourou: traces, in the services that produce them
    _counter("kourou_trace_spans_total", "Spans delivered to the collector", when=_TRACING),
    _counter("kourou_trace_spans_dropped_total", "Spans that were lost", "reason", when=_TRACING),
)

_OF_FILTER_SERVERS = _of(
    _FILTER_SERVER,
    # Kourou: filter server
    _counter("kourou_python_filter_seen_total", "Messages that a filter evaluated", *_BY_FILTER),
    _counter("kourou_python_filter_passed_total", "Messages that went to consumers", *_BY_FILTER),
    _counter(
        "kourou_python_filter_errors_total",
        "Messages, or batches of them, for which a filter failed",
        *_BY_FILTER,
        "kind",
    ),
    _counter(
        "kourou_python_filter_skipped_total",
        "Messages skipped by policy, and recorded",
        *_BY_FILTER,
    ),
    _counter(
        "kourou_python_filter_unfiltered_total",
        "Messages delivered unfiltered by policy",
        *_BY_FILTER,
    ),
    _histogram(
        "kourou_python_filter_message_time",
        "Time inside the filter for a message, by batch",
        *_BY_FILTER,
        unit="µs",
    ),
    _counter(
        "kourou_python_filter_bytes_in_total",
        "Bytes of messages that a filter looked at",
        *_BY_FILTER,
        unit="bytes",
    ),
    _counter(
        "kourou_python_filter_bytes_out_total",
        "Bytes of those that went to consumers",
        *_BY_FILTER,
        unit="bytes",
    ),
    _counter("kourou_python_filter_starts_total", "Workers started", *_BY_FILTER),
    _gauge("kourou_python_filter_strikes", "Strikes in force", *_BY_FILTER),
    _gauge("kourou_python_filter_quarantined", "1 while this version is quarantined", *_BY_FILTER),
    _counter("kourou_filter_pulls_total", "Pulls that arrived"),
    _counter(
        "kourou_filter_pulls_failed_total",
        "Pulls answered FILTER_FAILED; from 0 on for each kind",
        "kind",
    ),
    _gauge("kourou_filter_pulls_held", "Pulls that wait"),
    _gauge("kourou_filter_waiting_bytes", "Bytes of messages that wait for a filter", unit="bytes"),
    _counter(
        "kourou_filter_pulls_ahead_total",
        "Pulls answered immediately, with messages filtered for an earlier pull",
    ),
    _gauge(
        "kourou_filter_ahead_bytes",
        "Bytes of filtered messages that wait for the next pulls of their consumers",
        unit="bytes",
    ),
    _gauge("kourou_filter_workers", "Worker processes"),
    _gauge("kourou_filter_workers_busy", "Worker processes that filter a batch now"),
    _counter("kourou_filter_zygotes_total", "Zygotes started"),
    _gauge("kourou_filter_registered", "1 while it is registered with its broker"),
)

_OF_SPARK_ETL = _of(
    _SPARK_ETL,
    # Kourou: the Spark service
    _gauge(
        "kourou_etl_query_running",
        "1 while the query runs",
        *_BY_QUERY,
        when="not of one that is off, or has done all it was to do",
    ),
    _counter("kourou_etl_batches_total", "Batches done", *_BY_QUERY),
    _counter("kourou_etl_rows_total", "Rows that batches have read", *_BY_QUERY),
    _counter("kourou_etl_rows_written_total", "Rows written to the read model", *_BY_QUERY),
    _counter(
        "kourou_etl_rows_late_total",
        "Rows left out because the watermark was past them",
        *_BY_QUERY,
    ),
    _counter(
        "kourou_etl_batches_repeated_total",
        "Batches that Spark ran again and that were written already",
        *_BY_QUERY,
    ),
    _counter("kourou_etl_failures_total", "Times that the query ended with an error", *_BY_QUERY),
    _histogram("kourou_etl_batch_latency", "Time of one batch", *_BY_QUERY, unit="ms"),
    _gauge("kourou_etl_state_rows", "Rows of Spark's state", *_BY_QUERY),
    _gauge("kourou_etl_state_bytes", "Memory of Spark's state", *_BY_QUERY, unit="bytes"),
    _counter("kourou_etl_events_total", "Events written to the event store"),
)

CONSOLE_METRICS = _of(
    _CONSOLE,
    _counter(
        "kourou_gateway_requests_total",
        "HTTP requests answered; the operation is page for requests outside the API",
        "operation",
        "status",
    ),
    _histogram(
        "kourou_gateway_request_latency",
        "Time of a request, from its header to its answer; of a stream, as long as it lasted",
        "operation",
        unit="ms",
    ),
    _histogram(
        "kourou_gateway_loop_lag",
        "How late the event loop runs a timer that is due every 10 ms",
        unit="ms",
    ),
    _gauge("kourou_gateway_requests_open", "Requests that have no answer yet, streams not counted"),
    _gauge("kourou_gateway_streams", "Callers that follow a stream of events"),
    _gauge("kourou_gateway_connections", "Open HTTP connections"),
    _counter(
        "kourou_gateway_refused_total",
        "Requests and connections refused before an operation saw them, by why",
        "reason",
    ),
    _gauge("kourou_gateway_body_bytes", "Budget that bodies under way take", unit="bytes"),
    _gauge("kourou_gateway_leases", "Messages under lease by HTTP clients"),
    _gauge("kourou_gateway_receives_waiting", "Receives that wait for a message"),
    _gauge("kourou_gateway_lease_groups", "Consumer groups of which the gateway is a member"),
)

_OF_ALL = _of(
    tuple(ServiceKind),
    # Kourou: access control
    _gauge("kourou_access_open", "1 while everybody who reaches the service may do everything"),
)

_OF_DECISIONS = _of(
    (ServiceKind.BROKER, ServiceKind.NAMESRV),
    # Kourou: access control
    _counter("kourou_access_decisions_total", "Decisions of access control", "decision"),
)

_OF_NAME_SERVERS = _of(
    _NAMESRV,
    # Kourou: name server
    _gauge("kourou_namesrv_brokers", "Registered brokers", "cluster"),
    _gauge("kourou_namesrv_topics", "Topics with a route"),
    _counter(
        "kourou_namesrv_expired_brokers_total", "Brokers removed because they sent no heartbeat"
    ),
)

_ALL = (
    *_OF_BROKERS,
    *_OF_ALL,
    *_OF_DECISIONS,
    *_OF_CONNECTIONS,
    *_OF_TRACES,
    *_OF_FILTER_SERVERS,
    *_OF_SPARK_ETL,
    *CONSOLE_METRICS,
    *_OF_NAME_SERVERS,
)

METRICS: dict[str, MetricSpec] = {spec.name: spec for spec in _ALL}
assert len(METRICS) == len(_ALL), "a metric is listed twice"
assert all(spec.name.endswith("_total") == (spec.kind is MetricKind.COUNTER) for spec in _ALL), (
    "counters, and only counters, end in _total"
)
