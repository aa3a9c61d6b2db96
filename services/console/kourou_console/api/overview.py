"""The overview of all brokers: caller, last sample, series of the last hour, active alarms."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

import msgspec

import kourou
from kourou.errors import BadRequest, KourouError
from kourou.model.limits import CONSOLE_SERIES_MAX
from kourou.model.names import is_system_group
from kourou.time_limit import within
from kourou_console.gateway import Gateway
from kourou_console.http.call import RequestContext
from kourou_console.lists import LOOK_S, Listing, Missing, view_from, why
from kourou_console.metrics.alarms import GAPS, ActiveAlarm
from kourou_console.metrics.sampler import ALL, BrokerNow, Key, Sampler, broker_values
from kourou_console.operation import Chapter, NoParameters
from kourou_console.topic_kinds import TopicKind, kind_of

OPERATIONS = Chapter("Overview")
CALLER_OPERATIONS = Chapter("About this gateway")

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


@OPERATIONS.get("/v1/overview", "overview")
async def overview(gateway: Gateway, _parameters: NoParameters) -> Overview:
    """Rates, latency, lag, disk, copies and alarms of all brokers, as of the last sample."""
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
        names, configs, info = await within(
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
    values: dict[str, Any] = broker_values(now)
    if values:
        values["lag_messages"] = as_int(values["lag_messages"])
    return BrokerFigures(
        broker=now.broker,
        cluster=now.cluster,
        up=now.up,
        why=None if now.up else now.why,
        sampled_at_ms=now.at_ms,
        **values,
    )


def _lagging(sampler: Sampler) -> list[LaggingGroup]:
    worst = sorted(sampler.lags().items(), key=lambda one: (-one[1], one[0]))
    dead = sampler.dead
    return [
        LaggingGroup(group, lag, None if dead is None else dead.get(group, 0))
        for group, _ in worst[:LAGGING]
        if (lag := sampler.lag_of(group)) != 0
    ]


KNOWN: dict[str, tuple[str, str]] = {
    "messages_in_per_s": ("1/s", "Messages stored"),
    "messages_out_per_s": ("1/s", "Messages delivered"),
    "bytes_in_per_s": ("B/s", "Bytes stored"),
    "send_p50_ms": ("ms", "Median send latency (estimate)"),
    "send_p99_ms": ("ms", "99th percentile of send latency (estimate)"),
    "pull_p99_ms": (
        "ms",
        "99th percentile of pull latency without long-poll waiting (estimate)",
    ),
    "disk_used_ratio": ("ratio", "Disk usage ratio; for all brokers the highest"),
    "log_bytes": ("B", "Size of the commit log"),
    "held_pulls": ("1", "Pulls waiting for messages (long polling)"),
    "unflushed_bytes": ("B", "Bytes stored but not flushed to disk"),
    "dispatch_behind_bytes": ("B", "Bytes stored but not yet in consume queues"),
    "replica_lag_bytes": ("B", "Replication lag of the slowest replica"),
    "lag_messages": ("messages", "Consumer lag in messages"),
    "dead_letters": ("messages", "Messages in dead-letter topics"),
    "up": ("1", "1 if the broker is online; for all brokers the number online"),
}


class SeriesParameters(msgspec.Struct, frozen=True, kw_only=True):
    """`of`: a broker's or group's name, `broker:NAME`, `group:NAME`; by default the suite."""

    name: Annotated[list[str], msgspec.Meta(max_length=CONSOLE_SERIES_MAX)] = []
    of: Annotated[list[str], msgspec.Meta(max_length=CONSOLE_SERIES_MAX)] = []
    since_ms: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0


class Series(msgspec.Struct, frozen=True):
    """One line: a value for each time of `at_ms`, null where none is known."""

    name: str
    of: str
    unit: str
    values: list[float | None]


class KnownSeries(msgspec.Struct, frozen=True):
    """A stored metric and its owner: "" for the whole suite."""

    name: str
    unit: str
    about: str
    of: list[str]


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Columns that share their times. `truncated`: some series found no room."""

    as_of_ms: int
    interval_ms: int
    at_ms: list[int]
    series: list[Series]
    known: list[KnownSeries]
    truncated: bool
    missing: list[Missing] = []


@OPERATIONS.get("/v1/series", "series")
async def series(gateway: Gateway, parameters: SeriesParameters) -> SeriesAnswer:
    """Metrics of the last hour as columns: `name` and `of` are repeatable, null is a gap."""
    for name in parameters.name:
        if name not in KNOWN:
            raise BadRequest(f"unknown series {name!r}", hint=f"known: {', '.join(KNOWN)}")
    if len(parameters.name) * max(1, len(parameters.of)) > CONSOLE_SERIES_MAX:
        raise BadRequest(f"more than {CONSOLE_SERIES_MAX} series at once")
    sampler = gateway.part(Sampler)
    await sampler.fresh()
    there = set(sampler.samples.keys())
    wanted = [
        (name, of, _key(name, of, there))
        for of in parameters.of or [ALL]
        for name in parameters.name
    ]
    columns = sampler.samples.read([key for *_, key in wanted], parameters.since_ms)
    return SeriesAnswer(
        as_of_ms=gateway.clock.now_ms(),
        interval_ms=sampler.interval_ms,
        at_ms=columns.at_ms,
        series=[
            Series(name, of, KNOWN[name][0], values)
            for (name, of, _), values in zip(wanted, columns.values, strict=True)
        ],
        known=[
            KnownSeries(name, unit, about, [of for known, of in sorted(there) if known == name])
            for name, (unit, about) in KNOWN.items()
        ],
        truncated=sampler.samples.refused > 0,
    )


def _key(name: str, of: str, there: set[Key]) -> Key:
    """The series of a name without a prefix: the broker's, if there is one."""
    if of == ALL or of.startswith(("broker:", "group:")):
        return name, of
    broker = (name, f"broker:{of}")
    return broker if broker in there else (name, f"group:{of}")


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something that holds now. `kind` is one of disk, lag, dead_letters, replica_behind,
    replica_not_in_sync, broker_away, member_away, member_missing, sampling_gap; `severity` is
    warning or critical.
    """

    id: str
    kind: str
    severity: str
    of_kind: str
    of: str
    since_ms: int
    value: float | None
    threshold: float | None
    unit: str
    title: str
    meaning: str
    what_to_do: str


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm is raised above these; settings of the console."""

    disk_used_ratio: float
    lag_messages: int
    #: New dead letters of a group within ten minutes.
    new_dead_letters: int = msgspec.field(name="dead_letters_grown")
    replica_lag_bytes: int
    sampling_gap_ms: int


class AlarmList(Listing[Alarm], frozen=True, kw_only=True):
    """The alarms that hold, the worst first."""

    thresholds: Thresholds


@OPERATIONS.get("/v1/alarms", "alarms", chapter="Alarms")
async def alarms(gateway: Gateway, _parameters: NoParameters) -> AlarmList:
    """Active alarms: start time, meaning, action."""
    sampler = gateway.part(Sampler)
    await sampler.fresh()
    found = [alarm_view(one) for one in sampler.active_alarms()]
    limits = gateway.settings.thresholds
    return AlarmList(
        items=found,
        total=len(found),
        missing=sampler.without_lags(),
        as_of_ms=gateway.clock.now_ms(),
        thresholds=view_from(Thresholds, limits, sampling_gap_ms=GAPS * sampler.interval_ms),
    )


def alarm_view(one: ActiveAlarm) -> Alarm:
    """The response form of an alarm."""
    return view_from(Alarm, one.raised, since_ms=one.since_ms)


class Me(msgspec.Struct, frozen=True):
    """The caller's identity and rights, and the gateway."""

    #: The user or the token's name; "anybody" if there are neither.
    name: str
    #: The caller's rights, of read, write and admin.
    rights: list[str]
    #: Whether every call needs a token, or a user and its secret.
    token_required: bool
    version: str
    producer_group: str
    #: Null until the cluster has replied for the first time.
    cluster: str | None
    #: Services in addition to brokers: spark.
    features: dict[str, bool]
    as_of_ms: int


@CALLER_OPERATIONS.get("/v1/me", "who_am_i", needs=())
async def who_am_i(gateway: Gateway, parameters: NoParameters, call: RequestContext) -> Me:
    """Your identity and rights at this gateway, and its available parts."""
    settings = gateway.settings
    rights = [one.name.lower() for one in type(call.caller.right) if one <= call.caller.right]
    return Me(
        call.caller.name,
        rights,
        settings.token_file is not None or bool(call.caller.user),
        kourou.__version__,
        settings.producer_group,
        gateway.cluster_name,
        {"spark": bool(settings.spark_etl_address)},
        gateway.clock.now_ms(),
    )
