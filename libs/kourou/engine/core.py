"""The core of a broker: inputs in, effects out.

State: soft of its own (the queues that have advanced beyond the committed position); the handlers
document theirs.

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
from kourou.engine.roles.follower import StaticFollower
from kourou.engine.roles.quorum import QuorumFollower, QuorumLeader
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
from kourou.runtime.core import (
    ClientAnswered,
    Disconnected,
    LogWarning,
    Peer,
    Received,
    Reply,
    Tick,
)

_JOINT = frozenset({SendRecords, SendMessage, EndTransaction})
"""Requests that are stored together if several of a kind follow one another in a batch."""
_PROJECT = Project()
Handler = Callable[[int, Received, Any], list[Effect]]


class BrokerCore:
    """Implements kourou.runtime.core.Core for a broker."""

    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self._handlers = _handlers(parts)
        self._role = parts.leading or parts.following
        self._elected = parts.leading if isinstance(parts.leading, QuorumLeader) else None
        self._joint = _JOINT if parts.following is None else frozenset()
        self._unconfirmed = _unconfirmed_at_start(parts)

    def handles(self, request: type[Request]) -> bool:
        """Return whether this broker handles such requests."""
        return request in self._handlers

    def recall(self, now_ms: int, wall_ms: int) -> None:
        """Restore open transactions from the log; the first call, once."""
        if self.parts.following is not None:
            return
        self.parts.transactions.start(now_ms, wall_ms)
        self.parts.check_backs.start(now_ms)

    def start(
        self, now_ms: int, wall_ms: int, events: Sequence[Event], why: str, actor: str = "broker"
    ) -> list[Effect]:
        """Record what the broker decides for itself before it serves; not on a follower.

        The leader of a Raft group calls `lead` before, all others after it.
        """
        if self.parts.following is not None:
            return []
        opened = self._elected is None or self._elected.opened
        assert opened, "the record that opens an epoch is its first one"
        self.parts.recorder.record(events, Cause(actor, why), wall_ms)
        warnings = self.parts.delays.start(wall_ms)
        return [*self.parts.appends.take_done(), *warnings]

    def lead(self, wall_ms: int) -> list[Effect]:
        """Begin an epoch: once, for a Raft group or a log that has had followers."""
        if self.parts.leading is not None:
            self.parts.leading.start(wall_ms)
        return self.parts.appends.take_done()

    def stop(self, wall_ms: int) -> list[Effect]:
        """Record the progress that is not recorded yet; the last call before the store closes."""
        held = self.parts.quota_gate.release()
        if self.parts.following is not None:
            return held
        self.parts.transactions.commit_progress()
        return held + self._record_progress(self.parts.commits.record(), "stopping", wall_ms)

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> list[Effect]:
        """Handle everything that has arrived, in order."""
        effects: list[Effect] = []
        waiting: dict[type[Request], list[Received]] = {}
        if self._elected is not None:
            self._elected.look()
        if self.parts.access_gate.active:
            inputs = self._allowed(inputs, effects)
        if metered := self.parts.quota_gate.active:
            inputs = self.parts.quota_gate.admit(now_ms, inputs, effects)
        for item in inputs:
            if type(item) is Received and type(item.request) in self._joint:
                waiting.setdefault(type(item.request), []).append(item)
                continue
            if waiting:
                effects += self._together(now_ms, waiting)
                waiting = {}
            match item:
                case Received():
                    effects += self._received(now_ms, item)
                case Dispatched(queues, indexed):
                    self.parts.appends.projected(queues, indexed)
                    if self.parts.following is not None:
                        effects += self.parts.following.advanced(queues)
                    effects += self._advanced(now_ms, queues)
                case LogWritten(position):
                    self.parts.confirmations.written_to(position)
                    effects += self._confirmed(now_ms)
                case Flushed(position):
                    effects += self.parts.confirmations.flushed_to(position)
                    effects += self._confirmed(now_ms)
                case Confirmed(position):
                    effects += self._confirmed_by_group(now_ms, position)
                case Tick():
                    effects += self._tick(now_ms, item)
                case Disconnected(peer):
                    effects += self._disconnected(now_ms, peer)
                case SpaceChanged(allocated_end, full):
                    self.parts.appends.space(allocated_end, full=full)
                case DiskMeasured():
                    effects += self._measured(now_ms, item)
                case LogShrunk():
                    self.parts.retention.shrunk()
                case HistoryAnswered() | UsersRead():
                    effects += self._was_read(now_ms, item)
                case ClientAnswered():
                    effects += self._asked(self.parts.asking.answered(now_ms, item))
                case RegistrationDone(number):
                    effects += self.parts.topic_registration.known(number)
                case StoreFailed(reason):
                    self.parts.appends.fail(reason)
                    effects += self.parts.confirmations.fail(reason)
                case LeaderConnected() | Copied() | NotCopied():
                    effects += self._followed(now_ms, item)
                case Fenced(epoch):
                    if self._role is not None:
                        effects += self._role.outdone(epoch)
                case _:
                    assert_never(item)
        if waiting:
            effects += self._together(now_ms, waiting)
        if self._role is not None and self._role.active:
            effects += self._end_batch(now_ms)
        if self.parts.recorder.filters_end:
            effects += self.parts.filter_server_handler.tell()
        if self.parts.pulls.wait_for(self.parts.appends.take_targets()):
            effects.append(_PROJECT)
        effects += self.parts.confirmations.want_flush()
        paced = self.parts.quota_gate.pace(now_ms, effects) if metered else effects
        return self.parts.topic_registration.gate(paced)

    def _allowed(self, inputs: Sequence[Input], effects: list[Effect]) -> list[Input]:
        """Return the inputs without the requests that are refused; their replies go to `effects`.

        A change of the table takes effect after the batch that contains it.
        """
        allows = self.parts.access_gate.allows
        return [item for item in inputs if type(item) is not Received or allows(item, effects)]

    def _together(
        self, now_ms: int, waiting: Mapping[type[Request], Sequence[Received]]
    ) -> list[Effect]:
        """Handle sends and ends of transactions that directly follow each other, kind by kind.

        The kinds need no order among themselves: an end names a half message whose send has its
        reply already, and a client uses one of the two kinds of sends.
        """
        effects: list[Effect] = []
        for kind, requests in waiting.items():
            effects += self._of_a_kind(now_ms, kind, requests)
        return effects

    def _of_a_kind(
        self, now_ms: int, kind: type[Request], waiting: Sequence[Received]
    ) -> list[Effect]:
        """Handle requests of one kind: together where possible, else in turn."""
        if len(waiting) == 1:
            return self._received(now_ms, waiting[0])
        if kind is SendMessage:
            return self.parts.joint_singles.store(now_ms, waiting, self._received)
        if kind is EndTransaction:
            return self.parts.joint_ends.store(now_ms, waiting, self._received)
        effects: list[Effect] = []
        joint = self.parts.joint_sends
        for group in joint.groups(now_ms, waiting):
            stored = joint.store(now_ms, group)
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

    def _was_read(self, now_ms: int, item: HistoryAnswered | UsersRead) -> list[Effect]:
        if isinstance(item, UsersRead):
            return self._users_read(now_ms, item)
        return self._looked_back(now_ms, item)

    def _looked_back(self, now_ms: int, item: HistoryAnswered) -> list[Effect]:
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
        parts = self.parts
        if parts.following is not None or (self._elected is not None and self._elected.paused):
            return []
        warnings = parts.plain_acl_handler.import_users(item)
        decided = [*parts.appends.take_done(), *warnings]
        parts.topic_registration.number(now_ms, decided)
        return decided

    def _asked(self, decided: list[Effect]) -> list[Effect]:
        """Put the records that a client's reply caused before the other effects."""
        return [*self.parts.appends.take_done(), *decided] if decided else decided

    def _disconnected(self, now_ms: int, peer: Peer) -> list[Effect]:
        """Drop everything that depends on a closed connection."""
        parts = self.parts
        parts.pulls.drop_peer(peer)
        effects = parts.members.disconnected(peer)
        effects += self._asked(parts.asking.drop_peer(now_ms, peer))
        effects += parts.filter_server_handler.disconnected(peer)
        parts.topic_registration.drop_peer(peer)
        if self._role is not None:
            self._role.drop_peer(peer)
        return effects

    # -- replicas of the log ----------------------------------------------------------------------

    def _end_batch(self, now_ms: int) -> list[Effect]:
        """Ship records, reply, and notify readers that waited for a follower."""
        assert self._role is not None
        said = self._role.turn(now_ms)
        effects = [*self.parts.appends.take_done(), *said]
        return [*effects, *self._confirmed(now_ms)] if self._unconfirmed else effects

    def _followed(self, now_ms: int, item: LeaderConnected | Copied | NotCopied) -> list[Effect]:
        following = self.parts.following
        assert following is not None, "only a follower copies"
        if isinstance(item, Copied):
            following.copied(item.end)
            return []
        assert isinstance(following, StaticFollower), "a Raft group's bytes come by its own ways"
        match item:
            case LeaderConnected(peer, address):
                return following.connected(now_ms, peer, address)
            case NotCopied(end, reason):
                return following.not_copied(now_ms, end, reason)

    def _confirmed_by_group(self, now_ms: int, position: int) -> list[Effect]:
        effects = self.parts.confirmations.confirmed_to(position)
        if isinstance(self.parts.following, QuorumFollower):
            effects += self.parts.following.confirmed()
        return [*effects, *self._confirmed(now_ms)]

    # -- notifying readers --------------------------------------------------------------------

    def _advanced(self, now_ms: int, queues: Sequence[tuple[str, int, int]]) -> list[Effect]:
        confirmations = self.parts.confirmations
        if confirmations.confirmed >= confirmations.written and not self._unconfirmed:
            answers = self.parts.pulls.advanced(now_ms, queues)
            done = self.parts.appends.take_done()
            return [*done, *answers] if done else answers
        self._unconfirmed.append((confirmations.written, queues))
        return self._confirmed(now_ms)

    def _confirmed(self, now_ms: int) -> list[Effect]:
        confirmed = self.parts.confirmations.confirmed
        effects: list[Effect] = []
        ready = 0
        for end, queues in self._unconfirmed:
            if end > confirmed:
                break
            ready += 1
            effects += self.parts.pulls.advanced(now_ms, queues)
        if ready:
            del self._unconfirmed[:ready]
        return [*self.parts.appends.take_done(), *effects]

    # -- time ---------------------------------------------------------------------------------

    def _tick(self, now_ms: int, tick: Tick) -> list[Effect]:
        """Do what is due. Pulls that wait end when rights change: they are decided again.

        Filter servers are notified before that, so that theirs are not allowed as before.
        """
        ended: list[Effect] = self.parts.access_gate.counted(tick.wall_ms)
        if self.parts.access_gate.rights_changed(tick.wall_ms):
            ended += self.parts.filter_server_handler.rights_changed()
            ended += self.parts.pulls.release(now_ms)
        return ended + self._due(now_ms, tick)

    def _due(self, now_ms: int, tick: Tick) -> list[Effect]:
        parts, wall_ms = self.parts, tick.wall_ms
        if parts.following is not None:
            return self._follower_tick(now_ms)
        if parts.leading is not None:
            parts.leading.tick(now_ms, wall_ms)
        effects = parts.confirmations.expire(now_ms)
        if self._elected is not None and self._elected.paused:
            return effects + self._quiet_tick(now_ms)
        effects += parts.pulls.expire(now_ms)
        effects += parts.members.expire(now_ms)
        effects += parts.asking.expire(now_ms)
        effects += parts.topic_registration.expire(now_ms)
        effects += parts.lock_handler.expire(now_ms, wall_ms)
        effects += parts.filter_server_handler.expire(now_ms)
        effects += parts.check_backs.tick(now_ms, wall_ms)
        effects += parts.batch_handler.tick(now_ms, wall_ms)
        effects += parts.delays.tick(now_ms, tick)
        parts.repeats.expire(now_ms)
        parts.statistics.tick(now_ms)
        parts.transactions.commit_progress()
        # Records numbered in the meantime are taken here, in order, and go before every reply.
        return self._record_progress(parts.commits.due(now_ms), "", wall_ms) + effects

    def _follower_tick(self, now_ms: int) -> list[Effect]:
        """Run a follower's timers; timers that would write do not run."""
        parts = self.parts
        assert parts.following is not None
        return parts.following.tick(now_ms) + self._quiet_tick(now_ms)

    def _quiet_tick(self, now_ms: int) -> list[Effect]:
        """Run the timers that write nothing."""
        parts = self.parts
        effects = parts.pulls.expire(now_ms)
        effects += parts.members.expire(now_ms)
        effects += parts.asking.expire(now_ms)
        effects += parts.topic_registration.expire(now_ms)
        effects += parts.filter_server_handler.expire(now_ms)
        parts.statistics.tick(now_ms)
        return effects

    def _measured(self, now_ms: int, look: DiskMeasured) -> list[Effect]:
        """Write the record of a deletion before requesting the deletion."""
        self.parts.statistics.note_hour(look.hour)
        if self.parts.following is not None:
            return self.parts.retention.watched(look)
        confirmed = self.parts.confirmations.confirmed
        if self._elected is not None and look.deletable_end > confirmed:
            # A replica that truncates uncommitted records continues from the records before them.
            look = replace(look, deletable_end=confirmed)
        try:
            decided = self.parts.retention.measured(now_ms, look)
            if look.segments:
                decided += self.parts.delays.keep_above(look.segments[-1].end, look.wall_ms)
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


def _unconfirmed_at_start(parts: BrokerParts) -> list[tuple[int, Sequence[tuple[str, int, int]]]]:
    """Return queues with messages that a Raft group has not committed: readers wait for them."""
    end = parts.confirmations.written
    if parts.confirmations.confirmed >= end:
        return []
    view = parts.view
    targets = [(topic, queue_id) for topic in view.topics() for queue_id in view.queue_ids(topic)]
    ranges = [(target, view.queue_range(*target)) for target in targets]
    return [(end, [(*target, span[1]) for target, span in ranges if span is not None])]


def _handlers(parts: BrokerParts) -> Mapping[type[Request], Handler]:
    """Return the handlers; any other request gets the reply REQUEST_CODE_NOT_SUPPORTED."""
    return {
        SendRecords: parts.sending.records,
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
        **parts.group_figures.handlers(),
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
        **parts.beginning.handlers(),
        **parts.log_handler.handlers(),
        **parts.replica_handler.handlers(),
        **(parts.leading.handlers() if parts.leading is not None else {}),
        **(parts.following.handlers() if parts.following is not None else {}),
    }
