"""What a broker tells of itself: runtime table, statistics, metrics.

Lives here: which figures there are and where each is read. May not live here: counting
(engine.traffic counts), how metrics are written down (kourou.telemetry).

State: none beyond the time of start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kourou import __version__
from kourou.clock import Clock
from kourou.engine.desks import Desks
from kourou.service.carrier import Carriers
from kourou.store.store import Store
from kourou_broker.measures import Measures
from kourou_broker.metrics import broker_metrics

if TYPE_CHECKING:
    from kourou_broker.spans import BrokerSpans

NO_POOLS = {
    f"{pool}ThreadPoolQueue{figure}": "0"
    for pool in ("send", "pull", "query")
    for figure in ("Size", "HeadWaitTimeMills")
}
"""RocketMQ's tools read them and fail without; here nothing waits for a thread of a pool."""


class Figures:
    """Reads figures where they are kept."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._boot_wall_ms = clock.now_ms()
        self._boot_ms = clock.monotonic_ms()
        self._desks: Desks | None = None
        self._carriers = Carriers()
        self._spans: BrokerSpans | None = None
        self._measures = Measures()

    def attach(
        self,
        desks: Desks,
        carriers: Carriers,
        spans: BrokerSpans | None = None,
        measures: Measures | None = None,
    ) -> None:
        """The parts that were made after this."""
        self._spans = spans
        self._measures = measures or self._measures
        self._desks = desks
        self._carriers = carriers

    def table(self) -> Mapping[str, str]:
        """The texts of GET_BROKER_RUNTIME_INFO under RocketMQ's names."""
        assert self._desks is not None
        traffic = self._desks.traffic
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
            **self._desks.statistics.broker_rates(),
            **self._desks.statistics.broker_totals(),
            **{
                f"scheduleMessageOffset_{level}": f"{offset},{end}"
                for level, (offset, end) in self._desks.delays.bounds().items()
            },
            **NO_POOLS,
            "pageCacheLockTimeMills": "0",  # likewise: there is no such lock
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,  # they lie on one disk
            "commitLogDirCapacity": _capacity(total, free),
            "remainHowManyDataToCommit": str(self._store.unwritten_bytes),
            "dispatchBehindBytes": str(self._store.dispatch_behind_bytes),
            "pollingHolds": str(self._desks.pulls.held),
            "repeatsRemoved": str(traffic.repeats_removed),
            "diskLevel": self._desks.pressure.level.name,
        }

    def statistics(self) -> dict[str, Any]:
        """Everything, for people."""
        assert self._desks is not None
        return {
            "store": self._store.statistics(),
            "holds": self._desks.pulls.held,
            "replies_owed": self._desks.confirmations.owed,
            "members": self._desks.membership.statistics(),
            "queue_locks": self._desks.locks.counts(),
            "disk": {
                "level": self._desks.pressure.level.name,
                "used_percent": self._desks.pressure.used_percent,
                "refusing": self._desks.pressure.refusing,
                "low": self._desks.pressure.low,
            },
            "segments_deleted": dict(self._desks.retention.deleted),
            "topics": len(self._desks.control.topics),
            "groups": len(self._desks.control.groups),
            **self._carriers.statistics(),
        }

    def metrics(self) -> bytes:
        """The Prometheus page."""
        assert self._desks is not None
        return broker_metrics(
            self._desks,
            self._store,
            self._carriers,
            self._measures,
            self._spans,
            wall_ms=self._clock.now_ms(),
        )


def _capacity(total: int, free: int) -> str:
    gibi = 1 << 30
    return f"Total : {total / gibi:.1f} GiB, Free : {free / gibi:.1f} GiB."
