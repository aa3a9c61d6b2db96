"""What a broker reports about itself: metrics under RocketMQ 5's names, runtime table, statistics.

State: none, except the start time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import sub
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from kourou.broker.telemetry.measurements import PROTOCOLS, PULLS, SENDS, Measurements
from kourou.clock import Clock
from kourou.engine.admin.quota_gate import QuotaOutcome
from kourou.engine.delays.delivery import DELAY_GROUP, LATENESS_BOUNDS_MS
from kourou.engine.groups.membership import GroupClient, GroupMembership
from kourou.engine.ports import StoreView
from kourou.engine.roles.leader import SYNC_MASTER
from kourou.engine.statistics import SIZE_BOUNDS, Tally, Traffic
from kourou.engine.view import CoreView
from kourou.errors import Corrupt, Rejected
from kourou.model.names import (
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TRANSACTION_GROUP,
    is_system_group,
    is_system_topic,
    retry_topic,
)
from kourou.model.quota import QuotaUnit
from kourou.model.subscription import ConsumeType
from kourou.protocol.bodies.broker_bodies import ReplicasView
from kourou.protocol.record.layout import parts_of
from kourou.service.access_metrics import access_families
from kourou.service.protocol_server import ProtocolServers
from kourou.store.store import Store
from kourou.telemetry.metric_table import RPC_BOUNDS_MS
from kourou.telemetry.metrics import Family, Histogram, Labels, expose
from kourou.version import __version__

if TYPE_CHECKING:
    from kourou.broker.telemetry.spans import BrokerSpans

Base = Mapping[str, str]
"""The labels of every sample."""

Sample = tuple[Labels, float]

Pair = tuple[str, str]
"""Topic and group."""


def broker_metrics(
    view: CoreView,
    store: Store,
    protocols: ProtocolServers,
    measurements: Measurements,
    spans: BrokerSpans | None = None,
    *,
    wall_ms: int,
    now_ms: int,
) -> bytes:
    """Return the page of one broker at `wall_ms`, which is `now_ms` of the monotonic clock."""
    policy = view.policy
    base = {
        "cluster": policy.cluster_name,
        "node_type": "broker",
        "node_id": policy.broker_name,
    }
    return expose(
        [
            *_traffic(base, view),
            *_state(base, view),
            *_transactions(base, view),
            *_delays(base, view),
            *_disk(base, view.store_view, store, wall_ms),
            *_retention(base, view, store),
            *replication_families(base, view.replicas(now_ms)),
            *_measured(base, measurements),
            *protocols.families(base),
            *(() if spans is None else spans.families(base)),
        ]
    )


def _traffic(base: Base, view: CoreView) -> Iterator[Family]:
    traffic = view.traffic
    stored = list(_stored(base, traffic))
    messages = [(labels, tally.messages) for labels, tally in stored]
    yield Family.counter("rocketmq_messages_in_total", "", messages)
    size_bytes = [(labels, tally.size_bytes) for labels, tally in stored]
    yield Family.counter("rocketmq_throughput_in_total", "", size_bytes)
    sizes = [
        (labels, Histogram.counted(SIZE_BOUNDS, tally.sizes, tally.size_bytes))
        for labels, tally in stored
    ]
    yield Family.histogram("rocketmq_message_size", "", sizes)
    yield Family.counter("rocketmq_messages_out_total", "", _by_group(base, traffic.messages_out))
    yield Family.counter("rocketmq_throughput_out_total", "", _by_group(base, traffic.bytes_out))
    refused = [
        ({"response_code": str(int(code)), **base}, count)
        for code, count in traffic.refused.items()
    ]
    yield Family.counter("kourou_requests_refused_total", "", refused)
    yield from access_families(base, view.access_decisions, view.control.access.open_because)
    slowed = [
        ({"quota": unit, "outcome": outcome, **base}, view.quota_counts[unit, outcome])
        for unit in QuotaUnit
        for outcome in QuotaOutcome
    ]
    yield Family.counter("kourou_quota_requests_total", "", slowed)
    yield Family.counter("kourou_repeats_removed_total", "", [(base, traffic.repeats_removed)])
    yield Family.counter("kourou_messages_filtered_total", "", _by_group(base, traffic.filtered))
    failures = _by_group(base, traffic.filter_failures)
    yield Family.counter("kourou_filter_failures_total", "", failures)


def _state(base: Base, view: CoreView) -> Iterator[Family]:
    yield Family.gauge("rocketmq_broker_permission", "", [(base, view.policy.permission)])
    yield Family.gauge("rocketmq_topic_number", "", [(base, len(view.control.topics))])
    yield Family.gauge("rocketmq_consumer_group_number", "", [(base, len(view.control.groups))])
    yield Family.gauge("kourou_quotas", "", [(base, view.quotas)])
    yield Family.gauge("kourou_quota_held", "", [(base, view.quota_held)])
    yield Family.gauge("kourou_holds", "", [(base, view.parked_pulls)])
    locks = [({"consumer_group": group, **base}, n) for group, n in view.queue_locks.items()]
    yield Family.gauge("kourou_queue_locks", "", locks)
    yield Family.gauge("rocketmq_consumer_lag_messages", "", _lag(base, view))
    yield from _clients(base, view.membership)
    yield from _filters(base, view)


def _filters(base: Base, view: CoreView) -> Iterator[Family]:
    """Return the counts of Python filters; the filter servers count what filters do."""
    figures = view.filter_counts
    yield Family.gauge("kourou_filters", "", [(base, figures["filters"])])
    yield Family.gauge("kourou_filter_versions", "", [(base, figures["versions"])])
    yield Family.gauge("kourou_filter_quarantined_versions", "", [(base, figures["quarantined"])])
    yield Family.gauge("kourou_filter_servers", "", [(base, figures["servers"])])
    skipped = [
        ({"consumer_group": one.group, "filter": one.name, **base}, one.skipped)
        for one in view.control.filters
    ]
    yield Family.counter("kourou_filter_skips_recorded_total", "", skipped)


def _delays(base: Base, view: CoreView) -> Iterator[Family]:
    """Return the metrics of delayed messages, retries and dead letters."""
    figures = view.delay_figures
    waiting = [
        ({"delay_level": str(n), **base}, count) for n, count in view.delayed_waiting.items()
    ]
    yield Family.gauge("kourou_delayed_waiting", "", waiting)
    late = Histogram.counted(LATENESS_BOUNDS_MS, figures.lateness, figures.lateness_sum_ms)
    yield Family.histogram("kourou_delayed_lateness", "", [(base, late)])
    yield Family.gauge("kourou_delayed_lateness_max", "", [(base, figures.lateness_max_ms)])
    yield Family.counter("kourou_delayed_lost_total", "", [(base, figures.lost)])
    yield Family.counter("kourou_delayed_undeliverable_total", "", [(base, figures.undeliverable)])
    yield Family.counter("kourou_messages_sent_back_total", "", _by_group(base, view.sent_back))
    dead = _from_0(_consumed(view), view.dead_letters)
    yield Family.counter("rocketmq_send_to_dlq_messages_total", "", _by_group(base, dead))


def _transactions(base: Base, view: CoreView) -> Iterator[Family]:
    yield Family.gauge("rocketmq_half_messages", "", [(base, view.half_messages)])
    for outcome in ("commit", "rollback"):
        ended = [
            ({"topic": topic, **base}, count)
            for (topic, how), count in view.transactions_by_topic.items()
            if how == outcome
        ]
        yield Family.counter(f"rocketmq_{outcome}_messages_total", "", ended)
    resolved = [
        ({"outcome": outcome, **base}, count)
        for outcome, count in view.transactions_resolved.items()
    ]
    yield Family.counter("kourou_transactions_resolved_total", "", resolved)
    yield Family.counter("kourou_transaction_checks_total", "", [(base, view.check_backs_sent)])
    yield Family.counter(
        "kourou_transaction_checks_unasked_total", "", [(base, view.check_backs_without_producer)]
    )


def _disk(base: Base, view: StoreView, store: Store, wall_ms: int) -> Iterator[Family]:
    low, high = store.log_range()
    total, free = store.usage()
    used = (total - free) / total if total else 0.0
    disk = {"storage_type": "local", "storage_medium": "disk", **base}
    yield Family.gauge("rocketmq_storage_size", "", [(disk, high - low)])
    yield Family.gauge("rocketmq_storage_flush_behind_bytes", "", [(disk, store.dirty_bytes)])
    yield Family.gauge(
        "rocketmq_storage_dispatch_behind_bytes", "", [(disk, store.dispatch_behind_bytes)]
    )
    oldest_ms = first_ms(view, low)
    reserved = [] if oldest_ms is None else [(disk, max(wall_ms - oldest_ms, 0))]
    yield Family.gauge("rocketmq_storage_message_reserve_time", "", reserved)
    yield Family.gauge("kourou_store_disk_used_ratio", "", [(base, used)])
    yield Family.gauge("kourou_quarantined_regions", "", [(base, len(store.damaged_regions))])
    yield Family.gauge("kourou_store_faulted", "", [(base, int(store.fault is not None))])
    if store.last_fault_ms is not None:
        last = [(base, store.last_fault_ms / 1_000)]
        yield Family.gauge("kourou_store_last_fault_timestamp_seconds", "", last)


def _retention(base: Base, view: CoreView, store: Store) -> Iterator[Family]:
    pressure = view.pressure
    yield Family.gauge("kourou_store_disk_level", "", [(base, int(pressure.level))])
    yield Family.gauge("kourou_store_disk_refusing", "", [(base, int(pressure.refusing))])
    yield Family.gauge("kourou_store_disk_low", "", [(base, int(pressure.low))])
    deleted = [
        ({"reason": reason, **base}, count) for reason, count in view.segments_deleted.items()
    ]
    yield Family.counter("kourou_retention_segments_deleted_total", "", deleted)
    yield Family.gauge(
        "kourou_retention_unread_expiring_messages", "", _by_group(base, view.unread_expiring)
    )
    lost = _from_0(_unread(view), view.unread_deleted)
    yield Family.counter("kourou_retention_unread_deleted_total", "", _by_group(base, lost))
    yield Family.counter("kourou_clock_steps_total", "", [(base, store.ages.steps)])


def _measured(base: Base, measurements: Measurements) -> Iterator[Family]:
    loop = measurements.loop()
    yield Family.counter("kourou_loop_turns_total", "", [(base, loop.get("turns", 0))])
    yield Family.counter("kourou_loop_inputs_total", "", [(base, loop.get("inputs", 0))])
    yield Family.gauge("kourou_loop_largest_batch", "", [(base, loop.get("largest_batch", 0))])
    yield Family.histogram("rocketmq_rpc_latency", "", list(measurements.rpc.samples(base)))
    for name, durations in (
        ("kourou_store_flush_latency", measurements.flushes),
        ("kourou_store_checkpoint_latency", measurements.checkpoints),
    ):
        yield Family.histogram(name, "", [(base, durations.histogram())])


def _stored(base: Base, traffic: Traffic) -> Iterator[tuple[Labels, Tally]]:
    """Return incoming counts by topic and RocketMQ's message type.

    Messages of no special type count as normal.
    """
    others: dict[str, list[Tally]] = {}
    for (topic, kind), tally in traffic.kinds_in.items():
        others.setdefault(topic, []).append(tally)
        yield _topic(base, topic, kind), tally
    for topic, messages in traffic.messages_in.items():
        sizes = list(traffic.sizes_in[topic])
        plain = Tally(messages, traffic.bytes_in[topic], sizes)
        for other in others.get(topic, ()):
            plain.messages -= other.messages
            plain.size_bytes -= other.size_bytes
            sizes[:] = map(sub, sizes, other.sizes)
        if plain.messages:
            yield _topic(base, topic, "normal"), plain


def _topic(base: Base, topic: str, kind: str) -> dict[str, str]:
    system = _boolean(is_system_topic(topic))
    return {"topic": topic, "message_type": kind, "is_system": system, **base}


def _clients(base: Base, membership: GroupMembership) -> Iterator[Family]:
    """Return the connections by language, version and protocol of the client."""
    producers: Counter[tuple[str, str, str]] = Counter()
    everybody = [m for group in membership.producer_groups() for m in membership.producers(group)]
    for member in {member.peer.id: member for member in everybody}.values():
        producers[_client(member)] += 1
    found = [({**_client_labels(key), **base}, count) for key, count in producers.items()]
    yield Family.gauge("rocketmq_producer_connections", "", found)
    found = []
    for group in membership.consumer_groups():
        known = membership.consumer_group(group)
        assert known is not None
        active = known.consume_type is ConsumeType.CONSUME_ACTIVELY
        about = {
            "consumer_group": group,
            "consume_mode": "pull" if active else "push",
            "is_system": _boolean(is_system_group(group)),
        }
        members = Counter(_client(member) for member in known.members.values())
        found += [
            ({**about, **_client_labels(key), **base}, count) for key, count in members.items()
        ]
    yield Family.gauge("rocketmq_consumer_connections", "", found)


def _client(member: GroupClient) -> tuple[str, str, str]:
    protocol = PROTOCOLS.get(member.peer.protocol, member.peer.protocol)
    return member.language.lower(), str(member.version), protocol


def _client_labels(key: tuple[str, str, str]) -> dict[str, str]:
    return dict(zip(("language", "version", "protocol_type"), key, strict=True))


def first_ms(view: StoreView, position: int) -> int | None:
    """Return when the log's oldest record was stored; None without one, or if it is damaged."""
    try:
        record = view.record_at(position)
    except (Rejected, Corrupt):
        return None
    return parts_of(record, 0, len(record)).store_timestamp


def _boolean(so: bool) -> str:
    return "true" if so else "false"


def _by_group(base: Base, counts: Mapping[tuple[str, str], int]) -> list[Sample]:
    return [(_group(base, topic, group), count) for (topic, group), count in counts.items()]


def _lag(base: Base, view: CoreView) -> list[Sample]:
    """Return the consumer lag per group and topic."""
    lags: dict[tuple[str, str], int] = {}
    for group, topic, queues in view.commits.entries():
        for queue_id, offset in queues.items():
            span = view.store_view.queue_range(topic, queue_id)
            if span is not None:
                behind = max(span[1] - max(offset, span[0]), 0)
                lags[topic, group] = lags.get((topic, group), 0) + behind
    return [(_group(base, topic, group), count) for (topic, group), count in lags.items()]


def _from_0(known: Iterator[Pair], counts: Mapping[Pair, int]) -> dict[Pair, int]:
    """Return the counts, with 0 added for the known pairs that were not counted.

    If a series started with its first event, a query could not tell a new event from a monitoring
    system that has just started. A rise from 0 is always visible.
    """
    found = dict(counts)
    for one in known:
        found.setdefault(one, 0)
    return found


def _consumed(view: CoreView) -> Iterator[Pair]:
    """Return the topics and groups of all commits and subscriptions, without retry topics."""
    for group in view.commits.groups():
        for topic in view.commits.topics(group):
            if not topic.startswith(RETRY_PREFIX):
                yield topic, group
    for group in view.membership.consumer_groups():
        known = view.membership.consumer_group(group)
        for topic in () if known is None else known.subscriptions:
            if not topic.startswith(RETRY_PREFIX):
                yield topic, group


def _unread(view: CoreView) -> Iterator[Pair]:
    """Return the topics and groups for which retention may report unread messages."""
    yield SCHEDULE_TOPIC, DELAY_GROUP
    yield HALF_TOPIC, TRANSACTION_GROUP
    for config in view.control.groups:
        for topic in view.commits.topics(config.name):
            yield topic, config.name
        if (retry := retry_topic(config.name)) in view.control.topics:
            yield retry, config.name


def _group(base: Base, topic: str, group: str) -> dict[str, str]:
    return {
        "topic": topic,
        "consumer_group": group,
        "is_retry": _boolean(topic.startswith(RETRY_PREFIX)),
        "is_system": _boolean(is_system_topic(topic) or is_system_group(group)),
        **base,
    }


# -- replication -----------------------------------------------------------------------------------


def replication_families(base: Mapping[str, str], view: ReplicasView) -> Iterator[Family]:
    """Return the metrics; a leader reports the lag of each follower, a follower its own."""
    leads = view.leads and not view.fenced
    yield Family.gauge("kourou_replication_leads", "", [(base, int(leads))])
    yield Family.gauge("kourou_replication_epoch", "", [(base, view.epoch)])
    yield Family.gauge("kourou_replication_followers", "", [(base, len(view.followers))])
    if view.broker_role == SYNC_MASTER and not view.member:  # otherwise there is no such set
        yield Family.gauge("kourou_replication_in_sync", "", [(base, len(view.in_sync))])
    sizes: dict[int, int | None] = {one.broker_id: one.lag_bytes for one in view.followers}
    times: dict[int, int | None] = {one.broker_id: one.lag_ms for one in view.followers}
    if not view.leads:
        sizes[view.broker_id], times[view.broker_id] = view.lag_bytes, view.lag_ms
    known = [(_of(number, base), size) for number, size in sizes.items() if size is not None]
    yield Family.gauge("kourou_replication_lag_bytes", "", known)
    late = [(_of(number, base), ms / 1_000) for number, ms in times.items() if ms is not None]
    yield Family.gauge("kourou_replication_lag_seconds", "", late)


def _of(broker_id: int, base: Mapping[str, str]) -> Mapping[str, str]:
    return {"broker_id": str(broker_id), **base}


# -- the report ------------------------------------------------------------------------------------


NO_POOLS = {
    f"{pool}ThreadPoolQueue{figure}": "0"
    for pool in ("send", "pull", "query")
    for figure in ("Size", "HeadWaitTimeMills")
}
"""RocketMQ's tools require these keys; Kourou has no thread pool queues."""


class BrokerReport:
    """Collects the values from the components that own them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._boot_wall_ms = clock.now_ms()
        self._boot_ms = clock.monotonic_ms()
        self._view: CoreView | None = None
        self._protocols = ProtocolServers()
        self._spans: BrokerSpans | None = None
        self._measurements = Measurements()

    def attach(
        self,
        view: CoreView,
        protocols: ProtocolServers,
        spans: BrokerSpans | None = None,
        measurements: Measurements | None = None,
    ) -> None:
        """Set the components that are created after this object."""
        self._spans = spans
        self._measurements = measurements or self._measurements
        self._view = view
        self._protocols = protocols

    def table(self) -> Mapping[str, str]:
        """Return the values of GET_BROKER_RUNTIME_INFO under RocketMQ's names."""
        assert self._view is not None
        traffic = self._view.traffic
        total, free = self._store.usage()
        ratio = f"{(total - free) / total if total else 0.0:.4f}"
        seconds = (self._clock.monotonic_ms() - self._boot_ms) // 1_000
        minutes, second = divmod(seconds, 60)
        hours, minute = divmod(minutes, 60)
        days, hour = divmod(hours, 24)
        return {
            "brokerVersionDesc": f"Kourou {__version__}",
            "brokerVersion": "409",
            "bootTimestamp": str(self._boot_wall_ms),
            "runtime": f"[ {days} days, {hour} hours, {minute} minutes, {second} seconds ]",
            **self._view.statistics.broker_rates(),
            **self._view.statistics.broker_totals(),
            **{
                f"scheduleMessageOffset_{level}": f"{offset},{end}"
                for level, (offset, end) in self._view.delay_bounds.items()
            },
            **NO_POOLS,
            "pageCacheLockTimeMills": "0",  # there is no such lock
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,  # they are on one disk
            "commitLogDirCapacity": _capacity(total, free),
            "remainHowManyDataToCommit": str(self._store.unwritten_bytes),
            "dispatchBehindBytes": str(self._store.dispatch_behind_bytes),
            "pollingHolds": str(self._view.parked_pulls),
            "repeatsRemoved": str(traffic.repeats_removed),
            "diskLevel": self._view.pressure.level.name,
            "sendLatencyCounts": _counts(self._measurements.rpc.counts(SENDS)),
            "pullLatencyCounts": _counts(self._measurements.rpc.counts(PULLS)),
            "commitLogDiskTotal": str(total),
            "commitLogDiskFree": str(free),
            **self._replication(),
        }

    def _replication(self) -> dict[str, str]:
        """Return Kourou's replication values; empty if the broker never had a follower."""
        assert self._view is not None
        view = self._view.replicas(self._clock.monotonic_ms())
        if view.leads and not view.epoch:
            return {}
        role = "fenced" if view.fenced else "leader" if view.leads else "follower"
        return {
            "replicationRole": role,
            "replicationEpoch": str(view.epoch),
            "replicationLeader": view.leader,
            "replicationInSync": " ".join(map(str, view.in_sync)),
            **{
                f"replicationLagBytes_{one.broker_id}": str(one.lag_bytes) for one in view.followers
            },
            **(
                {} if view.leads else {f"replicationLagBytes_{view.broker_id}": str(view.lag_bytes)}
            ),
        }

    def statistics(self) -> dict[str, Any]:
        """Return all statistics, for people."""
        assert self._view is not None
        return {
            "store": self._store.statistics(),
            "holds": self._view.parked_pulls,
            "replies_owed": self._view.pending_replies,
            "members": self._view.membership.statistics(),
            "queue_locks": self._view.queue_locks,
            "disk": {
                "level": self._view.pressure.level.name,
                "used_percent": self._view.pressure.used_percent,
                "refusing": self._view.pressure.refusing,
                "low": self._view.pressure.low,
            },
            "segments_deleted": dict(self._view.segments_deleted),
            "topics": len(self._view.control.topics),
            "groups": len(self._view.control.groups),
            "filters": self._view.filter_counts,
            "replication": to_builtins(self._view.replicas(self._clock.monotonic_ms())),
            **self._protocols.statistics(),
        }

    def metrics(self) -> bytes:
        """Return the Prometheus page."""
        assert self._view is not None
        return broker_metrics(
            self._view,
            self._store,
            self._protocols,
            self._measurements,
            self._spans,
            wall_ms=self._clock.now_ms(),
            now_ms=self._clock.monotonic_ms(),
        )


def _counts(counts: Sequence[int]) -> str:
    """Format `bound in ms:replies` of each bucket since the start; the last bucket has no bound."""
    bounds = [*map(str, RPC_BOUNDS_MS), "more"]
    return " ".join(f"{bound}:{count}" for bound, count in zip(bounds, counts, strict=True))


def _capacity(total: int, free: int) -> str:
    gibi = 1 << 30
    return f"Total : {total / gibi:.1f} GiB, Free : {free / gibi:.1f} GiB."
