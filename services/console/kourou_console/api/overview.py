"""The overview of the whole suite."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec

from kourou.errors import KourouError
from kourou.model.names import is_system_group
from kourou_console.api.alarms import Alarm, alarm_view
from kourou_console.gateway import Gateway
from kourou_console.lists import LOOK_S, Missing, why
from kourou_console.metrics.sampler import ALL, BrokerNow, Sampler
from kourou_console.operation import NoParameters, Operation
from kourou_console.topic_kinds import TopicKind, kind_of

LAGGING = 10


class BrokerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One broker at the last sample; `why` is the reason if it is not `up`.

    Latencies are those since the previous sample. They are estimated from the broker's histogram by
    linear interpolation within a bucket, as in Prometheus.
    """

    broker: str
    cluster: str | None
    up: bool
    why: str | None
    sampled_at_ms: int | None
    messages_in_per_s: float | None = None
    messages_out_per_s: float | None = None
    bytes_in_per_s: float | None = None
    send_p50_ms: float | None = None
    send_p99_ms: float | None = None
    pull_p99_ms: float | None = None
    disk_used_ratio: float | None = None
    log_bytes: int | None = None
    held_pulls: int | None = None
    unflushed_bytes: int | None = None
    dispatch_behind_bytes: int | None = None
    replica_lag_bytes: int | None = None
    lag_messages: int | None = None


class LaggingGroup(msgspec.Struct, frozen=True):
    """A group with consumer lag; null: unknown, because a broker did not reply."""

    group: str
    lag_messages: int | None
    dead_letters: int | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Sums and worst cases over all brokers; null where a registered broker did not respond.

    `topics` and `groups` count user topics and groups. Apart from them: what brokers have for
    themselves, and retry and dead-letter topics, which are their groups'.
    """

    as_of_ms: int
    sampled_at_ms: int | None
    interval_ms: int
    messages_in_per_s: float | None
    messages_out_per_s: float | None
    bytes_in_per_s: float | None
    send_p50_ms: float | None
    send_p99_ms: float | None
    pull_p99_ms: float | None
    lag_messages: int | None
    dead_letters: int | None
    disk_used_ratio: float | None
    replica_lag_bytes: int | None
    brokers: list[BrokerFigures]
    lagging: list[LaggingGroup]
    brokers_known: int
    brokers_up: int
    topics: int | None
    system_topics: int | None
    group_topics: int | None
    groups: int | None
    system_groups: int | None
    alarms: list[Alarm]
    missing: list[Missing]


async def overview(gateway: Gateway, _parameters: NoParameters) -> Overview:
    """All values of the last sample, and the current numbers of topics and groups."""
    sampler = gateway.part(Sampler)
    await sampler.fresh()
    missing = [
        Missing(one.broker, one.why or "it does not respond")
        for one in sampler.brokers.values()
        if not one.up
    ]
    missing += sampler.without_lags()
    if sampler.trouble is not None:
        missing.append(Missing("name servers", sampler.trouble))
    of: Counter[TopicKind] | None = None
    system: Counter[bool] | None = None
    try:
        names, configs, info = await asyncio.wait_for(
            asyncio.gather(
                gateway.admin.topics.list(),
                gateway.admin.groups.list(),
                gateway.admin.cluster.info(),
            ),
            LOOK_S,
        )
        of = Counter(kind_of(name, info.brokers, info.clusters).kind for name in names)
        system = Counter(is_system_group(one.name) for one in configs)
    except (KourouError, TimeoutError) as error:
        missing.append(Missing("topics and groups", why(error)))

    def latest(name: str) -> float | None:
        return sampler.samples.latest((name, ALL), since_ms=sampler.current_since_ms())

    brokers = [broker_figures(sampler.brokers[name]) for name in sorted(sampler.brokers)]
    return Overview(
        as_of_ms=gateway.clock.now_ms(),
        sampled_at_ms=sampler.sampled_ms,
        interval_ms=sampler.interval_ms,
        messages_in_per_s=latest("messages_in_per_s"),
        messages_out_per_s=latest("messages_out_per_s"),
        bytes_in_per_s=latest("bytes_in_per_s"),
        send_p50_ms=latest("send_p50_ms"),
        send_p99_ms=latest("send_p99_ms"),
        pull_p99_ms=latest("pull_p99_ms"),
        lag_messages=as_int(latest("lag_messages")),
        dead_letters=as_int(latest("dead_letters")),
        disk_used_ratio=latest("disk_used_ratio"),
        replica_lag_bytes=as_int(latest("replica_lag_bytes")),
        brokers=brokers,
        lagging=_lagging(sampler),
        brokers_known=len(brokers),
        brokers_up=sum(one.up for one in brokers),
        topics=None if of is None else of[TopicKind.NORMAL],
        system_topics=None if of is None else of[TopicKind.SYSTEM],
        group_topics=None if of is None else of[TopicKind.RETRY] + of[TopicKind.DLQ],
        groups=None if system is None else system[False],
        system_groups=None if system is None else system[True],
        alarms=[alarm_view(one) for one in sampler.active_alarms()],
        missing=missing,
    )


def as_int(value: float | None) -> int | None:
    """A count that is stored as a double."""
    return None if value is None else int(value)


def broker_figures(now: BrokerNow) -> BrokerFigures:
    """The values of a broker in the last sample."""
    runtime, rates = now.runtime, now.rates
    if runtime is None:
        return BrokerFigures(
            broker=now.broker, cluster=now.cluster, up=False, why=now.why, sampled_at_ms=now.at_ms
        )
    return BrokerFigures(
        broker=now.broker,
        cluster=now.cluster,
        up=True,
        why=None,
        sampled_at_ms=now.at_ms,
        messages_in_per_s=rates.messages_in_per_s,
        messages_out_per_s=rates.messages_out_per_s,
        bytes_in_per_s=rates.bytes_in_per_s,
        send_p50_ms=rates.send_p50_ms,
        send_p99_ms=rates.send_p99_ms,
        pull_p99_ms=rates.pull_p99_ms,
        disk_used_ratio=runtime.disk_used_ratio,
        log_bytes=runtime.log_bytes,
        held_pulls=runtime.held_pulls,
        unflushed_bytes=runtime.unflushed_bytes,
        dispatch_behind_bytes=runtime.dispatch_behind_bytes,
        replica_lag_bytes=runtime.replica_lag_bytes,
        lag_messages=None if now.lags is None else sum(now.lags.values()),
    )


def _lagging(sampler: Sampler) -> list[LaggingGroup]:
    worst = sorted(sampler.lags().items(), key=lambda one: (-one[1], one[0]))
    dead = sampler.dead
    return [
        LaggingGroup(group, lag, None if dead is None else dead.get(group, 0))
        for group, _ in worst[:LAGGING]
        if (lag := sampler.lag_of(group)) != 0
    ]


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/overview",
        "overview",
        "Rates, latency, lag, disk, copies and alarms of all brokers, as of the last sample.",
        "Overview",
        overview,
        Overview,
    ),
)
