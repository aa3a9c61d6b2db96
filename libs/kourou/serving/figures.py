"""What a broker reports about itself: runtime table, statistics, metrics.

State: none, except the start time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from kourou.clock import Clock
from kourou.engine.parts import BrokerParts
from kourou.service.protocol_server import ProtocolServers
from kourou.serving.measures import Measures
from kourou.serving.metrics import broker_metrics
from kourou.serving.rpc_latency import PULLS, SENDS
from kourou.store.store import Store
from kourou.telemetry.metric_table import RPC_BOUNDS_MS
from kourou.telemetry.metrics import expose
from kourou.version import __version__

if TYPE_CHECKING:
    from kourou.serving.exporter_metrics import Asked
    from kourou.serving.spans import BrokerSpans

NO_POOLS = {
    f"{pool}ThreadPoolQueue{figure}": "0"
    for pool in ("send", "pull", "query")
    for figure in ("Size", "HeadWaitTimeMills")
}
"""RocketMQ's tools require these keys; Kourou has no thread pool queues."""


class Figures:
    """Collects the values from the components that own them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._boot_wall_ms = clock.now_ms()
        self._boot_ms = clock.monotonic_ms()
        self._parts: BrokerParts | None = None
        self._protocols = ProtocolServers()
        self._spans: BrokerSpans | None = None
        self._measures = Measures()

    def attach(
        self,
        parts: BrokerParts,
        protocols: ProtocolServers,
        spans: BrokerSpans | None = None,
        measures: Measures | None = None,
    ) -> None:
        """Set the components that are created after this object."""
        self._spans = spans
        self._measures = measures or self._measures
        self._parts = parts
        self._protocols = protocols

    def table(self) -> Mapping[str, str]:
        """Return the values of GET_BROKER_RUNTIME_INFO under RocketMQ's names."""
        assert self._parts is not None
        traffic = self._parts.traffic
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
            **self._parts.statistics.broker_rates(),
            **self._parts.statistics.broker_totals(),
            **{
                f"scheduleMessageOffset_{level}": f"{offset},{end}"
                for level, (offset, end) in self._parts.delays.bounds().items()
            },
            **NO_POOLS,
            "pageCacheLockTimeMills": "0",  # there is no such lock
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,  # they are on one disk
            "commitLogDirCapacity": _capacity(total, free),
            "remainHowManyDataToCommit": str(self._store.unwritten_bytes),
            "dispatchBehindBytes": str(self._store.dispatch_behind_bytes),
            "pollingHolds": str(self._parts.pulls.held),
            "repeatsRemoved": str(traffic.repeats_removed),
            "diskLevel": self._parts.pressure.level.name,
            "sendLatencyCounts": _counts(self._measures.rpc.counts(SENDS)),
            "pullLatencyCounts": _counts(self._measures.rpc.counts(PULLS)),
            "commitLogDiskTotal": str(total),
            "commitLogDiskFree": str(free),
            **self._replication(),
        }

    def _replication(self) -> dict[str, str]:
        """Return Kourou's replication values; empty if the broker never had a follower."""
        assert self._parts is not None
        told = self._parts.replica_handler.status(self._clock.monotonic_ms())
        if told.leads and not told.epoch:
            return {}
        role = "fenced" if told.fenced else "leader" if told.leads else "follower"
        return {
            "replicationRole": role,
            "replicationEpoch": str(told.epoch),
            "replicationLeader": told.leader,
            "replicationInSync": " ".join(map(str, told.in_sync)),
            **{
                f"replicationLagBytes_{one.broker_id}": str(one.lag_bytes) for one in told.followers
            },
            **(
                {} if told.leads else {f"replicationLagBytes_{told.broker_id}": str(told.lag_bytes)}
            ),
        }

    def statistics(self) -> dict[str, Any]:
        """Return all statistics, for people."""
        assert self._parts is not None
        return {
            "store": self._store.statistics(),
            "holds": self._parts.pulls.held,
            "replies_owed": self._parts.confirmations.pending,
            "members": self._parts.membership.statistics(),
            "queue_locks": self._parts.locks.counts(),
            "disk": {
                "level": self._parts.pressure.level.name,
                "used_percent": self._parts.pressure.used_percent,
                "refusing": self._parts.pressure.refusing,
                "low": self._parts.pressure.low,
            },
            "segments_deleted": dict(self._parts.retention.deleted),
            "topics": len(self._parts.control.topics),
            "groups": len(self._parts.control.groups),
            "filters": self._parts.filter_handler.statistics(),
            "replication": to_builtins(
                self._parts.replica_handler.status(self._clock.monotonic_ms())
            ),
            **self._protocols.statistics(),
        }

    def metrics(self) -> bytes:
        """Return the Prometheus page."""
        assert self._parts is not None
        return broker_metrics(
            self._parts,
            self._store,
            self._protocols,
            self._measures,
            self._spans,
            wall_ms=self._clock.now_ms(),
            now_ms=self._clock.monotonic_ms(),
        )

    def exporter_metrics(self, asked: Asked, address: str) -> bytes:
        """Return the page with the names of RocketMQ 4's exporter; `address` is for clients."""
        # Imported here: a broker whose page is never requested does not pay for the import.
        from kourou.serving.exporter_metrics import exporter_families
        from kourou.telemetry.exporter_table import EXPORTER_METRICS

        assert self._parts is not None
        return expose(
            exporter_families(
                self._parts,
                self._store,
                self.table(),
                asked,
                address=address,
                wall_ms=self._clock.now_ms(),
            ),
            EXPORTER_METRICS,
        )


def _counts(counts: Sequence[int]) -> str:
    """Format `bound in ms:replies` of each bucket since the start; the last bucket has no bound."""
    bounds = [*map(str, RPC_BOUNDS_MS), "more"]
    return " ".join(f"{bound}:{count}" for bound, count in zip(bounds, counts, strict=True))


def _capacity(total: int, free: int) -> str:
    gibi = 1 << 30
    return f"Total : {total / gibi:.1f} GiB, Free : {free / gibi:.1f} GiB."
