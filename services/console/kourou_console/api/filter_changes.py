"""Upload, enable, disable, roll back and try filters.

State: none. A change is an event at each broker, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from kourou.client.admin.filters import FilterChangeResult as Changed
from kourou.errors import BadRequest, Code, Rejected
from kourou.filtering.python_rules import check_source
from kourou.model.filter import FilterPolicy, check_filter_name
from kourou.model.limits import FILTER_SOURCE_BYTES_MAX, FILTER_TRIED_MESSAGES_MAX
from kourou_console.api.filters import Filter, FilterPath, VersionNumber, one_filter
from kourou_console.call import Call
from kourou_console.gateway import Gateway
from kourou_console.lists import Done, Listing, Name, Reason, brokers_of
from kourou_console.operation import BodyKind, Operation

Source = Annotated[str, msgspec.Meta(min_length=1, max_length=FILTER_SOURCE_BYTES_MAX)]


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


class FilterChange(msgspec.Struct, frozen=True, kw_only=True):
    """The filter at a broker after the change: the requested `version`, the `active` one."""

    broker: str
    version: int
    active: int | None
    created: bool
    quarantined: str | None


class FilterChanges(Done, frozen=True, kw_only=True):
    """What a decision did at each broker; nothing yet where it is a preview."""

    items: list[FilterChange]


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


class Trial(msgspec.Struct, frozen=True, kw_only=True):
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

    trials: list[Trial]


_MEANINGS = {
    FilterPolicy.HOLD: "the group waits at it until the filter is fixed",
    FilterPolicy.SKIP: "it is skipped and recorded",
    FilterPolicy.PASS: "it is delivered unfiltered",
}


async def put(
    gateway: Gateway, parameters: FilterTarget, body: UploadBody, call: Call
) -> FilterChanges:
    """Upload a version; a known source keeps its version."""
    group, name = parameters.group, check_filter_name(parameters.name)
    check_source(body.source, name)
    if parameters.preview:
        brokers = await brokers_of(gateway, body.broker, body.cluster)
        then = " and is enabled if it is new" if body.enable else " but is not enabled"
        return _told(
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
    return _told(gateway, says, done)


async def enable(gateway: Gateway, parameters: FilterTarget, body: EnableBody) -> FilterChanges:
    """Run a version from now on; this ends its quarantine."""
    what = "the newest version" if body.version is None else f"version {body.version}"
    if parameters.preview:
        return await _preview(gateway, parameters, body, f"{what} would be enabled")
    done = await gateway.admin.filters.enable(
        parameters.group,
        parameters.name,
        body.version,
        reason=body.reason,
        broker=body.broker,
        cluster=body.cluster,
    )
    return _told(gateway, _running(done), done)


async def disable(gateway: Gateway, parameters: FilterTarget, body: ChangeBody) -> FilterChanges:
    """Run no version: the group receives nothing until a version is enabled again."""
    if parameters.preview:
        text = "no version would be enabled: the group waits until one is"
        return await _preview(gateway, parameters, body, text)
    done = await gateway.admin.filters.disable(
        parameters.group,
        parameters.name,
        reason=body.reason,
        broker=body.broker,
        cluster=body.cluster,
    )
    return _told(gateway, _running(done), done)


async def rollback(gateway: Gateway, parameters: FilterTarget, body: ChangeBody) -> FilterChanges:
    """Run the previous version again."""
    if parameters.preview:
        found = await _there(gateway, parameters, body)
        says = [
            f"{one.broker}: version {one.before_active} would replace version {one.active}."
            if one.before_active is not None
            else f"{one.broker}: there is no previous version."
            for one in found
        ]
        return _told(gateway, says, {}, preview=True)
    done = await gateway.admin.filters.rollback(
        parameters.group,
        parameters.name,
        reason=body.reason,
        broker=body.broker,
        cluster=body.cluster,
    )
    return _told(gateway, _running(done), done)


async def policy(gateway: Gateway, parameters: FilterTarget, body: PolicyBody) -> FilterChanges:
    """Set the policy for messages that the filter cannot evaluate."""
    text = f"if it fails on a message, {_MEANINGS[body.policy]}"
    if parameters.preview:
        return await _preview(gateway, parameters, body, text)
    done = await gateway.admin.filters.set_policy(
        parameters.group,
        parameters.name,
        body.policy,
        reason=body.reason,
        broker=body.broker,
        cluster=body.cluster,
    )
    says = [f"{where}: {text}." for where in sorted(done)]
    says += [
        f"{where}: version {one.version} is still quarantined ({one.quarantined})."
        for where, one in sorted(done.items())
        if one.quarantined is not None and body.policy is not FilterPolicy.PASS
    ]
    return _told(gateway, says, done)


async def delete(gateway: Gateway, parameters: FilterDeletion) -> FilterChanges:
    """Delete a filter with all its versions; the history keeps them."""
    target = FilterTarget(parameters.group, parameters.name, parameters.preview)
    where = ChangeBody(
        broker=parameters.broker, cluster=parameters.cluster, reason=parameters.reason
    )
    if parameters.preview:
        text = "it would be deleted with all versions; consumers that use it wait"
        return await _preview(gateway, target, where, text)
    done = await gateway.admin.filters.delete(
        parameters.group,
        parameters.name,
        reason=parameters.reason,
        broker=parameters.broker,
        cluster=parameters.cluster,
    )
    return _told(gateway, [f"{at}: it is deleted." for at in sorted(done)], done)


async def _there(gateway: Gateway, parameters: FilterTarget, body: ChangeBody) -> list[Filter]:
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
    return _told(gateway, [f"{one.broker}: {text}." for one in found], {}, preview=True)


def _running(done: Mapping[str, Changed]) -> list[str]:
    return [
        f"{where}: no version is enabled."
        if one.active is None
        else f"{where}: version {one.active} is enabled."
        for where, one in sorted(done.items())
    ]


def _told(
    gateway: Gateway, says: list[str], done: Mapping[str, Changed], *, preview: bool = False
) -> FilterChanges:
    items = [
        FilterChange(
            broker=where,
            version=one.version,
            active=one.active,
            created=one.created,
            quarantined=one.quarantined,
        )
        for where, one in sorted(done.items())
    ]
    return FilterChanges(preview=preview, says=says, items=items, as_of_ms=gateway.clock.now_ms())


async def trial(gateway: Gateway, parameters: FilterPath, body: TrialBody) -> TrialList:
    """The filter's results for the topic's last messages; no group's progress changes."""
    if body.source is not None and body.version is not None:
        raise BadRequest("give a source or a stored version, not both")
    found = await gateway.admin.filters.try_out(
        parameters.group,
        check_filter_name(parameters.name),
        body.topic,
        source=body.source or "",
        version=body.version,
        count=body.count,
        broker=body.broker or parameters.broker,
    )
    rows = [
        Tried(
            server=server,
            queue=one.queue_id,
            offset=one.offset,
            message_id=one.message_id,
            tag=one.tag,
            keys=one.keys,
            passed=one.passed,
            reason=one.reason,
            micros=one.micros,
        )
        for server, every in sorted(found.items())
        for one in every.messages
    ]
    trials = [
        Trial(
            server=server,
            seen=one.seen,
            passed=one.passed,
            failed=one.failed,
            micros=one.micros,
            start_micros=one.start_micros,
            failure=one.failure or None,
            reason=one.reason or None,
        )
        for server, one in sorted(found.items())
    ]
    return TrialList(items=rows, total=len(rows), as_of_ms=gateway.clock.now_ms(), trials=trials)


_CHAPTER = "Filters"


def _change(verb: str, name: str, about: str, handle: object, body: type) -> Operation:
    return Operation(
        "POST",
        f"/v1/filters/{{group}}/{{name}}/{verb}",
        name,
        about,
        _CHAPTER,
        handle,  # type: ignore[arg-type]  # each takes a FilterTarget and its body
        FilterChanges,
        FilterTarget,
        body,
        BodyKind.JSON,
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "PUT",
        "/v1/filters/{group}/{name}",
        "put_filter",
        "Upload a version of a filter; an identical source keeps its version.",
        _CHAPTER,
        put,
        FilterChanges,
        FilterTarget,
        UploadBody,
        BodyKind.JSON,
        call=True,
    ),
    _change("enable", "enable_filter", "Enable a version of a filter.", enable, EnableBody),
    _change("disable", "disable_filter", "Disable a filter; its group waits.", disable, ChangeBody),
    _change(
        "rollback",
        "roll_back_filter",
        ("Enable the previous version of a filter."),
        rollback,
        ChangeBody,
    ),
    _change(
        "policy",
        "set_filter_policy",
        "Set the failure policy of a filter: hold, skip or pass the message.",
        policy,
        PolicyBody,
    ),
    Operation(
        "DELETE",
        "/v1/filters/{group}/{name}",
        "delete_filter",
        "Delete a filter with all its versions; the history keeps them.",
        _CHAPTER,
        delete,
        FilterChanges,
        FilterDeletion,
    ),
    Operation(
        "POST",
        "/v1/filters/{group}/{name}/trials",
        "try_filter",
        "Dry run a filter on a topic's last messages; nothing is stored.",
        _CHAPTER,
        trial,
        TrialList,
        FilterPath,
        TrialBody,
        BodyKind.JSON,
    ),
)
