"""A broker's metrics under RocketMQ 5's names.

Lives here: where each figure of kourou.telemetry.metric_table is read in a broker.
May not live here: counting (the parts do), the page (kourou.telemetry.metrics).

State: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kourou.engine.desks import Desks
from kourou.engine.traffic import SIZE_BOUNDS
from kourou.model.names import RETRY_PREFIX
from kourou.store.store import Store
from kourou.telemetry.metrics import Family, Histogram, Labels, expose
from kourou.transport.zmq_server import ZmqServer
from kourou_broker.measures import Measures

if TYPE_CHECKING:
    from kourou_broker.spans import BrokerSpans

Base = Mapping[str, str]
"""The labels that go with every sample."""

Sample = tuple[Labels, float]


def broker_metrics(
    desks: Desks,
    store: Store,
    server: ZmqServer,
    measures: Measures,
    spans: BrokerSpans | None = None,
) -> bytes:
    """The page of one broker, as of now."""
    policy = desks.policy
    base = {
        "cluster": policy.cluster_name,
        "node_type": "broker",
        "node_id": policy.broker_name,
    }
    return expose(
        [
            *_traffic(base, desks),
            *_state(base, desks),
            *_disk(base, store),
            *_retention(base, desks, store),
            *_measured(base, measures),
            *_zmq(base, server),
            *(() if spans is None else spans.families(base)),
        ]
    )


def _traffic(base: Base, desks: Desks) -> Iterator[Family]:
    traffic = desks.traffic
    yield Family.counter("rocketmq_messages_in_total", "", _by_topic(base, traffic.messages_in))
    yield Family.counter("rocketmq_throughput_in_total", "", _by_topic(base, traffic.bytes_in))
    sizes = [
        (_topic(base, topic), Histogram.counted(SIZE_BOUNDS, counts, traffic.bytes_in[topic]))
        for topic, counts in traffic.sizes_in.items()
    ]
    yield Family.histogram("rocketmq_message_size", "", sizes)
    yield Family.counter("rocketmq_messages_out_total", "", _by_group(base, traffic.messages_out))
    yield Family.counter("rocketmq_throughput_out_total", "", _by_group(base, traffic.bytes_out))
    refused = [
        ({"response_code": str(int(code)), **base}, count)
        for code, count in traffic.refused.items()
    ]
    yield Family.counter("kourou_requests_refused_total", "", refused)
    yield Family.counter("kourou_repeats_removed_total", "", [(base, traffic.repeats_removed)])


def _state(base: Base, desks: Desks) -> Iterator[Family]:
    yield Family.gauge("rocketmq_broker_permission", "", [(base, desks.policy.permission)])
    yield Family.gauge("rocketmq_topic_number", "", [(base, len(desks.control.topics))])
    yield Family.gauge("rocketmq_consumer_group_number", "", [(base, len(desks.control.groups))])
    yield Family.gauge("kourou_holds", "", [(base, desks.pulls.held)])
    yield Family.gauge("rocketmq_consumer_lag_messages", "", _lag(base, desks))


def _disk(base: Base, store: Store) -> Iterator[Family]:
    low, high = store.log_range()
    total, free = store.usage()
    used = (total - free) / total if total else 0.0
    disk = {"storage_type": "local", "storage_medium": "disk", **base}
    yield Family.gauge("rocketmq_storage_size", "", [(disk, high - low)])
    yield Family.gauge("rocketmq_storage_flush_behind_bytes", "", [(disk, store.dirty_bytes)])
    yield Family.gauge(
        "rocketmq_storage_dispatch_behind_bytes", "", [(disk, store.dispatch_behind_bytes)]
    )
    yield Family.gauge("kourou_store_disk_used_ratio", "", [(base, used)])
    yield Family.gauge("kourou_quarantined_regions", "", [(base, len(store.damaged_regions))])
    yield Family.gauge("kourou_store_faulted", "", [(base, int(store.fault is not None))])


def _retention(base: Base, desks: Desks, store: Store) -> Iterator[Family]:
    pressure, desk = desks.pressure, desks.retention
    yield Family.gauge("kourou_store_disk_level", "", [(base, int(pressure.level))])
    yield Family.gauge("kourou_store_disk_refusing", "", [(base, int(pressure.refusing))])
    yield Family.gauge("kourou_store_disk_low", "", [(base, int(pressure.low))])
    deleted = [({"reason": reason, **base}, count) for reason, count in desk.deleted.items()]
    yield Family.counter("kourou_retention_segments_deleted_total", "", deleted)
    yield Family.gauge(
        "kourou_retention_unread_expiring_messages", "", _by_group(base, desk.unread_expiring)
    )
    yield Family.counter(
        "kourou_retention_unread_deleted_total", "", _by_group(base, desk.unread_deleted)
    )
    yield Family.counter("kourou_clock_steps_total", "", [(base, store.ages.steps)])


def _measured(base: Base, measures: Measures) -> Iterator[Family]:
    loop = measures.loop()
    yield Family.counter("kourou_loop_turns_total", "", [(base, loop.get("turns", 0))])
    yield Family.counter("kourou_loop_inputs_total", "", [(base, loop.get("inputs", 0))])
    yield Family.gauge("kourou_loop_largest_batch", "", [(base, loop.get("largest_batch", 0))])
    yield Family.histogram("rocketmq_rpc_latency", "", list(measures.rpc.samples(base)))
    for name, durations in (
        ("kourou_store_flush_latency", measures.flushes),
        ("kourou_store_checkpoint_latency", measures.checkpoints),
    ):
        yield Family.histogram(name, "", [(base, durations.histogram())])


def _zmq(base: Base, server: ZmqServer) -> Iterator[Family]:
    labels = {"carrier": "zmq", **base}
    told = server.statistics()
    yield Family.gauge("kourou_peers", "", [({"listener": server.listener, **labels}, told.peers)])
    yield Family.gauge("kourou_peer_queue_bytes", "", [(labels, told.queued_bytes)])
    for name, value in (
        ("kourou_frames_in_total", told.frames_in),
        ("kourou_frames_out_total", told.frames_out),
        ("kourou_bytes_in_total", told.bytes_in),
        ("kourou_bytes_out_total", told.bytes_out),
        ("kourou_frames_undecodable_total", told.frames_undecodable),
        ("kourou_peers_cut_total", told.peers_cut),
    ):
        yield Family.counter(name, "", [(labels, value)])


def _by_topic(base: Base, counts: Mapping[str, int]) -> list[Sample]:
    return [(_topic(base, topic), count) for topic, count in counts.items()]


def _topic(base: Base, topic: str) -> dict[str, str]:
    return {"topic": topic, "message_type": "normal", **base}


def _by_group(base: Base, counts: Mapping[tuple[str, str], int]) -> list[Sample]:
    return [(_group(base, topic, group), count) for (topic, group), count in counts.items()]


def _lag(base: Base, desks: Desks) -> list[Sample]:
    """Messages between each group's progress and the ends of its queues."""
    lags: dict[tuple[str, str], int] = {}
    for group, topic, queues in desks.commits.entries():
        for queue_id, offset in queues.items():
            span = desks.view.queue_range(topic, queue_id)
            if span is not None:
                behind = max(span[1] - max(offset, span[0]), 0)
                lags[topic, group] = lags.get((topic, group), 0) + behind
    return [(_group(base, topic, group), count) for (topic, group), count in lags.items()]


def _group(base: Base, topic: str, group: str) -> dict[str, str]:
    retry = "true" if topic.startswith(RETRY_PREFIX) else "false"
    return {"topic": topic, "consumer_group": group, "is_retry": retry, **base}
