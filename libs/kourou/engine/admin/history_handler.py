"""Operators' requests about the past: history, stateAt, audit, undo.

State: none. The data path never waits for any of these.

An event that is still in the log is undone without the database, unless it deleted progress.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kourou.access.model import Action, Need, ResourceType
from kourou.access.requirements import need_of_topic
from kourou.authorization.access_uses import UsesFound, UsesQuestion, changed_table
from kourou.authorization.audit import AuditFound, AuditPlace, AuditQuestion
from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.admin.broker_handler import BrokerHandler
from kourou.engine.admin.history import (
    BeginningFound,
    EventFound,
    EventQuestion,
    HistoryFound,
    HistoryQuestion,
    Question,
    StateFound,
    StateQuestion,
    drops_progress,
    events_body,
)
from kourou.engine.admin.log_handler import reply_beginning
from kourou.engine.admin.topic_handler import TopicHandler
from kourou.engine.admin.undo import UndoContext, decide_undo
from kourou.engine.context import BrokerContext
from kourou.engine.control import time_of_next
from kourou.engine.effects import AskHistory, Effect
from kourou.engine.groups.group_handler import GroupHandler
from kourou.engine.inputs import HistoryAnswered
from kourou.engine.pulls.pull_handler import PullHandler
from kourou.errors import BadRequest, Code, DecodeError, Rejected
from kourou.events.control_events import (
    AccessEventBase,
    Cause,
    Event,
    FilterDeleted,
    FilterRestored,
    GroupDeleted,
    GroupPut,
    OffsetsReset,
    Recorded,
    TopicDeleted,
    TopicPut,
    decode_record_body,
)
from kourou.model.limits import (
    AUDIT_READ_LINES_MAX,
    HISTORY_EVENTS_MAX,
    HISTORY_WAIT_MS_MAX,
    PULL_SIZE_BYTES_MAX,
)
from kourou.model.names import CONTROL_TOPIC, check_aggregate, check_event_types, check_stateful
from kourou.protocol.bodies.access_bodies import (
    AuditDecision,
    decode_policy_changes,
    encode_tried,
)
from kourou.protocol.messages.access import (
    GetAudit,
    GetAuditResponse,
    TryPolicies,
    TryPoliciesResponse,
)
from kourou.protocol.messages.broker_admin import (
    GetHistory,
    GetHistoryResponse,
    GetStateAt,
    GetStateAtResponse,
    Undo,
    UndoResponse,
)
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.request import Request
from kourou.runtime import Received, Reply
from kourou.settings.registry import SettingsRegistry

ANSWER_WAY_MS = 500
"""Subtracted from a request's deadline, so that the reply arrives before the client gives up."""

_SUBJECTS = {
    "group": ResourceType.GROUP,
    "progress": ResourceType.GROUP,
    "filter": ResourceType.FILTER,
}
"""What the decision about an aggregate is about, besides topics; of all others, the cluster."""


class HistoryHandler:
    """Handles queries about the past, and undo."""

    def __init__(
        self,
        context: BrokerContext,
        pulls: PullHandler,
        registry: SettingsRegistry,
        topics: TopicHandler,
        groups: GroupHandler,
        broker: BrokerHandler,
        gate: AccessGate,
    ) -> None:
        self._control = context.control
        self._commits = context.commits
        self._confirmations = context.confirmations
        self._appends = context.appends
        self._pending_replies = context.pending_replies
        self._pulls = pulls
        self._view = context.view
        self._registry = registry
        self._topics = topics
        self._groups = groups
        self._broker = broker
        self._gate = gate

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            GetHistory: self.history,
            GetStateAt: self.state_at,
            GetAudit: self.audit,
            TryPolicies: self.try_policies,
            Undo: self.undo,
        }

    # -- queries ------------------------------------------------------------------------------

    def history(self, now_ms: int, received: Received, request: GetHistory) -> list[Effect]:
        """Query events of one aggregate or of all, the newest first (30011)."""
        if not 0 < request.max_count <= HISTORY_EVENTS_MAX:
            raise BadRequest(
                f"max_count is {request.max_count}; it must be between 1 and {HISTORY_EVENTS_MAX}"
            )
        question = HistoryQuestion(
            check_aggregate(request.aggregate),
            request.max_count,
            request.before_offset,
            request.until_ms,
            check_event_types(request.types),
            hide_users=not self._gate.may_see_users(received),
        )
        return self._ask(now_ms, received, question, self._control.next_offset)

    def state_at(self, now_ms: int, received: Received, request: GetStateAt) -> list[Effect]:
        """Query the state at a time, after an event, or now (30012)."""
        if request.at_ms is not None and request.offset is not None:
            raise BadRequest("give a time or an event number, not both")
        if request.offset is not None:
            self._check_there(request.offset)
        kind, _, name = request.aggregate.partition("/")
        if kind == "user":
            self._gate.need(received, Need(ResourceType.USER, name, (Action.GET,)))
        question = StateQuestion(check_stateful(request.aggregate), request.at_ms, request.offset)
        return self._ask(now_ms, received, question, self._control.next_offset)

    def audit(self, now_ms: int, received: Received, request: GetAudit) -> list[Effect]:
        """Query refused requests and allowed changes, the newest first (30068)."""
        if not 0 < request.max_count <= AUDIT_READ_LINES_MAX:
            raise BadRequest(
                f"max_count is {request.max_count}; it must be between 1 and {AUDIT_READ_LINES_MAX}"
            )
        question = AuditQuestion(
            request.user,
            request.request,
            request.since_ms,
            request.until_ms,
            request.max_count,
            _audit_place(request.before),
            _audit_decision(request.decision),
        )
        return self._ask(now_ms, received, question, 0)

    def try_policies(self, now_ms: int, received: Received, request: TryPolicies) -> list[Effect]:
        """Try changes of policies on the requests of the last days (30079)."""
        access = self._control.access
        changes = decode_policy_changes(b"".join(received.body))
        question = UsesQuestion(
            access.table, changed_table(access, changes), received.wall_ms, request.since_ms
        )
        return self._ask(now_ms, received, question, 0)

    def answered(self, now_ms: int, item: HistoryAnswered) -> list[Effect]:
        """Handle the result of the event database. Raises its error."""
        if item.error is not None:
            raise item.error
        received, found = item.received, item.found
        match found:
            case HistoryFound():
                header = GetHistoryResponse(
                    before_offset=found.before,
                    begin_offset=found.lost_before,
                    end_offset=found.end,
                )
                return [Reply(received.to, header=header, body=(found.body,))]
            case StateFound():
                state = GetStateAtResponse(
                    next_offset=found.end, at_ms=found.at_ms, begin_offset=found.lost_before
                )
                return [Reply(received.to, header=state, body=(found.body,))]
            case AuditFound():
                before = ":".join(str(one) for place in found.before or () for one in place)
                page = GetAuditResponse(before=before)
                return [Reply(received.to, header=page, body=(found.body,))]
            case UsesFound():
                tried = found.tried
                result = TryPoliciesResponse(
                    requests=tried.requests,
                    refused=tried.refused,
                    untried=tried.untried,
                    since_ms=found.since_ms,
                    more=tried.more,
                )
                return [Reply(received.to, header=result, body=(encode_tried(tried.uses),))]
            case EventFound():
                return self._decide(now_ms, received, found)
            case BeginningFound():
                return reply_beginning(received, found)
            case None:
                raise AssertionError("neither an answer nor an error")

    def _ask(self, now_ms: int, received: Received, question: Question, upto: int) -> list[Effect]:
        wait_ms = HISTORY_WAIT_MS_MAX
        if received.deadline_ms:
            left_ms = received.deadline_ms - now_ms
            wait_ms = max(1, min(wait_ms, left_ms - min(ANSWER_WAY_MS, left_ms // 2)))
        return [AskHistory(received, question, upto, wait_ms)]

    # -- undo ---------------------------------------------------------------------------------

    def undo(self, now_ms: int, received: Received, request: Undo) -> list[Effect]:
        """Decide the opposite of an event (30013); the reply waits until that is committed."""
        self._check_there(request.offset)
        Cause("", request.reason)  # raises for an invalid reason, before any query or change
        recorded = self._logged(request.offset)
        if recorded is not None and not drops_progress(recorded.event):
            return self._decide(now_ms, received, EventFound(recorded))
        return self._ask(now_ms, received, EventQuestion(request.offset), request.offset + 1)

    def _check_there(self, offset: int) -> None:
        end = self._control.next_offset
        if not 0 <= offset < end:
            raise Rejected(
                f"event {offset} does not exist; the newest event is {end - 1}",
                code=Code.QUERY_NOT_FOUND,
            )

    def _logged(self, offset: int) -> Recorded | None:
        """Return the event from the log; None if only the event store may have it."""
        span = self._view.queue_range(CONTROL_TOPIC, 0)
        if span is None or not span[0] <= offset < span[1]:
            return None
        read = self._view.read_queue(
            CONTROL_TOPIC,
            0,
            offset,
            max_messages=1,
            max_bytes=PULL_SIZE_BYTES_MAX,
            codes=None,
            below=self._confirmations.confirmed,
        )
        for record in read.records:
            stored = decode_record(record)
            if stored.offset == offset:
                try:
                    return decode_record_body(
                        stored.body, offset=stored.offset, position=stored.position
                    )
                except DecodeError:
                    return None  # the event store may have an intact copy
        return None

    def _decide(self, now_ms: int, received: Received, found: EventFound) -> list[Effect]:
        request, recorded = received.request, found.recorded
        assert isinstance(request, Undo), request
        if isinstance(recorded.event, AccessEventBase):
            self._gate.need_administrator(received)
        undoing = self._undoing(request, found)
        self._check_rights(received, undoing)
        events = [*undoing, *self._broker.entailed(undoing)]
        first = self._control.next_offset
        reason = request.reason or f"undo of event {recorded.offset}"
        body = events_body(self._as_recorded(first, events, received, reason, recorded.offset))
        effects: list[Effect] = []
        try:
            effects += self._pending_replies.decided(
                now_ms,
                received,
                events,
                header=UndoResponse(first_offset=first, next_offset=first + len(events)),
                body=(body,),
                reason=reason,
                undoes=recorded.offset,
            )
        finally:
            # Recorded changes take effect even if the log had no room for all of them.
            self._broker.put_into_force(events)
        effects += self._broker.advertised(events)
        for event in events:
            match event:
                case TopicPut(topic):
                    effects += self._pulls.topic_changed(now_ms, topic.name)
                case TopicDeleted(before):
                    effects += self._pulls.topic_changed(now_ms, before.name)
                case OffsetsReset():
                    effects += self._groups.moved(event, received.wall_ms)
                case _:
                    pass
        return effects

    def _check_rights(self, received: Received, undoing: Sequence[Event]) -> None:
        """Raise NoPermission without the right to each change that undoes the event."""
        for event in undoing:
            kind, _, name = event.aggregate.partition("/")
            action = _action(event)
            if kind == "topic":
                self._gate.need(received, need_of_topic(name, action))
            elif kind in _SUBJECTS:
                self._gate.need(received, Need(_SUBJECTS[kind], name, (action,)))

    def _undoing(self, request: Undo, found: EventFound) -> list[Event]:
        event = found.recorded.event
        kind, _, name = event.aggregate.partition("/")
        topic = name if kind == "topic" else ""
        context = UndoContext(
            self._topics.rules,
            self._registry,
            self._commits,
            forced=request.force,
            unread=self._topics.unread(topic),
            ends=self._appends.ends(topic) if topic else {},
            dropped=found.dropped,
        )
        return decide_undo(self._control, event, context)

    def _as_recorded(
        self, first: int, events: Sequence[Event], received: Received, reason: str, undoes: int
    ) -> list[Recorded]:
        """Return the events as `Recorder` is about to write them, for the reply."""
        cause = self._pending_replies.cause(received, reason, undoes)
        at_ms = max(self._appends.store_ms, time_of_next(self._control, received.wall_ms))
        return [
            Recorded(
                first + number,
                -1,
                at_ms,
                cause.actor,
                cause.reason,
                cause.trace_id,
                event,
                cause.undoes,
            )
            for number, event in enumerate(events)
        ]


def _audit_place(text: str) -> tuple[AuditPlace, AuditPlace] | None:
    """Read where a search of the audit begins. Raises BadRequest."""
    if not text:
        return None
    parts = text.split(":")
    if len(parts) != 4 or not all(
        one.isascii() and one.isdigit() and len(one) < 19 for one in parts
    ):
        raise BadRequest(f"{text[:40]!r} is not the `before` of a reply", hint="begin without one")
    file, offset, other_file, other_offset = map(int, parts)
    return (file, offset), (other_file, other_offset)


def _audit_decision(text: str) -> AuditDecision | None:
    """Read which lines of the audit are wanted; None is all. Raises BadRequest."""
    if not text:
        return None
    try:
        return AuditDecision(text)
    except ValueError:
        known = ", ".join(AuditDecision)
        raise BadRequest(f"{text[:40]!r} is not a decision", hint=f"one of {known}") from None


def _action(event: Event) -> Action:
    """The action that an event results from."""
    match event:
        case TopicPut(before=None) | GroupPut(before=None) | FilterRestored():
            return Action.CREATE
        case TopicDeleted() | GroupDeleted() | FilterDeleted():
            return Action.DELETE
        case _:
            return Action.UPDATE
