"""The Python filters that groups uploaded.

State: none. Every broker stores filters itself, so all results are by broker.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.errors import Code, Rejected
from kourou.model.filter import FilterPolicy, FilterState, FilterVersion
from kourou.protocol.bodies.filter_bodies import FilterFigures
from kourou_console.gateway import Gateway
from kourou_console.lists import (
    LIST_ITEMS,
    Limit,
    Listing,
    Missing,
    Name,
    answers,
    asked,
    brokers_of,
    cut,
)
from kourou_console.operation import Operation

VersionNumber = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class FilterVersionView(msgspec.Struct, frozen=True, kw_only=True):
    """One uploaded source; `enabled_ms` is when it last began to run."""

    version: int
    sha256: str
    author: str
    note: str
    uploaded_ms: int
    size_bytes: int
    enabled_ms: int | None


class FilterSource(FilterVersionView, frozen=True, kw_only=True):
    """A version with its Python."""

    source: str
    as_of_ms: int


class QuarantinedVersion(msgspec.Struct, frozen=True):
    """A version that must not run, and why."""

    version: int
    why: str


class FilterView(msgspec.Struct, frozen=True, kw_only=True):
    """A filter at one broker. `state` is runs, disabled or quarantined; `policy` hold, skip or pass
    is the failure policy, `skipped` the number of skipped messages.
    """

    broker: str
    group: str
    name: str
    state: str
    active: int | None
    before_active: int | None
    newest: int | None
    policy: FilterPolicy
    skipped: int
    quarantined: list[QuarantinedVersion]
    versions: list[FilterVersionView]


class BrokerFilterServers(msgspec.Struct, frozen=True):
    """The filter servers of a broker; none: groups that use a filter wait."""

    broker: str
    addresses: list[str]


class FilterList(Listing[FilterView], frozen=True, kw_only=True):
    """Filters by broker, group and name."""

    servers: list[BrokerFilterServers]


class FiltersWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of one group, at one broker; by default all."""

    group: Name | None = None
    broker: Name | None = None
    limit: Limit = LIST_ITEMS


class FilterPath(msgspec.Struct, frozen=True):
    """The filter, at one broker or at all."""

    group: Name
    name: Name
    broker: Name | None = None


class SourceWanted(msgspec.Struct, frozen=True):
    """The active version, otherwise the newest, if no version is named."""

    group: Name
    name: Name
    version: VersionNumber | None = None
    broker: Name | None = None


class StatisticsParams(msgspec.Struct, frozen=True, kw_only=True):
    """One group, one filter, one broker's filter servers; by default all."""

    group: Name | None = None
    name: Name | None = None
    broker: Name | None = None


class FilterVersionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a version did in one filter server since that started. Counts of messages; bytes in
    from the broker, out to consumers; `micros_a_message` is time used inside the filter.
    """

    server: str
    group: str
    name: str
    version: int
    seen: int
    passed: int
    errors: int
    skipped: int
    unfiltered: int
    micros_a_message: float | None
    bytes_in: int
    bytes_out: int
    starts: int
    strikes: int
    running: bool
    quarantined: bool
    last_failure: str | None
    failed_at_ms: int | None


async def filters(gateway: Gateway, parameters: FiltersWanted) -> FilterList:
    """All filters at all brokers that reply."""
    return await _filters(gateway, parameters.group or "", "", parameters.broker, parameters.limit)


async def one_filter(gateway: Gateway, parameters: FilterPath) -> FilterList:
    """One filter, at every broker that has it. Raises 404 if none has it."""
    found = await _filters(
        gateway, parameters.group, parameters.name, parameters.broker, LIST_ITEMS
    )
    if not found.items and not found.missing:
        raise Rejected(
            f"group {parameters.group} has no filter {parameters.name!r}",
            code=Code.QUERY_NOT_FOUND,
        )
    return found


async def _filters(
    gateway: Gateway, group: str, name: str, broker: str | None, limit: int
) -> FilterList:
    names = await brokers_of(gateway, broker)
    admin = gateway.admin.filters

    async def look(at: str) -> tuple[tuple[FilterState, ...], tuple[str, ...]]:
        states = (await admin.list(group, name, broker=at)).get(at, ())
        return states, (await admin.servers(broker=at)).get(at, ())

    found, missing = await answers(names, look)
    rows = [
        _filter(at, one)
        for at, (states, _) in sorted(found.items())
        for one in sorted(states, key=lambda one: one.key)
    ]
    items, truncated = cut(rows, limit)
    return FilterList(
        items=items,
        total=None if missing else len(rows),
        truncated=truncated,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
        servers=[
            BrokerFilterServers(at, list(servers)) for at, (_, servers) in sorted(found.items())
        ],
    )


def _filter(broker: str, one: FilterState) -> FilterView:
    return FilterView(
        broker=broker,
        group=one.group,
        name=one.name,
        state=state_of(one),
        active=one.active,
        before_active=one.before_active,
        newest=one.newest,
        policy=one.policy,
        skipped=one.skipped,
        quarantined=[
            QuarantinedVersion(number, text) for number, text in sorted(one.quarantined.items())
        ],
        versions=[_version(each) for each in one.versions],
    )


def state_of(one: FilterState) -> str:
    """`runs`, `disabled` or `quarantined`; a quarantined filter does not run even if active."""
    if one.active is None:
        return "disabled"
    return "quarantined" if one.active in one.quarantined else "runs"


def _version(one: FilterVersion) -> FilterVersionView:
    return FilterVersionView(
        version=one.version,
        sha256=one.sha256,
        author=one.author,
        note=one.note,
        uploaded_ms=one.uploaded_ms,
        size_bytes=one.size_bytes,
        enabled_ms=one.enabled_ms,
    )


async def source(gateway: Gateway, parameters: SourceWanted) -> FilterSource:
    """The Python source of a version, as uploaded."""
    found = await gateway.admin.filters.source(
        parameters.group, parameters.name, parameters.version, broker=parameters.broker
    )
    return FilterSource(
        **msgspec.structs.asdict(_version(found)),
        source=found.source or "",
        as_of_ms=gateway.clock.now_ms(),
    )


async def statistics(
    gateway: Gateway, parameters: StatisticsParams
) -> Listing[FilterVersionStatistics]:
    """The statistics of filters, from each filter server that replies."""
    names = await brokers_of(gateway, parameters.broker)
    group, name = parameters.group or "", parameters.name or ""

    async def look(at: str) -> dict[str, tuple[FilterFigures, ...]]:
        return await gateway.admin.filters.statistics(group, name, broker=at)

    found, missing = await asked(names, look)
    rows = [
        _statistics(server, one)
        for servers in found.values()
        for server, every in servers.items()
        for one in every
    ]
    rows.sort(key=lambda row: (row.group, row.name, row.version, row.server))
    return Listing(
        items=rows,
        total=None if missing else len(rows),
        as_of_ms=gateway.clock.now_ms(),
        missing=[Missing(f"filter servers of {one.what}", one.why) for one in missing],
    )


def _statistics(server: str, one: FilterFigures) -> FilterVersionStatistics:
    return FilterVersionStatistics(
        server=server,
        group=one.group,
        name=one.name,
        version=one.version,
        seen=one.seen,
        passed=one.passed,
        errors=one.errors,
        skipped=one.skipped,
        unfiltered=one.unfiltered,
        micros_a_message=round(one.micros / one.seen, 2) if one.seen else None,
        bytes_in=one.bytes_in,
        bytes_out=one.bytes_out,
        starts=one.starts,
        strikes=one.strikes,
        running=one.running,
        quarantined=one.quarantined,
        last_failure=f"{one.failure}: {one.reason}" if one.failure else None,
        failed_at_ms=one.failed_at_ms,
    )


_CHAPTER = "Filters"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/filters",
        "filters",
        "The filters of all groups at all brokers: versions, active version, policy, quarantine.",
        _CHAPTER,
        filters,
        FilterList,
        FiltersWanted,
    ),
    Operation(
        "GET",
        "/v1/filters/{group}/{name}",
        "filter",
        "One filter, at every broker that has it.",
        _CHAPTER,
        one_filter,
        FilterList,
        FilterPath,
    ),
    Operation(
        "GET",
        "/v1/filters/{group}/{name}/source",
        "filter_source",
        "The source of a version (default: the active version).",
        _CHAPTER,
        source,
        FilterSource,
        SourceWanted,
    ),
    Operation(
        "GET",
        "/v1/filter-statistics",
        "filter_statistics",
        "Filter statistics since the start of the filter servers.",
        _CHAPTER,
        statistics,
        Listing[FilterVersionStatistics],
        StatisticsParams,
    ),
)
