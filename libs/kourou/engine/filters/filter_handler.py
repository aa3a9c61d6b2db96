"""Requests about filters: consumers upload them, operators change them, filter servers fetch them.

State: soft: recently recorded skips, because a consumer that restarts requests the same messages,
and its filter server the same skip; how many sources may be checked now.

The reply to a change is sent when the change is committed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kourou.access.model import ResourceType
from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.filters import filter_table as rules
from kourou.engine.filters.filter_servers import FilterServerTable
from kourou.engine.groups.member_handler import EnsureGroup
from kourou.errors import BadRequest, Code, NoPermission, Rejected, TopicNotFound
from kourou.events.control_events import Event, FilterMessagesSkipped
from kourou.filtering.python_rules import CheckAllowance, check_source
from kourou.model.filter import FilterAction, FilterState, check_filter_name
from kourou.model.limits import (
    FILTER_AUTHOR_LENGTH_MAX,
    FILTER_NOTE_LENGTH_MAX,
    FILTER_SKIPS_REMEMBERED_MAX,
    FILTER_SOURCE_BYTES_MAX,
    STATE_BYTES_MAX,
)
from kourou.model.names import check_group
from kourou.protocol.bodies.filter_bodies import encode_filters
from kourou.protocol.messages.filter_server import (
    ChangeFilter,
    FilterResponse,
    GetFilters,
    GetFiltersResponse,
    PutFilter,
    RecordFilterSkip,
)
from kourou.protocol.request import Request
from kourou.runtime import Received, Reply

_WHITE = frozenset("\t\n\r\f")


class FilterHandler:
    """Handles the requests about filters."""

    def __init__(
        self,
        context: BrokerContext,
        servers: FilterServerTable,
        ensure_group: EnsureGroup,
        gate: AccessGate,
    ) -> None:
        self._control = context.control
        self._pending_replies = context.pending_replies
        self._servers = servers
        self._policy = context.policy
        self._ensure_group = ensure_group
        self._gate = gate
        self._skips: dict[tuple[str, int, str, int, tuple[int, ...]], None] = {}
        self._allowance = CheckAllowance()

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            PutFilter: self.put,
            ChangeFilter: self.change,
            GetFilters: self.reply_with_filters,
            RecordFilterSkip: self.skip,
        }

    # -- uploads ------------------------------------------------------------------------------

    def put(self, now_ms: int, received: Received, request: PutFilter) -> list[Effect]:
        """Store a version of a filter (30021); a known version stays as it is.

        A consumer's upload may be the first request of its group, so it creates the group as a
        first pull does.
        """
        if not self._policy.filter_upload:
            raise NoPermission(
                f"broker {self._policy.broker_name} does not accept filters",
                hint="set filterUploadEnable=true to allow uploads",
            )
        group, name = check_group(request.consumer_group), check_filter_name(request.name)
        filters = self._control.filters
        source, digest = _source(b"".join(received.body), request.sha256)
        known = rules.version_of_source(filters, group, name, digest)
        if known is None:
            self._allowance.take(now_ms, sum(map(len, received.body)))
            check_source(source, name)
        events = rules.decide_upload(
            filters,
            group,
            name,
            source,
            digest,
            author=_line("author", request.author, FILTER_AUTHOR_LENGTH_MAX),
            note=_line("note", request.note, FILTER_NOTE_LENGTH_MAX),
            enable=request.enable and self._policy.filter_auto_enable,
        )
        if group not in self._control.groups:
            self._ensure_group(group, received, "first upload of a filter")
        number = known or rules.next_version(filters, group, name)
        return self._decided(
            now_ms, received, events, (group, name), number, request.note, created=known is None
        )

    # -- changes ------------------------------------------------------------------------------

    def change(self, now_ms: int, received: Received, request: ChangeFilter) -> list[Effect]:
        """Enable, roll back, disable, quarantine or delete a filter, or set its policy (30022)."""
        filters, group, name = self._control.filters, request.consumer_group, request.name
        before = rules.existing(filters, group, name)
        number = request.version
        match request.action:
            case FilterAction.ENABLE:
                events = rules.decide_enable(filters, group, name, number)
                number = before.newest if number is None else number
            case FilterAction.ROLLBACK:
                events = rules.decide_rollback(filters, group, name)
                number = before.before_active
            case FilterAction.DISABLE:
                events = rules.decide_disable(filters, group, name)
                number = before.active
            case FilterAction.POLICY:
                events = rules.decide_policy(filters, group, name, request.policy)
            case FilterAction.QUARANTINE:
                server = self._servers.address_of(received.to.peer)
                events = rules.decide_quarantine(
                    filters, group, name, number, request.reason, server
                )
                number = before.active if number is None else number
            case FilterAction.DELETE:
                events = rules.decide_delete(filters, group, name)
            case _:
                raise BadRequest(
                    f"{request.action!r} is not an operation on filters",
                    hint=f"one of {', '.join(FilterAction)}",
                )
        number = number or before.active or before.newest or 0
        reason = rules.check_reason(request.reason) or f"{request.action} a filter"
        return self._decided(now_ms, received, events, before.key, number, reason)

    def _decided(
        self,
        now_ms: int,
        received: Received,
        events: Sequence[Event],
        key: tuple[str, str],
        number: int,
        reason: str,
        *,
        created: bool = False,
    ) -> list[Effect]:
        """Record the events; the pending reply shows the filter as it is afterwards."""

        def header() -> FilterResponse:
            after = self._control.filters.table.get(key)
            return FilterResponse(
                version=number,
                active=None if after is None else after.active,
                created=created,
                filters_version=self._control.filters.version,
                quarantined=None if after is None else after.quarantined.get(number),
            )

        return self._pending_replies.decided(now_ms, received, events, header=header, reason=reason)

    # -- skipping messages --------------------------------------------------------------------

    def skip(self, now_ms: int, received: Received, request: RecordFilterSkip) -> list[Effect]:
        """Record messages to skip (30025); the filter server skips them after the reply."""
        if self._control.topics.get(request.topic) is None:
            raise TopicNotFound(f"topic {request.topic} does not exist")
        if request.queue_id < 0:
            raise BadRequest(f"queue id {request.queue_id} is negative")
        skip = FilterMessagesSkipped(
            request.consumer_group,
            request.name,
            request.version,
            request.topic,
            request.queue_id,
            tuple(request.offsets),
            rules.check_reason(request.reason),
            self._servers.address_of(received.to.peer),
        )
        events = rules.decide_skip(self._control.filters, skip)
        asked = (skip.aggregate, skip.version, skip.topic, skip.queue_id, skip.offsets)
        if asked in self._skips:
            events = []
        effects = self._pending_replies.decided(now_ms, received, events, reason="a filter failed")
        self._skips.pop(asked, None)
        self._skips[asked] = None
        if len(self._skips) > FILTER_SKIPS_REMEMBERED_MAX:
            del self._skips[next(iter(self._skips))]
        return effects

    # -- queries ------------------------------------------------------------------------------

    def reply_with_filters(
        self, _now_ms: int, received: Received, request: GetFilters
    ) -> list[Effect]:
        """Reply with filters of all groups, a group, or one (30023), and with filter servers.

        Those that the sender may not get are left out.
        """
        filters = self._control.filters
        if request.name:
            found = [rules.existing(filters, request.consumer_group, request.name)]
        elif request.consumer_group:
            found = filters.of(request.consumer_group)
        else:
            found = [filters.table[key] for key in sorted(filters.table)]
        if request.version is not None and not request.name:
            raise BadRequest("a version was given without the name of its filter")
        sees = self._gate.sees(received)
        states = [
            _for_request(one, request)
            for one in found
            if sees(ResourceType.FILTER, f"{one.group}/{one.name}")
        ]
        if request.with_source:
            size_bytes = sum(
                each.size_bytes
                for one in states
                for each in one.versions
                if each.source is not None
            )
            if len(states) > 1 and 2 * size_bytes > STATE_BYTES_MAX:
                raise BadRequest(
                    f"the sources have {size_bytes} bytes, more than one reply can carry",
                    hint="request one filter at a time",
                )
        body = encode_filters(states, self._servers.addresses_for(received.to.peer))
        header = GetFiltersResponse(filters_version=filters.version)
        return [Reply(received.to, header=header, body=(body,))]

    def statistics(self) -> dict[str, int]:
        """Return counts for operators."""
        filters = self._control.filters
        return {
            "filters": len(filters),
            "versions": sum(len(one.versions) for one in filters),
            "active": sum(one.active is not None for one in filters),
            "quarantined": sum(len(one.quarantined) for one in filters),
            "skipped": sum(one.skipped for one in filters),
            "source_bytes": filters.source_bytes,
            "servers": len(self._servers),
        }


def _source(body: bytes, sha256: str) -> tuple[str, str]:
    """Return the checked text of a source, and its SHA-256. Raises BadRequest."""
    if not 0 < len(body) <= FILTER_SOURCE_BYTES_MAX:
        raise BadRequest(
            f"the source has {len(body)} bytes; 1 to {FILTER_SOURCE_BYTES_MAX} are allowed"
        )
    digest = hashlib.sha256(body).hexdigest()
    if digest != sha256.lower():
        raise BadRequest("the source does not match its SHA-256", hint="upload it again")
    try:
        source = body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the source is not UTF-8: {error}") from error
    for char in set(source):
        if (char < " " and char not in _WHITE) or char == "\x7f":
            raise BadRequest(f"the source contains the control character {char!r}")
    return source, digest


def _line(what: str, text: str, length_max: int) -> str:
    """Return a text as one line, to be kept with a version. Raises BadRequest."""
    line = " ".join(text.split())
    if len(line) > length_max or not line.isprintable():
        raise BadRequest(f"the {what} must be at most {length_max} printable characters")
    return line


def _for_request(one: FilterState, request: GetFilters) -> FilterState:
    """Return a filter for a reply: at most one of its versions has its source."""
    bare = one.bare()
    if not request.with_source:
        return bare
    number = one.active if request.version is None else request.version
    if number is None:
        return bare
    wanted = one.version(number)
    if wanted is None:
        raise Rejected(
            f"version {number} of filter {one.name} of group {one.group} is not stored",
            code=Code.QUERY_NOT_FOUND,
        )
    versions = [wanted if each.version == number else each for each in bare.versions]
    return replace(bare, versions=tuple(versions))
