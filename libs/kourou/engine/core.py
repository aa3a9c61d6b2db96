"""The core of a broker: inputs in, effects out.

State: none of its own; the role and the handlers document theirs.

The core has one door: `handle` and the calls of a role session for its start and end. `view` is
what others may read.

The order of effects is the order in which they must be executed: an append comes before the reply
that depends on it. One flush at the end of a batch serves all requests that wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

from kourou.engine.effects import Append, Effect, Project
from kourou.engine.inputs import (
    Confirmed,
    Copied,
    DiskMeasured,
    Dispatched,
    Fenced,
    Flushed,
    HistoryAnswered,
    Input,
    LeaderConnected,
    LogShrunk,
    LogWritten,
    NotCopied,
    RegistrationDone,
    SpaceChanged,
    StoreFailed,
    UsersRead,
)
from kourou.engine.parts import BrokerParts
from kourou.engine.start import Start
from kourou.engine.view import CoreView
from kourou.errors import Code, KourouError
from kourou.events.control_events import Cause, Event
from kourou.protocol.messages.pulls import (
    GetAllDelayOffset,
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    PullMessage,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from kourou.protocol.messages.sends import EndTransaction, SendMessage, SendRecords
from kourou.protocol.request import Request
from kourou.protocol.table import not_supported
from kourou.runtime import (
    ClientAnswered,
    Disconnected,
    LogWarning,
    Peer,
    Received,
    Reply,
    Tick,
)

_COALESCED = frozenset({SendRecords, SendMessage, EndTransaction})
"""Requests that are stored together if several of a kind follow one another in a batch."""
_PROJECT = Project()
_NEVER_MS = 2**62
Handler = Callable[[int, Received, Any], list[Effect]]


class BrokerCore:
    """Implements kourou.runtime.Core for a broker.

    `parts` belong to the engine and its tests; others read `view`.
    """

    def __init__(self, start: Start) -> None:
        self.parts = parts = BrokerParts(start)
        self.role = parts.role
        self.view = CoreView(parts)
        self._handlers = _handlers(parts)
        self._coalesced = _COALESCED if self.role.leads else frozenset()

    def handles(self, request: type[Request]) -> bool:
        """Return whether this broker handles such requests."""
        return request in self._handlers

    # -- start and end ------------------------------------------------------------------------

    def recall(self, now_ms: int, wall_ms: int) -> None:
        """Restore open transactions from the log; the first call, once."""
        if self.role.leads:
            self.parts.transactions.start(now_ms, wall_ms)
            self.parts.check_backs.start(now_ms)

    def start(
        self, now_ms: int, wall_ms: int, events: Sequence[Event], why: str, actor: str = "broker"
    ) -> list[Effect]:
        """Record what the broker decides for itself before it serves; not on a follower.

        The leader of a Raft group calls `lead` before, all others after it.
        """
        if not self.role.leads:
            return []
        assert self.role.opened, "the record that opens an epoch is its first one"
        self.parts.recorder.record(events, Cause(actor, why), wall_ms)
        warnings = self.parts.delays.start(wall_ms)
        return [*self.parts.appends.take_done(), *warnings]

    def lead(self, wall_ms: int) -> list[Effect]:
        """Begin an epoch: once, for a Raft group or a log that has had followers."""
        self.role.start(wall_ms)
        return self.parts.appends.take_done()

    def lose_leadership(self, reason: str) -> list[Effect]:
        """Refuse writes and fail pending replies, because another replica may lead."""
        return self.role.lost(reason)

    def release(self) -> list[Effect]:
        """Reply to parked pulls, and to what waits for a quota, when the session ends."""
        answers = [*self.parts.quota_gate.release(), *self.parts.pulls.expire(_NEVER_MS)]
        return [*self.parts.appends.take_done(), *answers]

    def counted_last(self, wall_ms: int) -> list[Effect]:
        """Return which rights requests needed since the last time; called before `stop`."""
        return self.parts.access_gate.counted_last(wall_ms)

    def stop(self, wall_ms: int) -> list[Effect]:
        """Record the progress that is not recorded yet; the last call before the store closes."""
        held = self.parts.quota_gate.release()
        if not self.role.leads:
            return held
        self.parts.transactions.commit_progress()
        return held + self._record_progress(self.parts.commits.record(), "stopping", wall_ms)

    def flushed_after_stop(self, position: int) -> None:
        """Note the last flush: the progress of delays below it may go to the files."""
        self.parts.delays.flushed_to(position)

    # -- inputs -------------------------------------------------------------------------------

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> list[Effect]:
        """Handle everything that has arrived, in order."""
        effects: list[Effect] = []
        batch: dict[type[Request], list[Received]] = {}
        role = self.role
        if role.may_pause:
            role.check_pause()
        if self.parts.access_gate.examines:
            inputs = self._allowed(inputs, effects)
        if metered := self.parts.quota_gate.active:
            inputs = self.parts.quota_gate.admit(now_ms, inputs, effects)
        for item in inputs:
            if type(item) is Received and type(item.request) in self._coalesced:
                batch.setdefault(type(item.request), []).append(item)
                continue
            if batch:
                effects += self._coalesce(now_ms, batch)
                batch = {}
            match item:
                case Received():
                    effects += self._received(now_ms, item)
                case Dispatched(queues, indexed):
                    self.parts.appends.projected(queues, indexed)
                    effects += role.advanced(now_ms, queues)
                case LogWritten(position):
                    self.parts.confirmations.written_to(position)
                    effects += role.committed(now_ms)
                case Flushed(position):
                    effects += self.parts.confirmations.flushed_to(position)
                    effects += role.committed(now_ms)
                case Tick():
                    effects += self._tick(now_ms, item)
                case Disconnected(peer):
                    effects += self._disconnected(now_ms, peer)
                case SpaceChanged(allocated_end, full):
                    self.parts.appends.space(allocated_end, full=full)
                case DiskMeasured():
                    effects += self._measured(now_ms, item)
                case LogShrunk():
                    self.parts.retention.deletion_ended()
                case HistoryAnswered():
                    effects += self._history_answered(now_ms, item)
                case UsersRead():
                    effects += self._users_read(now_ms, item)
                case ClientAnswered():
                    answered = self.parts.client_requests.answered(now_ms, item)
                    effects += self._after_appends(answered)
                case RegistrationDone(number):
                    effects += self.parts.topic_registration.completed(number)
                case StoreFailed(reason):
                    self.parts.appends.fail(reason)
                    effects += self.parts.confirmations.fail(reason)
                case LeaderConnected() | Copied() | NotCopied() | Confirmed() | Fenced():
                    effects += role.handle(now_ms, item)
                case _:
                    assert_never(item)
        if batch:
            effects += self._coalesce(now_ms, batch)
        if role.active:
            effects += role.end_batch(now_ms)
        if self.parts.recorder.filters_end:
            effects += self.parts.filter_server_handler.notify_changes()
        if self.parts.pulls.wait_for(self.parts.appends.take_targets()):
            effects.append(_PROJECT)
        effects += self.parts.confirmations.take_flush()
        paced = self.parts.quota_gate.pace(now_ms, effects) if metered else effects
        return self.parts.topic_registration.gate(paced)

    def _allowed(self, inputs: Sequence[Input], effects: list[Effect]) -> list[Input]:
        """Return the inputs without the requests that are refused; their replies go to `effects`.

        A change of the table takes effect after the batch that contains it.
        """
        allows = self.parts.access_gate.allows
        return [item for item in inputs if type(item) is not Received or allows(item, effects)]

    def _coalesce(
        self, now_ms: int, batch: Mapping[type[Request], Sequence[Received]]
    ) -> list[Effect]:
        """Handle sends and ends of transactions that directly follow each other, kind by kind.

        The kinds need no order among themselves: an end names a half message whose send has its
        reply already, and a client uses one of the two kinds of sends.
        """
        effects: list[Effect] = []
        for kind, requests in batch.items():
            effects += self._coalesce_kind(now_ms, kind, requests)
        return effects

    def _coalesce_kind(
        self, now_ms: int, kind: type[Request], requests: Sequence[Received]
    ) -> list[Effect]:
        """Handle requests of one kind: together where possible, else in turn."""
        if len(requests) == 1:
            return self._received(now_ms, requests[0])
        if kind is SendMessage:
            return self.parts.coalesced_single_sends.store(now_ms, requests, self._received)
        if kind is EndTransaction:
            return self.parts.coalesced_ends.store(now_ms, requests, self._received)
        effects: list[Effect] = []
        sends = self.parts.coalesced_sends
        for group in sends.groups(now_ms, requests):
            stored = sends.store(now_ms, group)
            if stored is None:
                for received in group:
                    effects += self._received(now_ms, received)
            else:
                effects += stored
        return effects

    def _received(self, now_ms: int, received: Received) -> list[Effect]:
        if received.deadline_ms and received.deadline_ms <= now_ms:
            # Its sender no longer waits, and would not expect the request to take effect now.
            return [
                Reply(
                    received.to,
                    Code.DEADLINE_PASSED,
                    "the request arrived after its deadline; nothing was done",
                )
            ]
        handler = self._handlers.get(type(received.request))
        if handler is None:
            return [
                Reply(
                    received.to,
                    Code.REQUEST_CODE_NOT_SUPPORTED,
                    not_supported(received.request.code),
                )
            ]
        try:
            decided = handler(now_ms, received, received.request)
        except KourouError as error:
            self.parts.traffic.refuse(error.wire_code)
            noted = self.parts.access_gate.take_refused()
            decided = [*noted, Reply(received.to, error.wire_code, str(error))]
        # Written before the reply, and written even if the decision failed halfway.
        done = self.parts.appends.take_done()
        if received.to.traced:
            for effect in done:
                if isinstance(effect, Append):
                    effect.to = received.to
        decided = [*done, *decided]
        self.parts.topic_registration.number(now_ms, decided, received.to)
        return decided

    def _history_answered(self, now_ms: int, item: HistoryAnswered) -> list[Effect]:
        """Continue a request with the reply of the event database."""
        received = item.received
        if received.deadline_ms and received.deadline_ms <= now_ms:
            late = "the event database replied after the request's deadline; nothing was done"
            return [Reply(received.to, Code.DEADLINE_PASSED, late)]
        try:
            decided = self.parts.history.answered(now_ms, item)
        except KourouError as error:
            self.parts.traffic.refuse(error.wire_code)
            noted = self.parts.access_gate.take_refused()
            decided = [*noted, Reply(received.to, error.wire_code, str(error))]
        decided = [*self.parts.appends.take_done(), *decided]
        self.parts.topic_registration.number(now_ms, decided, received.to)
        return decided

    def _users_read(self, now_ms: int, item: UsersRead) -> list[Effect]:
        """Import users. They come again, so a broker that cannot record them now need not wait."""
        if not self.role.writable:
            return []
        parts = self.parts
        warnings = parts.plain_acl_handler.import_users(item)
        decided = [*parts.appends.take_done(), *warnings]
        parts.topic_registration.number(now_ms, decided)
        return decided

    def _after_appends(self, decided: list[Effect]) -> list[Effect]:
        """Put the records that a client's reply caused before the other effects."""
        return [*self.parts.appends.take_done(), *decided] if decided else decided

    def _disconnected(self, now_ms: int, peer: Peer) -> list[Effect]:
        """Drop everything that depends on a closed connection."""
        parts = self.parts
        parts.pulls.drop_peer(peer)
        effects = parts.members.disconnected(peer)
        effects += self._after_appends(parts.client_requests.drop_peer(now_ms, peer))
        effects += parts.filter_server_handler.disconnected(peer)
        parts.topic_registration.drop_peer(peer)
        self.role.drop_peer(peer)
        return effects

    # -- time ---------------------------------------------------------------------------------

    def _tick(self, now_ms: int, tick: Tick) -> list[Effect]:
        """Do what is due. Pulls that wait end when rights change: they are decided again.

        Filter servers are notified before that, so that theirs are not allowed as before.
        """
        ended: list[Effect] = self.parts.access_gate.counted(tick.wall_ms)
        if self.parts.access_gate.rights_changed(tick.wall_ms):
            ended += self.parts.filter_server_handler.rights_changed()
            ended += self.parts.pulls.release(now_ms)
        return ended + self._run_timers(now_ms, tick)

    def _run_timers(self, now_ms: int, tick: Tick) -> list[Effect]:
        """Run the timers; those that would write do not run while the role cannot write."""
        parts, wall_ms = self.parts, tick.wall_ms
        effects = self.role.tick(now_ms, wall_ms)
        effects += parts.pulls.expire(now_ms)
        effects += parts.members.expire(now_ms)
        effects += parts.client_requests.expire(now_ms)
        effects += parts.topic_registration.expire(now_ms)
        effects += parts.filter_server_handler.expire(now_ms)
        parts.statistics.tick(now_ms)
        if not self.role.writable:
            return effects
        effects += parts.lock_handler.expire(now_ms, wall_ms)
        effects += parts.check_backs.tick(now_ms, wall_ms)
        effects += parts.batch_handler.tick(now_ms, wall_ms)
        effects += parts.delays.tick(now_ms, tick)
        effects += parts.storage_quotas.tick(now_ms)
        parts.deduplication.expire(now_ms)
        parts.transactions.commit_progress()
        # Records numbered in the meantime are taken here, in order, and go before every reply.
        return self._record_progress(parts.commits.due(now_ms), "", wall_ms) + effects

    def _measured(self, now_ms: int, disk: DiskMeasured) -> list[Effect]:
        """Write the record of a deletion before requesting the deletion."""
        self.parts.statistics.note_hour(disk.hour)
        if not self.role.leads:
            return self.parts.retention.update_disk_level(disk)
        disk = replace(disk, deletable_end=self.role.deletable_to(disk.deletable_end))
        try:
            decided = self.parts.retention.measured(now_ms, disk)
            if disk.segments:
                decided += self.parts.delays.keep_above(disk.segments[-1].end, disk.wall_ms)
        except KourouError as error:
            decided = [
                LogWarning(
                    "retention-failed: deletable log segments cannot be determined: %(error)s",
                    {"error": error},
                )
            ]
        return [*self.parts.appends.take_done(), *decided]

    def _record_progress(self, events: Sequence[Event], why: str, wall_ms: int) -> list[Effect]:
        """Record what fits; the rest stays in effect here, and in consumerOffset.json."""
        warnings: list[Effect] = []
        try:
            self.parts.recorder.record(events, Cause("broker", why), wall_ms)
        except KourouError as error:
            warnings.append(
                LogWarning(
                    "progress-unrecorded: consumer progress is not recorded: %(error)s",
                    {"error": error},
                )
            )
        return [*self.parts.appends.take_done(), *warnings]


def _handlers(parts: BrokerParts) -> Mapping[type[Request], Handler]:
    """Return the handlers; any other request gets the reply REQUEST_CODE_NOT_SUPPORTED."""
    return {
        SendRecords: parts.send_handler.records,
        SendMessage: parts.single_sends.send,
        PullMessage: parts.pulls.answer,
        QueryConsumerOffset: parts.offsets.committed,
        UpdateConsumerOffset: parts.offsets.commit,
        GetMaxOffset: parts.offsets.maximum,
        GetMinOffset: parts.offsets.minimum,
        SearchOffsetByTimestamp: parts.offsets.by_time,
        GetAllDelayOffset: parts.delays.all_offsets,
        GetEarliestMsgStoreTime: parts.offsets.earliest,
        **parts.queries.handlers(),
        **parts.send_back.handlers(),
        **parts.members.handlers(),
        **parts.lock_handler.handlers(),
        **parts.transactions.handlers(),
        **parts.batch_handler.handlers(),
        **parts.topic_handler.handlers(),
        **parts.group_handler.handlers(),
        **parts.lag_handler.handlers(),
        **parts.statistics.handlers(),
        **parts.client_request_handler.handlers(),
        **parts.reply_handler.handlers(),
        **parts.broker_handler.handlers(),
        **parts.access_handler.handlers(),
        **parts.quota_gate.handlers(),
        **parts.plain_acl_handler.handlers(),
        **parts.filter_handler.handlers(),
        **parts.filter_server_handler.handlers(),
        **parts.retention.handlers(),
        **parts.history.handlers(),
        **parts.bootstrap_handler.handlers(),
        **parts.log_handler.handlers(),
        **parts.role.handlers(),
    }
