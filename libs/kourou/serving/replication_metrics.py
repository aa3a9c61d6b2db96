"""The replication metrics of a broker: role, epoch, in-sync followers, replication lag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kourou.engine.roles.leader import SYNC_MASTER
from kourou.protocol.bodies.broker_bodies import ReplicasView
from kourou.telemetry.metrics import Family


def replication_families(base: Mapping[str, str], told: ReplicasView) -> Iterator[Family]:
    """Return the metrics; a leader reports the lag of each follower, a follower its own."""
    leads = told.leads and not told.fenced
    yield Family.gauge("kourou_replication_leads", "", [(base, int(leads))])
    yield Family.gauge("kourou_replication_epoch", "", [(base, told.epoch)])
    yield Family.gauge("kourou_replication_followers", "", [(base, len(told.followers))])
    if told.broker_role == SYNC_MASTER and not told.member:  # otherwise there is no such set
        yield Family.gauge("kourou_replication_in_sync", "", [(base, len(told.in_sync))])
    sizes: dict[int, int | None] = {one.broker_id: one.lag_bytes for one in told.followers}
    times: dict[int, int | None] = {one.broker_id: one.lag_ms for one in told.followers}
    if not told.leads:
        sizes[told.broker_id], times[told.broker_id] = told.lag_bytes, told.lag_ms
    known = [(_of(number, base), size) for number, size in sizes.items() if size is not None]
    yield Family.gauge("kourou_replication_lag_bytes", "", known)
    late = [(_of(number, base), ms / 1_000) for number, ms in times.items() if ms is not None]
    yield Family.gauge("kourou_replication_lag_seconds", "", late)


def _of(broker_id: int, base: Mapping[str, str]) -> Mapping[str, str]:
    return {"broker_id": str(broker_id), **base}
