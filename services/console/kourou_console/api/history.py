"""Control events of brokers, states at a given time, reverting events, and the audit.

Every broker has its own history, in which events are numbered from 0. A page over several brokers
is ordered by time; its cursor contains the next number for each broker. `refusal` names the events
that can never be reverted, `effect` what reverting another one does.

The audit of a broker is no part of its history: a file of refused requests and allowed changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Annotated, Any

import msgspec
from aiohttp import web

from kourou.client.admin.history import HistoryEvent, HistoryPage
from kourou.errors import BadRequest, Code, KourouError, Rejected
from kourou.model.limits import (
    ACCESS_USES_DAYS,
    AUDIT_READ_LINES_MAX,
    CONSOLE_HISTORY_PAGES_MAX,
    HISTORY_EVENTS_MAX,
    POLICY_CHANGES_MAX,
)
from kourou.model.names import is_system_group
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.access_bodies import (
    AuditDecision,
    AuditLine,
    PolicyChange,
    PolicyChangeKind,
)
from kourou.protocol.bodies.route_bodies import ClusterInfo
from kourou.protocol.messages.access import GetAudit
from kourou_console.api.brokers import BrokerChange
from kourou_console.gateway import Gateway
from kourou_console.http.responses import ALWAYS, disposition
from kourou_console.lists import (
    Done,
    Listing,
    Missing,
    Name,
    Preview,
    Reason,
    answers,
    brokers_of,
    view_from,
    why,
)
from kourou_console.operation import Chapter, NoParameters
from kourou_console.topic_kinds import TopicKind, kind_of

OPERATIONS = Chapter("History")
AUDIT_OPERATIONS = Chapter("Audit")

EVENTS = 100
EventNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

TOPICS = frozenset({"TopicPut", "TopicDeleted"})
GROUPS = frozenset({"GroupPut", "GroupDeleted"})
SKIPPED = "FilterMessagesSkipped"
UNDONE = frozenset(
    {
        *TOPICS,
        *GROUPS,
        *("SettingChanged", "OffsetsReset"),
        *("FilterUploaded", "FilterEnabled", "FilterDisabled", "FilterPolicySet"),
        *("FilterQuarantined", "FilterReleased", "FilterDeleted", "FilterRestored"),
    }
)
"""Types of events that brokers can revert."""


def refusal(
    event_type: str,
    name: str,
    *,
    created: bool,
    brokers: Collection[str] = (),
    clusters: Collection[str] = (),
) -> str | None:
    """Why an event can never be reverted; None if its broker may revert it.

    `name` is that of the topic or group; `created`: it did not exist before the event.
    """
    if event_type == SKIPPED:
        return "Skipped messages are not restored: reset the group's offsets instead."
    if event_type not in UNDONE:
        return (
            f"A {event_type} event only records what happened: changes of topics, groups, "
            "settings, offsets and filters can be reverted."
        )
    if event_type in TOPICS and kind_of(name, brokers, clusters).kind is TopicKind.SYSTEM:
        return f"The topic {name} is a system topic; it cannot be changed or deleted."
    if event_type in GROUPS and created and is_system_group(name):
        return f"The group {name} is a system group; it cannot be deleted."
    return None


def effect(event_type: str, fields: Mapping[str, Any]) -> str:
    """The effect of reverting an event, as a sentence; `fields` are those of the event."""
    before, version = fields.get("before"), fields.get("version")
    match event_type:
        case "TopicPut" if before is None:
            return "It did not exist before: it is deleted with its messages, only with force."
        case "GroupPut" if before is None:
            return "It did not exist before: it is deleted."
        case "SettingChanged" if before is None:
            return "The setting returns to the value of the broker's file, or the default."
        case "OffsetsReset":
            return "The group resumes at its offsets before the reset."
        case "FilterUploaded":
            return f"Version {version} is deleted, if the filter has no other, and the filter too."
        case "FilterEnabled" if before is None:
            return "No version is enabled, as before: consumers that use the filter wait."
        case "FilterEnabled" | "FilterDisabled":
            return f"Version {before} is enabled again."
        case "FilterPolicySet":
            return "The previous policy applies again."
        case "FilterQuarantined":
            return f"The quarantine of version {version} ends."
        case "FilterReleased":
            return f"Version {version} is quarantined again."
        case "FilterDeleted":
            return "The filter is restored with all its versions."
        case "FilterRestored":
            return "The filter is deleted again."
        case _:
            return "The previous state is restored, unless it has changed since."


class ControlEventView(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `fields` are its own, with the value `before` it where there was one.

    `undoes` is the number of the event that it reverts; `final` is why it cannot be reverted,
    null: it can.
    """

    broker: str
    offset: int
    at_ms: int
    aggregate: str
    kind: str
    name: str
    type: str
    fields: dict[str, Any]
    actor: str
    reason: str
    trace_id: str
    undoes: int | None
    final: str | None


class HistoryStart(msgspec.Struct, frozen=True):
    """The number of the first event that the broker still has; 0: it has all."""

    broker: str
    offset: int


class HistoryList(Listing[ControlEventView], frozen=True, kw_only=True):
    """Control events, newest first; `cursor` requests the next page."""

    cursor: str | None
    begins_at: list[HistoryStart]


class EventFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of events.

    `kind` is topic, group, setting, progress, filter and others, `name` what follows it (`orders`);
    `type` may be repeated (`TopicPut`); `until_ms` excludes later events.
    """

    broker: Name | None = None
    kind: Name | None = None
    name: Name | None = None
    type: Annotated[list[Name], msgspec.Meta(max_length=32)] = []
    until_ms: Moment | None = None
    cursor: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=HISTORY_EVENTS_MAX)] = EVENTS


class BrokerHistoryParams(msgspec.Struct, frozen=True, kw_only=True):
    """The same filters for one broker."""

    broker: Name
    kind: Name | None = None
    name: Name | None = None
    type: Annotated[list[Name], msgspec.Meta(max_length=32)] = []
    until_ms: Moment | None = None
    cursor: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=HISTORY_EVENTS_MAX)] = EVENTS


class StateWanted(msgspec.Struct, frozen=True, kw_only=True):
    """At a time, after an event, or now. `aggregate` like topic/orders; "" is everything.

    The broker may be omitted if there is only one.
    """

    broker: Name | None = None
    aggregate: Annotated[str, msgspec.Meta(max_length=512)] = ""
    at_ms: Moment | None = None
    offset: EventNumber | None = None


class StateView(msgspec.Struct, frozen=True, kw_only=True):
    """What held: plain JSON, null if the thing did not exist. `at_ms` is that of the last event."""

    broker: str
    aggregate: str
    value: Any
    next_offset: int
    at_ms: int
    as_of_ms: int


class UndoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which event; `force` even if what it changed has changed since, or messages are lost."""

    offset: EventNumber
    broker: Name | None = None
    reason: Reason = ""
    force: bool = False


class Undone(Done, frozen=True, kw_only=True):
    """The reverted event, and the event that reverted it."""

    undone: ControlEventView | None
    items: list[ControlEventView]


@OPERATIONS.get("/v1/history", "history", needs=())
async def history(gateway: Gateway, parameters: EventFilters) -> HistoryList:
    """Configuration changes of all brokers or one: who, when, why; newest first, paged."""
    info = await gateway.admin.cluster.info()
    brokers = await brokers_of(gateway, parameters.broker)
    before = _before(parameters.cursor, brokers)
    asking = [name for name in brokers if before.get(name, 1) != 0]

    async def look(name: str) -> tuple[list[HistoryEvent], HistoryPage]:
        return await _page(gateway, name, parameters, before.get(name))

    pages, missing = await answers(asking, look)
    found = [one for decisions, _ in pages.values() for one in decisions]
    found.sort(key=lambda one: (-one.at_ms, one.broker_name, -one.offset))
    shown = found[: parameters.count]
    then: dict[str, int] = {name: at for name, at in before.items() if name not in pages}
    for name, (decisions, page) in pages.items():
        shown_offsets = [one.offset for one in shown if one.broker_name == name]
        if len(shown_offsets) < len(decisions):
            then[name] = (
                min(shown_offsets)
                if shown_offsets
                else (before.get(name) or decisions[0].offset + 1)
            )
        else:
            then[name] = page.before or 0
    more = any(then.values()) and bool(pages)
    return HistoryList(
        items=[_event_view(one, info) for one in shown],
        total=None,
        truncated=more,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
        cursor=",".join(f"{name}:{then[name]}" for name in sorted(then)) if more else None,
        begins_at=[HistoryStart(name, page.begins_at) for name, (_, page) in sorted(pages.items())],
    )


async def _page(
    gateway: Gateway, broker: str, parameters: EventFilters, before: int | None
) -> tuple[list[HistoryEvent], HistoryPage]:
    """Up to `count` events of one broker. For a kind it reads on: brokers filter by name only."""
    aggregate = ""
    if parameters.name is not None:
        if parameters.kind is None:
            raise BadRequest("a name requires its kind", hint="kind=topic&name=orders")
        aggregate = f"{parameters.kind}/{parameters.name}"
    found: list[HistoryEvent] = []
    for _ in range(CONSOLE_HISTORY_PAGES_MAX):
        page = await gateway.admin.history.of(
            aggregate,
            broker=broker,
            before=before,
            until_ms=parameters.until_ms,
            types=parameters.type,
            count_max=parameters.count,
        )
        wanted = [
            one
            for one in page.decisions
            if parameters.kind is None or one.aggregate.startswith(f"{parameters.kind}/")
        ]
        found += wanted[: parameters.count - len(found)]
        if len(wanted) and len(found) == parameters.count and found[-1] is not page.decisions[-1]:
            return found, HistoryPage(found, found[-1].offset, page.begins_at)
        if page.before is None or len(found) == parameters.count:
            return found, page
        before = page.before
    return found, page


def _before(cursor: str, brokers: list[str]) -> dict[str, int]:
    """The cursor's position for each broker; 0: nothing is left there. Raises BadRequest."""
    found: dict[str, int] = {}
    for part in filter(None, cursor.split(",")):
        name, _, text = part.rpartition(":")
        if not name or not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise BadRequest("unknown cursor", hint="start without one")
        if name in brokers:
            found[name] = int(text)
    return found


def _event_view(one: HistoryEvent, info: ClusterInfo) -> ControlEventView:
    kind, _, name = one.aggregate.partition("/")
    return view_from(
        ControlEventView,
        one,
        broker=one.broker_name,
        kind=kind,
        name=name,
        final=_final(one, info),
    )


def _final(one: HistoryEvent, info: ClusterInfo) -> str | None:
    return refusal(
        one.type,
        one.aggregate.partition("/")[2],
        created=one.fields.get("before") is None,
        brokers=info.brokers,
        clusters=info.clusters,
    )


@OPERATIONS.get("/v1/history/state", "state_at", needs=())
async def state(gateway: Gateway, parameters: StateWanted) -> StateView:
    """The configuration at a time (`at_ms`) or after an event (`offset`); without either, now."""
    found = await gateway.admin.history.state_at(
        parameters.aggregate,
        broker=parameters.broker,
        at_ms=parameters.at_ms,
        offset=parameters.offset,
    )
    return view_from(StateView, found, broker=found.broker_name, as_of_ms=gateway.clock.now_ms())


@OPERATIONS.post("/v1/history/undo", "undo")
async def undo(gateway: Gateway, parameters: Preview, body: UndoBody) -> Undone:
    """Revert a change. `preview=true` shows the change and the resulting state; changes that cannot
    be reverted (`final`) are refused.
    """
    admin = gateway.admin.history
    info = await gateway.admin.cluster.info()
    found = await admin.of(broker=body.broker, before=body.offset + 1, count_max=1)
    event = next((one for one in found.decisions if one.offset == body.offset), None)
    final = None if event is None else _final(event, info)
    if final is not None:
        raise Rejected(final)
    items: list[HistoryEvent] = []
    if parameters.preview:
        if event is not None and event.aggregate.startswith("filter/"):
            await _check_filter(gateway, event)
    else:
        items = await admin.undo(
            body.offset, broker=body.broker, reason=body.reason, force=body.force
        )
    return Undone(
        preview=parameters.preview,
        says=_preview_lines(body.offset, event, items, preview=parameters.preview),
        undone=None if event is None else _event_view(event, info),
        items=[_event_view(one, info) for one in items],
        as_of_ms=gateway.clock.now_ms(),
        missing=[]
        if event is not None
        else [Missing(f"event {body.offset}", "it is no longer stored")],
    )


def _preview_lines(
    offset: int, event: HistoryEvent | None, items: list[HistoryEvent], *, preview: bool
) -> list[str]:
    will = "would be" if preview else "is"
    if event is None:
        return [f"Event {offset} {will} reverted."]
    says = [f"{event.type} of {event.aggregate} (event {offset}) {will} reverted."]
    says.append(effect(event.type, event.fields))
    says += [f"Event {one.offset}: {one.type} of {one.aggregate}." for one in items]
    return says


async def _check_filter(gateway: Gateway, event: HistoryEvent) -> None:
    """Raises what the broker would: the filter must exist, or must not if it is to be restored."""
    group, _, name = event.aggregate.removeprefix("filter/").partition("/")
    found = await gateway.admin.filters.list(group, name, broker=event.broker_name)
    there = any(found.values())
    if event.type == "FilterDeleted":
        if there:
            raise Rejected(f"group {group} has another filter {name} (delete that one first)")
    elif not there:
        raise Rejected(f"group {group} has no filter {name}", code=Code.QUERY_NOT_FOUND)


@OPERATIONS.get("/v1/brokers/{broker}/history", "broker_history", needs=())
async def broker_history(gateway: Gateway, parameters: BrokerHistoryParams) -> HistoryList:
    """Configuration changes at one broker."""
    return await history(gateway, EventFilters(**msgspec.structs.asdict(parameters)))


@OPERATIONS.post("/v1/brokers/{broker}/undo", "broker_undo")
async def broker_undo(gateway: Gateway, parameters: BrokerChange, body: UndoBody) -> Undone:
    """Revert a change at one broker."""
    if body.broker is not None and body.broker != parameters.broker:
        raise BadRequest("the path names another broker than the body")
    there = msgspec.structs.replace(body, broker=parameters.broker)
    return await undo(gateway, Preview(parameters.preview), there)


# -- audit ----------------------------------------------------------------------------------------

NOTHING_LEFT = "0:0"
"""The place of a broker in a cursor when all its lines were read."""

_encode = msgspec.json.Encoder().encode


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`count` requests of a user up to `at_ms` that were refused, or allowed to change something.

    `need` is the missing right, or the right to the change; `by` is what decided. `handled` but
    refused: decisions are only observed. `console` sent it on behalf of the user from `source`.
    `door` is remoting, zeromq, or http for a console; "" if it is not known.
    """

    broker: str
    at_ms: int
    decision: AuditDecision
    user: str
    source: str
    request: str
    need: str
    by: str
    count: int
    handled: bool
    console: str
    door: str


class AuditList(Listing[AuditEntry], frozen=True, kw_only=True):
    """Lines of the audit, newest first; `cursor` requests the next page."""

    cursor: str | None


class AuditFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of the audit: `user` and `request` (`SendMessage`) are exact, `until_ms` excluded."""

    broker: Name | None = None
    user: Name | None = None
    request: Name | None = None
    decision: AuditDecision | None = None
    since_ms: Moment | None = None
    until_ms: Moment | None = None

    @property
    def question(self) -> GetAudit:
        """The request to a broker, for its first page."""
        return GetAudit(
            user=self.user or "",
            request=self.request or "",
            since_ms=self.since_ms,
            until_ms=self.until_ms,
            decision="" if self.decision is None else self.decision.value,
        )


class AuditParams(AuditFilters, frozen=True, kw_only=True):
    """The same filters, page by page."""

    cursor: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=AUDIT_READ_LINES_MAX)] = EVENTS


@AUDIT_OPERATIONS.get("/v1/audit", "audit", needs=())
async def audit(gateway: Gateway, parameters: AuditParams) -> AuditList:
    """Refused requests and allowed changes, newest first: up to `count` of each broker, paged. A
    page may be empty and not the last. With users, it needs List on users, as administrators have.
    """
    brokers = await brokers_of(gateway, parameters.broker)
    before = _places(parameters.cursor, brokers)

    async def look(name: str) -> tuple[list[AuditLine], str]:
        return await _audit_page(gateway, name, parameters, before.get(name, ""))

    asking = [name for name in brokers if before.get(name) != NOTHING_LEFT]
    pages, missing = await answers(asking, look)
    items = [_audit_entry(name, one) for name, (lines, _) in pages.items() for one in lines]
    items.sort(key=lambda one: -one.at_ms)
    then = before | {name: place or NOTHING_LEFT for name, (_, place) in pages.items()}
    more = bool(pages) and any(place != NOTHING_LEFT for place in then.values())
    return AuditList(
        items=items,
        total=None,
        truncated=more,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
        cursor=",".join(f"{name}:{then[name]}" for name in sorted(then)) if more else None,
    )


@AUDIT_OPERATIONS.get(
    "/v1/audit/export", "export_audit", needs=(), media_type="application/x-ndjson"
)
async def export_audit(
    gateway: Gateway, parameters: AuditFilters, request: web.BaseRequest
) -> web.StreamResponse:
    """All refused requests and allowed changes as JSON lines, broker by broker, the newest of each
    first. The last line has `end`: true and the number; if it is missing, the export is incomplete.
    """
    brokers = await brokers_of(gateway, parameters.broker)
    pages = _audit_pages(gateway, brokers, parameters)
    page = await anext(pages, None)  # a refusal is the response, not the end of an export
    headers = {
        **ALWAYS,
        "Content-Type": "application/x-ndjson",
        "Content-Disposition": disposition("audit.jsonl"),
    }
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    count = 0
    error: str | None = None
    try:
        while page is not None:
            if page:
                await response.write(b"".join(_encode(one) + b"\n" for one in page))
            count += len(page)
            page = await anext(pages, None)
    except KourouError as failure:
        error = str(failure)
    await response.write(_encode({"end": error is None, "count": count, "error": error}) + b"\n")
    await response.write_eof()
    return response


class TriedRequests(msgspec.Struct, frozen=True, kw_only=True):
    """`count` requests of a user from one network, the last at `last_ms`.

    `need` is the right that decides, `by` the policy or role. `source` is one of the last
    addresses, null through a console. `was_allowed` is what the present policies do with them.
    """

    broker: str
    user: str
    network: str
    source: str | None
    need: str
    by: str
    allowed: bool
    was_allowed: bool
    count: int
    last_ms: int


class PolicyTrials(Listing[TriedRequests], frozen=True, kw_only=True):
    """What would be refused, then what would be allowed and is not now.

    `requests` were counted since `since_ms` (0: none), and `refused` of them would be. `untried`
    were counted without the rights that they need.
    """

    requests: int
    refused: int
    untried: int
    since_ms: int


class TriedChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change as of `kourou user allow`, `deny` or `revoke`; `resource` "" revokes all."""

    user: Name
    change: PolicyChangeKind
    resource: Annotated[str, msgspec.Meta(max_length=255)] = ""
    actions: Annotated[list[str], msgspec.Meta(max_length=16)] = []
    networks: Annotated[list[str], msgspec.Meta(max_length=100)] = []
    until_ms: Moment | None = None


class PolicyTry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of policies in their order, on the requests of the last `days`, of all brokers.

    Without changes, the present policies are tried.
    """

    changes: Annotated[list[TriedChange], msgspec.Meta(max_length=POLICY_CHANGES_MAX)] = []
    days: Annotated[int, msgspec.Meta(ge=1, le=ACCESS_USES_DAYS - 1)] = ACCESS_USES_DAYS - 1


@AUDIT_OPERATIONS.post("/v1/policies/try", "try_policies", needs=())
async def try_policies(gateway: Gateway, parameters: NoParameters, body: PolicyTry) -> PolicyTrials:
    """What changes of policies would refuse, and allow, of the requests of the last days. Nothing
    is changed. With users, it needs List on users, as administrators have.
    """
    now_ms = gateway.clock.now_ms()
    changes = [
        PolicyChange(
            user=one.user,
            change=one.change,
            resource=one.resource,
            actions=tuple(one.actions),
            networks=tuple(one.networks),
            until_ms=one.until_ms,
        )
        for one in body.changes
    ]
    found = await gateway.admin.users.try_policies(changes, since_ms=now_ms - body.days * DAY_MS)
    items = [
        view_from(TriedRequests, use, broker=name)
        for name, trial in found.items()
        for use in trial.uses
    ]
    items.sort(key=lambda one: (one.allowed, -one.count))
    return PolicyTrials(
        items=items,
        total=None,
        truncated=any(trial.more for trial in found.values()),
        as_of_ms=now_ms,
        missing=[Missing(name, why(error)) for name, error in found.missing.items()],
        requests=sum(trial.requests for trial in found.values()),
        refused=sum(trial.refused for trial in found.values()),
        untried=sum(trial.untried for trial in found.values()),
        since_ms=min((one.since_ms for one in found.values() if one.since_ms), default=0),
    )


async def _audit_page(
    gateway: Gateway, broker: str, wanted: AuditParams, before: str
) -> tuple[list[AuditLine], str]:
    """Up to `count` lines of one broker, and the place of the next ones; "" if there are none."""
    asked = msgspec.structs.replace(wanted.question, before=before)
    found: list[AuditLine] = []
    for _ in range(CONSOLE_HISTORY_PAGES_MAX):
        most = wanted.count - len(found)
        lines, asked = await gateway.admin.users.audit_page(broker, asked, most)
        found += lines
        if not asked.before or len(found) == wanted.count:
            break
    return found, asked.before


async def _audit_pages(
    gateway: Gateway, brokers: list[str], wanted: AuditFilters
) -> AsyncIterator[list[AuditEntry]]:
    """Every line of every broker. Raises KourouError for the first that cannot be read."""
    for broker in brokers:
        asked = wanted.question
        while True:
            lines, asked = await gateway.admin.users.audit_page(broker, asked, AUDIT_READ_LINES_MAX)
            yield [_audit_entry(broker, one) for one in lines]
            if not asked.before:
                break


def _places(cursor: str, brokers: list[str]) -> dict[str, str]:
    """The cursor's place at each broker, which the broker checks. Raises BadRequest."""
    found: dict[str, str] = {}
    for part in filter(None, cursor.split(",")):
        name, _, place = part.partition(":")
        if not name or not place:
            raise BadRequest("unknown cursor", hint="start without one")
        if name in brokers:
            found[name] = place
    return found


def _audit_entry(broker: str, line: AuditLine) -> AuditEntry:
    return view_from(AuditEntry, line, broker=broker)
