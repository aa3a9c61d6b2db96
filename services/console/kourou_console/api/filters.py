"""Python filters of groups: lists and statistics, upload, enable, disable, roll back, try.

State: none. Every broker stores filters itself, so all results are by broker. A change is an event
at each broker, with its reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

import msgspec

from kourou.access.model import Action
from kourou.client.admin.filters import FilterChangeResult
from kourou.errors import BadRequest, Code, Rejected
from kourou.filtering.python_rules import check_source
from kourou.model.filter import FilterPolicy, FilterState, check_filter_name
from kourou.model.limits import FILTER_SOURCE_BYTES_MAX, FILTER_TRIED_MESSAGES_MAX
from kourou.protocol.bodies.filter_bodies import FilterFigures
from kourou_console.gateway import Gateway
from kourou_console.http.call import RequestContext
from kourou_console.lists import (
    LIST_ITEMS,
    Done,
    Limit,
    Listing,
    Missing,
    Name,
    Reason,
    answers,
    asked,
    brokers_of,
    cut,
    view_from,
)
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Filters")

Source = Annotated[str, msgspec.Meta(min_length=1, max_length=FILTER_SOURCE_BYTES_MAX)]

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
    failure_count: int = msgspec.field(name="strikes")
    running: bool
    quarantined: bool
    last_failure: str | None
    failed_at_ms: int | None


@OPERATIONS.get("/v1/filters", "filters")
async def filters(gateway: Gateway, parameters: FiltersWanted) -> FilterList:
    """The filters of all groups at all brokers: versions, active version, policy, quarantine."""
    return await _filters(gateway, parameters.group or "", "", parameters.broker, parameters.limit)


@OPERATIONS.get("/v1/filters/{group}/{name}", "filter", needs=())
async def one_filter(gateway: Gateway, parameters: FilterPath) -> FilterList:
    """One filter, at every broker that has it."""
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
    return view_from(
        FilterView,
        one,
        broker=broker,
        state=one.status,
        quarantined=[
            QuarantinedVersion(number, text) for number, text in sorted(one.quarantined.items())
        ],
        versions=[view_from(FilterVersionView, each) for each in one.versions],
    )


@OPERATIONS.get("/v1/filters/{group}/{name}/source", "filter_source", needs=())
async def source(gateway: Gateway, parameters: SourceWanted) -> FilterSource:
    """The source of a version (default: the active version)."""
    found = await gateway.admin.filters.source(
        parameters.group, parameters.name, parameters.version, broker=parameters.broker
    )
    return view_from(
        FilterSource, found, source=found.source or "", as_of_ms=gateway.clock.now_ms()
    )


@OPERATIONS.get("/v1/filter-statistics", "filter_statistics")
async def statistics(
    gateway: Gateway, parameters: StatisticsParams
) -> Listing[FilterVersionStatistics]:
    """Filter statistics since the start of the filter servers."""
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
    return view_from(
        FilterVersionStatistics,
        one,
        server=server,
        micros_a_message=round(one.micros / one.seen, 2) if one.seen else None,
        failure_count=one.failures,
        last_failure=f"{one.failure}: {one.reason}" if one.failure else None,
    )


class FilterTarget(msgspec.Struct, frozen=True):
    """The filter; `preview`: only report the effects."""

    group: Name
    name: Name
    preview: bool = False


class FilterDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """The filter, at which brokers; `preview`: only report the effects."""

    group: Name
    name: Name
    preview: bool = False
    broker: Name | None = None
    cluster: Name | None = None
    reason: Reason = ""


class UploadBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version's Python. With `enable` it runs from now on if it never ran there before."""

    source: Source
    note: Annotated[str, msgspec.Meta(max_length=512)] = ""
    enable: bool = True
    broker: Name | None = None
    cluster: Name | None = None


class ChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At one broker, at those of a cluster, or at all that have the filter."""

    broker: Name | None = None
    cluster: Name | None = None
    reason: Reason = ""


class EnableBody(ChangeBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest version, if none is named."""

    version: VersionNumber | None = None


class PolicyBody(ChangeBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The failure policy of the filter."""

    policy: FilterPolicy


class ChangedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filter at a broker after the change: the requested `version`, the `active` one."""

    broker: str
    version: int
    active: int | None
    created: bool
    quarantined: str | None


class FilterChanges(Done, frozen=True, kw_only=True):
    """What a decision did at each broker; nothing yet where it is a preview."""

    items: list[ChangedFilter]


class TrialBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source that is kept nowhere, or a stored version, over the topic's last messages."""

    topic: Name
    source: Source | None = None
    version: VersionNumber | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=FILTER_TRIED_MESSAGES_MAX)] = 100
    broker: Name | None = None


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One message and the filter's result; `passed` null: the filter failed."""

    server: str
    queue: int
    offset: int
    message_id: str
    tag: str
    keys: str
    passed: bool | None
    reason: str
    micros: int


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a trial at one filter server; `failure` is what ended it early."""

    server: str
    seen: int
    passed: int
    failed: int
    micros: int
    start_micros: int
    failure: str | None
    reason: str | None


class TrialList(Listing[Tried], frozen=True, kw_only=True):
    """The messages, oldest first at each server."""

    trials: list[TrialResult]


@OPERATIONS.put("/v1/filters/{group}/{name}", "put_filter", needs=())
async def put(
    gateway: Gateway, parameters: FilterTarget, body: UploadBody, call: RequestContext
) -> FilterChanges:
    """Upload a version of a filter; an identical source keeps its version."""
    group, name = parameters.group, check_filter_name(parameters.name)
    check_source(body.source, name)
    if parameters.preview:
        brokers = await brokers_of(gateway, body.broker, body.cluster)
        then = " and is enabled if it is new" if body.enable else " but is not enabled"
        return _response(
            gateway,
            [f"A version of {name} of {group} is stored at {', '.join(brokers)}{then}."],
            {},
            preview=True,
        )
    done = await gateway.admin.filters.put(
        group,
        name,
        body.source,
        note=body.note,
        author=f"{call.caller.name}@console",
        enable=body.enable,
        broker=body.broker,
        cluster=body.cluster,
    )
    says = [
        f"{where}: version {one.version}{' is new' if one.created else ' was known'}"
        + (", and runs." if one.active == one.version else ", and does not run.")
        for where, one in sorted(done.items())
    ]
    return _response(gateway, says, done)


@OPERATIONS.post("/v1/filters/{group}/{name}/enable", "enable_filter", needs=())
async def enable(gateway: Gateway, parameters: FilterTarget, body: EnableBody) -> FilterChanges:
    """Enable a version of a filter."""
    what = "the newest version" if body.version is None else f"version {body.version}"
    if parameters.preview:
        return await _preview(gateway, parameters, body, f"{what} would be enabled")
    done = await _decide(gateway.admin.filters.enable, parameters, body, body.version)
    return _response(gateway, _running(done), done)


@OPERATIONS.post("/v1/filters/{group}/{name}/disable", "disable_filter", needs=())
async def disable(gateway: Gateway, parameters: FilterTarget, body: ChangeBody) -> FilterChanges:
    """Disable a filter; its group waits."""
    if parameters.preview:
        text = "no version would be enabled: the group waits until one is"
        return await _preview(gateway, parameters, body, text)
    done = await _decide(gateway.admin.filters.disable, parameters, body)
    return _response(gateway, _running(done), done)


@OPERATIONS.post("/v1/filters/{group}/{name}/rollback", "roll_back_filter", needs=())
async def rollback(gateway: Gateway, parameters: FilterTarget, body: ChangeBody) -> FilterChanges:
    """Enable the previous version of a filter."""
    if parameters.preview:
        found = await _there(gateway, parameters, body)
        says = [
            f"{one.broker}: version {one.before_active} would replace version {one.active}."
            if one.before_active is not None
            else f"{one.broker}: there is no previous version."
            for one in found
        ]
        return _response(gateway, says, {}, preview=True)
    done = await _decide(gateway.admin.filters.rollback, parameters, body)
    return _response(gateway, _running(done), done)


@OPERATIONS.post("/v1/filters/{group}/{name}/policy", "set_filter_policy", needs=())
async def policy(gateway: Gateway, parameters: FilterTarget, body: PolicyBody) -> FilterChanges:
    """Set the failure policy of a filter: hold, skip or pass the message."""
    text = f"if it fails on a message, {body.policy.meaning}"
    if parameters.preview:
        return await _preview(gateway, parameters, body, text)
    done = await _decide(gateway.admin.filters.set_policy, parameters, body, body.policy)
    says = [f"{where}: {text}." for where in sorted(done)]
    says += [
        f"{where}: version {one.version} is still quarantined ({one.quarantined})."
        for where, one in sorted(done.items())
        if one.quarantined is not None and body.policy is not FilterPolicy.PASS
    ]
    return _response(gateway, says, done)


@OPERATIONS.delete("/v1/filters/{group}/{name}", "delete_filter", needs=())
async def delete(gateway: Gateway, parameters: FilterDeletion) -> FilterChanges:
    """Delete a filter with all its versions; the history keeps them."""
    target = FilterTarget(parameters.group, parameters.name, parameters.preview)
    where = ChangeBody(
        broker=parameters.broker, cluster=parameters.cluster, reason=parameters.reason
    )
    if parameters.preview:
        text = "it would be deleted with all versions; consumers that use it wait"
        return await _preview(gateway, target, where, text)
    done = await _decide(gateway.admin.filters.delete, target, where)
    return _response(gateway, [f"{at}: it is deleted." for at in sorted(done)], done)


async def _decide(
    decide: Callable[..., Awaitable[Mapping[str, FilterChangeResult]]],
    target: FilterTarget,
    body: ChangeBody,
    *more: object,
) -> Mapping[str, FilterChangeResult]:
    """Decide something about the filter at the selected brokers."""
    return await decide(
        target.group,
        target.name,
        *more,
        reason=body.reason,
        broker=body.broker,
        cluster=body.cluster,
    )


async def _there(gateway: Gateway, parameters: FilterTarget, body: ChangeBody) -> list[FilterView]:
    """The filter at the selected brokers. Raises 404 if none of them has it."""
    chosen = set(await brokers_of(gateway, body.broker, body.cluster))
    found = await one_filter(gateway, FilterPath(parameters.group, parameters.name))
    there = [one for one in found.items if one.broker in chosen]
    if not there:
        raise Rejected(
            f"group {parameters.group} has no filter {parameters.name!r} there",
            code=Code.QUERY_NOT_FOUND,
        )
    return there


async def _preview(
    gateway: Gateway, parameters: FilterTarget, body: ChangeBody, text: str
) -> FilterChanges:
    found = await _there(gateway, parameters, body)
    return _response(gateway, [f"{one.broker}: {text}." for one in found], {}, preview=True)


def _running(done: Mapping[str, FilterChangeResult]) -> list[str]:
    return [
        f"{where}: no version is enabled."
        if one.active is None
        else f"{where}: version {one.active} is enabled."
        for where, one in sorted(done.items())
    ]


def _response(
    gateway: Gateway,
    says: list[str],
    done: Mapping[str, FilterChangeResult],
    *,
    preview: bool = False,
) -> FilterChanges:
    items = [view_from(ChangedFilter, one, broker=where) for where, one in sorted(done.items())]
    return FilterChanges(preview=preview, says=says, items=items, as_of_ms=gateway.clock.now_ms())


@OPERATIONS.post("/v1/filters/{group}/{name}/trials", "try_filter", needs=())
async def trial(gateway: Gateway, parameters: FilterPath, body: TrialBody) -> TrialList:
    """Dry run a filter on a topic's last messages; nothing is stored."""
    if body.source is not None and body.version is not None:
        raise BadRequest("give a source or a stored version, not both")
    name = check_filter_name(parameters.name)
    # Brokers decide it again; here the error comes before any filter server is looked for.
    action = Action.GET if body.source is None else Action.CREATE
    await gateway.need(action, f"Filter:{parameters.group}/{name}")
    await gateway.need(Action.SUB, f"Topic:{body.topic}")
    found = await gateway.admin.filters.try_out(
        parameters.group,
        name,
        body.topic,
        source=body.source or "",
        version=body.version,
        count=body.count,
        broker=body.broker or parameters.broker,
    )
    rows = [
        view_from(Tried, one, server=server, queue=one.queue_id)
        for server, every in sorted(found.items())
        for one in every.messages
    ]
    trials = [
        view_from(
            TrialResult,
            one,
            server=server,
            failure=one.failure or None,
            reason=one.reason or None,
        )
        for server, one in sorted(found.items())
    ]
    return TrialList(items=rows, total=len(rows), as_of_ms=gateway.clock.now_ms(), trials=trials)
