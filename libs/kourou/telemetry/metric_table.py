"""Every metric of Kourou: name, kind, labels and sentence.

Lives here: the table. May not live here: values (kourou.telemetry.metrics).

Beside the labels listed, every metric has `cluster`, `node_type` and `node_id`. Names starting with
`rocketmq_` are those of RocketMQ 5, with its labels, so that dashboards made for it work. Ours
start with `kourou_`. The reference page is made from this table.

State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """How a value behaves."""

    COUNTER = "counter"  # only grows while the process lives
    GAUGE = "gauge"  # asked for when somebody looks
    HISTOGRAM = "histogram"  # counts by size


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. `bounds` are the upper bounds of a histogram's buckets, without infinity."""

    name: str
    kind: MetricKind
    about: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    bounds: tuple[float, ...] = ()


def _counter(name: str, about: str, *labels: str, unit: str = "") -> MetricSpec:
    return MetricSpec(name, MetricKind.COUNTER, about, labels, unit)


def _gauge(name: str, about: str, *labels: str, unit: str = "") -> MetricSpec:
    return MetricSpec(name, MetricKind.GAUGE, about, labels, unit)


def _histogram(
    name: str, about: str, *labels: str, unit: str, bounds: tuple[float, ...]
) -> MetricSpec:
    return MetricSpec(name, MetricKind.HISTOGRAM, about, labels, unit, bounds)


_KIB = 1024.0
SIZE_BOUNDS = (_KIB, 4 * _KIB, 512 * _KIB, 1024 * _KIB, 2048 * _KIB, 4096 * _KIB)
"""RocketMQ's buckets of rocketmq_message_size."""
LATENCY_BOUNDS_MS = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 200.0, 400.0, 600.0, 800.0, 1000.0, 2000.0)

_ALL = (
    # RocketMQ 5's: traffic
    _counter("rocketmq_messages_in_total", "Messages stored", "topic", "message_type"),
    _counter(
        "rocketmq_messages_out_total", "Messages delivered", "topic", "consumer_group", "is_retry"
    ),
    _counter("rocketmq_throughput_in_total", "Bytes stored", "topic", "message_type", unit="bytes"),
    _counter(
        "rocketmq_throughput_out_total",
        "Bytes delivered",
        "topic",
        "consumer_group",
        "is_retry",
        unit="bytes",
    ),
    _histogram(
        "rocketmq_message_size",
        "Sizes of messages stored",
        "topic",
        "message_type",
        unit="bytes",
        bounds=SIZE_BOUNDS,
    ),
    _counter(
        "rocketmq_send_to_dlq_messages_total",
        "Messages whose attempts were used up",
        "topic",
        "consumer_group",
    ),
    _histogram(
        "rocketmq_rpc_latency",
        "From a request's receipt to its answer",
        "protocol_type",
        "request_code",
        "response_code",
        unit="ms",
        bounds=LATENCY_BOUNDS_MS,
    ),
    # RocketMQ 5's: who is there
    _gauge("rocketmq_producer_connections", "Connected producers", "producer_group"),
    _gauge(
        "rocketmq_consumer_connections", "Connected consumers", "consumer_group", "consume_mode"
    ),
    _gauge("rocketmq_topic_number", "Topics"),
    _gauge("rocketmq_consumer_group_number", "Consumer groups"),
    _gauge("rocketmq_broker_permission", "What may be done at this broker: 4 read, 2 write"),
    # RocketMQ 5's: how far behind
    _gauge(
        "rocketmq_consumer_lag_messages",
        "Messages a group has not consumed",
        "topic",
        "consumer_group",
        "is_retry",
    ),
    _gauge(
        "rocketmq_consumer_lag_latency",
        "Age of the oldest of them",
        "topic",
        "consumer_group",
        "is_retry",
        unit="ms",
    ),
    _gauge(
        "rocketmq_consumer_inflight_messages",
        "Delivered and not committed",
        "topic",
        "consumer_group",
        "is_retry",
    ),
    _gauge("rocketmq_processor_watermark", "Requests waiting to be handled", "processor"),
    # RocketMQ 5's: the store
    _gauge(
        "rocketmq_storage_size",
        "Bytes of the commit log",
        "storage_type",
        "storage_medium",
        unit="bytes",
    ),
    _gauge(
        "rocketmq_storage_flush_behind_bytes",
        "Appended and not flushed",
        "storage_type",
        "storage_medium",
        unit="bytes",
    ),
    _gauge(
        "rocketmq_storage_dispatch_behind_bytes",
        "Appended and not in the queues",
        "storage_type",
        "storage_medium",
        unit="bytes",
    ),
    _gauge(
        "rocketmq_storage_message_reserve_time",
        "Age of the oldest message",
        "storage_type",
        "storage_medium",
        unit="ms",
    ),
    # Ours: the store
    _counter("kourou_store_flushes_total", "Flushes of the commit log"),
    _histogram(
        "kourou_store_flush_latency", "Time of one flush", unit="ms", bounds=LATENCY_BOUNDS_MS
    ),
    _gauge("kourou_quarantined_regions", "Damaged regions of the log that are kept aside"),
    _gauge("kourou_store_faulted", "1 after a failed flush, when nothing is acknowledged any more"),
    _gauge("kourou_store_disk_used_ratio", "Share of the store's disk in use"),
    _gauge("kourou_store_disk_level", "0 normal, 1 cleaning, 2 forcing, 3 refusing, 4 starving"),
    _gauge("kourou_store_disk_refusing", "1 while messages are refused because of a full disk"),
    _gauge("kourou_store_disk_low", "1 while less than 4 GiB are free on the store's disk"),
    _counter("kourou_retention_segments_deleted_total", "Log segments deleted", "reason"),
    _gauge(
        "kourou_retention_unread_expiring_messages",
        "Messages that expire soon and that a group has not read",
        "topic",
        "consumer_group",
        "is_retry",
    ),
    _counter(
        "kourou_retention_unread_deleted_total",
        "Messages deleted that a group had not read",
        "topic",
        "consumer_group",
        "is_retry",
    ),
    _counter("kourou_clock_steps_total", "Times that somebody set the wall clock by over a second"),
    # Ours: requests
    _counter("kourou_requests_total", "Requests handled", "request"),
    _counter("kourou_requests_refused_total", "Requests refused, by response code", "code"),
    _counter("kourou_repeats_removed_total", "Repeated sends answered with their original's place"),
    _counter("kourou_loop_turns_total", "Turns of the single-writer loop"),
    _counter("kourou_loop_inputs_total", "Inputs handled in them"),
    _gauge("kourou_loop_largest_batch", "Most inputs of one turn so far"),
    _gauge("kourou_holds", "Pulls that wait for data"),
    # Ours: connections
    _gauge("kourou_peers", "Connected peers", "carrier"),
    _counter("kourou_frames_in_total", "Frames received", "carrier"),
    _counter("kourou_frames_out_total", "Frames sent", "carrier"),
    _counter("kourou_bytes_in_total", "Bytes received", "carrier", unit="bytes"),
    _counter("kourou_bytes_out_total", "Bytes sent", "carrier", unit="bytes"),
    _counter("kourou_frames_undecodable_total", "Frames that were no frames", "carrier"),
    _counter(
        "kourou_peers_cut_total", "Peers cut off: they did not read, or sent garbage", "carrier"
    ),
    _gauge(
        "kourou_peer_queue_bytes",
        "Bytes waiting for peers that do not read",
        "carrier",
        unit="bytes",
    ),
    # Ours: traces, where they are made
    _counter("kourou_trace_spans_total", "Spans delivered to the collector"),
    _counter(
        "kourou_trace_spans_dropped_total", "Spans that were made or wanted, and lost", "reason"
    ),
    # Ours: name server
    _gauge("kourou_namesrv_brokers", "Registered brokers", "cluster"),
    _gauge("kourou_namesrv_topics", "Topics with a route"),
    _counter("kourou_namesrv_expired_brokers_total", "Brokers dropped because they were silent"),
)

METRICS: dict[str, MetricSpec] = {spec.name: spec for spec in _ALL}
assert len(METRICS) == len(_ALL), "a metric is listed twice"
assert all(spec.name.endswith("_total") == (spec.kind is MetricKind.COUNTER) for spec in _ALL), (
    "counters, and only counters, end in _total"
)
