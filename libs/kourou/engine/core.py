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

from kourou.engine.desks import Desks
from kourou.engine.effects import Append, Effect, Project
from kourou.engine.inputs import (
    Announced,
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
    NotCopied,
    SpaceChanged,
    StoreFailed,
    Written,
)
from kourou.engine.roles.follower import Following
from kourou.engine.roles.quorum_follower import QuorumFollowing
from kourou.engine.roles.quorum_leader import QuorumLeading
from kourou.errors import Code, KourouError
from kourou.events.control_events import Cause, Event
from kourou.protocol.messages.offsets import (
    GetAllDelayOffset,
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from kourou.protocol.messages.pulling import PullMessage
from kourou.protocol.messages.sending import SendMessage, SendRecords
from kourou.protocol.messages.transactions import EndTransaction
from kourou.protocol.request import Request
from kourou.protocol.table import not_supported
from kourou.runtime.effects import LogWarning, Reply
from kourou.runtime.inputs import ClientAnswered, Disconnected, Received, Tick
from kourou.runtime.peer import Peer

_JOINT = frozenset({SendRecords, SendMessage, EndTransaction})
"""Requests that are stored together if several of a kind follow one another in a batch."""
_PROJECT = Project()
Handler = Callable[[int, Received, Any], list[Effect]]


class BrokerCore:
    """Implements kourou.runtime.core.Core for a broker."""

    def __init__(self, desks: Desks) -> None:
        self.desks = desks
        self._handlers = _handlers(desks)
        self._members = desks.leading or desks.following
        self._elected = desks.leading if isinstance(desks.leading, QuorumLeading) else None
        self._joint = _JOINT if desks.following is None else frozenset()
        self._unconfirmed = _unconfirmed_at_start(desks)

    def handles(self, request: type[Request]) -> bool:
        """Return whether this broker handles such requests."""
        return request in self._handlers

    def recall(self, now_ms: int, wall_ms: int) -> None:
        """Restore open transactions from the log; the first call, once."""
        if self.desks.following is not None:
            return
        self.desks.transactions.start(now_ms, wall_ms)
        self.desks.check_backs.start(now_ms)

    def start(self, now_ms: int, wall_ms: int, events: Sequence[Event], why: str) -> list[Effect]:
        """Record what the broker decides for itself before it serves; not on a follower.

        The leader of a Raft group calls `lead` before, all others after it.
        """
        if self.desks.following is not None:
            return []
        opened = self._elected is None or self._elected.opened
        assert opened, "the record that opens an epoch is its first one"
        self.desks.recorder.record(events, Cause("broker", why), wall_ms)
        warnings = self.desks.delays.start(wall_ms)
        return [*self.desks.appends.take_done(), *warnings]

    def lead(self, wall_ms: int) -> list[Effect]:
        """Begin an epoch: once, for a Raft group or a log that has had followers."""
        if self.desks.leading is not None:
            self.desks.leading.start(wall_ms)
        return self.desks.appends.take_done()

    def stop(self, wall_ms: int) -> list[Effect]:
        """Record the progress that is not recorded yet; the last call before the store closes."""
        if self.desks.following is not None:
            return []
        self.desks.transactions.settle()
        return self._record_progress(self.desks.commits.record(), "stopping", wall_ms)

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> list[Effect]:
        """Handle everything that has arrived, in order."""
        effects: list[Effect] = []
        waiting: dict[type[Request], list[Received]] = {}
        if self._elected is not None:
            self._elected.look()
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
                    self.desks.appends.projected(queues, indexed)
                    if self.desks.following is not None:
                        effects += self.desks.following.grown(queues)
                    effects += self._grown(now_ms, queues)
                case Written(position):
                    self.desks.confirmations.written_to(position)
                    effects += self._confirmed(now_ms)
                case Flushed(position):
                    effects += self.desks.confirmations.flushed_to(position)
                    effects += self._confirmed(now_ms)
                case Confirmed(position):
                    effects += self._confirmed_by_group(now_ms, position)
                case Tick():
                    effects += self._tick(now_ms, item)
                case Disconnected(peer):
                    effects += self._disconnected(now_ms, peer)
                case SpaceChanged(allocated_end, full):
                    self.desks.appends.space(allocated_end, full=full)
                case DiskMeasured():
                    effects += self._measured(now_ms, item)
                case LogShrunk():
                    self.desks.retention.shrunk()
                case HistoryAnswered():
                    effects += self._looked_back(now_ms, item)
                case ClientAnswered():
                    effects += self._asked(self.desks.asking.answered(now_ms, item))
                case Announced(number):
                    effects += self.desks.announcing.known(number)
                case StoreFailed(reason):
                    self.desks.appends.fail(reason)
                    effects += self.desks.confirmations.fail(reason)
                case LeaderConnected() | Copied() | NotCopied():
                    effects += self._followed(now_ms, item)
                case Fenced(epoch):
                    if self.desks.leading is not None:
                        effects += self.desks.leading.outdone(epoch)
                    elif isinstance(self.desks.following, Following):
                        self.desks.following.heard_of(epoch)
                case _:
                    assert_never(item)
        if waiting:
            effects += self._together(now_ms, waiting)
        if self._members is not None and self._members.active:
            effects += self._with_members(now_ms)
        if self.desks.recorder.filters_end:
            effects += self.desks.filter_server_desk.tell()
        if self.desks.pulls.wait_for(self.desks.appends.take_lanes()):
            effects.append(_PROJECT)
        effects += self.desks.confirmations.want_flush()
        return self.desks.announcing.gate(effects)

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
            return self.desks.joint_singles.store(now_ms, waiting, self._received)
        if kind is EndTransaction:
            return self.desks.joint_ends.store(now_ms, waiting, self._received)
        effects: list[Effect] = []
        joint = self.desks.joint_sends
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
            self.desks.traffic.refuse(error.wire_code)
            decided = [Reply(received.to, error.wire_code, str(error))]
        # Written before the reply, and written even if the decision failed halfway.
        done = self.desks.appends.take_done()
        if received.to.traced:
            for effect in done:
                if isinstance(effect, Append):
                    effect.to = received.to
        decided = [*done, *decided]
        self.desks.announcing.number(now_ms, decided, received.to)
        return decided

    def _looked_back(self, now_ms: int, item: HistoryAnswered) -> list[Effect]:
        """Continue a request with the reply of the event database."""
        received = item.received
        if received.deadline_ms and received.deadline_ms <= now_ms:
            late = "the event database replied after the request's deadline; nothing was done"
            return [Reply(received.to, Code.DEADLINE_PASSED, late)]
        try:
            decided = self.desks.history.answered(now_ms, item)
        except KourouError as error:
            self.desks.traffic.refuse(error.wire_code)
            decided = [Reply(received.to, error.wire_code, str(error))]
        decided = [*self.desks.appends.take_done(), *decided]
        self.desks.announcing.number(now_ms, decided, received.to)
        return decided

    def _asked(self, decided: list[Effect]) -> list[Effect]:
        """Put the records that a client's reply caused before the other effects."""
        return [*self.desks.appends.take_done(), *decided] if decided else decided

    def _disconnected(self, now_ms: int, peer: Peer) -> list[Effect]:
        """Drop everything that depends on a closed connection."""
        desks = self.desks
        desks.pulls.drop_peer(peer)
        effects = desks.members.disconnected(peer)
        effects += self._asked(desks.asking.drop_peer(now_ms, peer))
        effects += desks.filter_server_desk.disconnected(peer)
        desks.announcing.drop_peer(peer)
        if self._members is not None:
            self._members.drop_peer(peer)
        return effects

    # -- replicas of the log ----------------------------------------------------------------------

    def _with_members(self, now_ms: int) -> list[Effect]:
        """Ship records, reply, and notify readers that waited for a follower."""
        assert self._members is not None
        said = self._members.turn(now_ms)
        effects = [*self.desks.appends.take_done(), *said]
        return [*effects, *self._confirmed(now_ms)] if self._unconfirmed else effects

    def _followed(self, now_ms: int, item: LeaderConnected | Copied | NotCopied) -> list[Effect]:
        following = self.desks.following
        assert following is not None, "only a follower copies"
        if isinstance(item, Copied):
            following.copied(item.end)
            return []
        assert isinstance(following, Following), "a Raft group's bytes come by its own ways"
        match item:
            case LeaderConnected(peer, address):
                return following.connected(now_ms, peer, address)
            case NotCopied(end, reason):
                return following.not_copied(now_ms, end, reason)

    def _confirmed_by_group(self, now_ms: int, position: int) -> list[Effect]:
        effects = self.desks.confirmations.confirmed_to(position)
        if isinstance(self.desks.following, QuorumFollowing):
            effects += self.desks.following.confirmed()
        return [*effects, *self._confirmed(now_ms)]

    # -- notifying readers --------------------------------------------------------------------

    def _grown(self, now_ms: int, queues: Sequence[tuple[str, int, int]]) -> list[Effect]:
        confirmations = self.desks.confirmations
        if confirmations.confirmed >= confirmations.written and not self._unconfirmed:
            answers = self.desks.pulls.grown(now_ms, queues)
            done = self.desks.appends.take_done()
            return [*done, *answers] if done else answers
        self._unconfirmed.append((confirmations.written, queues))
        return self._confirmed(now_ms)

    def _confirmed(self, now_ms: int) -> list[Effect]:
        confirmed = self.desks.confirmations.confirmed
        effects: list[Effect] = []
        ready = 0
        for end, queues in self._unconfirmed:
            if end > confirmed:
                break
            ready += 1
            effects += self.desks.pulls.grown(now_ms, queues)
        if ready:
            del self._unconfirmed[:ready]
        return [*self.desks.appends.take_done(), *effects]

    # -- time ---------------------------------------------------------------------------------

    def _tick(self, now_ms: int, tick: Tick) -> list[Effect]:
        desks, wall_ms = self.desks, tick.wall_ms
        if desks.following is not None:
            return self._follower_tick(now_ms)
        if desks.leading is not None:
            desks.leading.tick(now_ms, wall_ms)
        effects = desks.confirmations.expire(now_ms)
        if self._elected is not None and self._elected.paused:
            return effects + self._quiet_tick(now_ms)
        effects += desks.pulls.expire(now_ms)
        effects += desks.members.expire(now_ms)
        effects += desks.asking.expire(now_ms)
        effects += desks.announcing.expire(now_ms)
        effects += desks.lock_desk.expire(now_ms, wall_ms)
        effects += desks.filter_server_desk.expire(now_ms)
        effects += desks.check_backs.tick(now_ms, wall_ms)
        effects += desks.batch_desk.tick(now_ms, wall_ms)
        effects += desks.delays.tick(now_ms, tick)
        desks.repeats.expire(now_ms)
        desks.statistics.tick(now_ms)
        desks.transactions.settle()
        # Records numbered in the meantime are taken here, in order, and go before every reply.
        return self._record_progress(desks.commits.due(now_ms), "", wall_ms) + effects

    def _follower_tick(self, now_ms: int) -> list[Effect]:
        """Run a follower's timers; timers that would write do not run."""
        desks = self.desks
        assert desks.following is not None
        return desks.following.tick(now_ms) + self._quiet_tick(now_ms)

    def _quiet_tick(self, now_ms: int) -> list[Effect]:
        """Run the timers that write nothing."""
        desks = self.desks
        effects = desks.pulls.expire(now_ms)
        effects += desks.members.expire(now_ms)
        effects += desks.asking.expire(now_ms)
        effects += desks.announcing.expire(now_ms)
        effects += desks.filter_server_desk.expire(now_ms)
        desks.statistics.tick(now_ms)
        return effects

    def _measured(self, now_ms: int, look: DiskMeasured) -> list[Effect]:
        """Write the record of a deletion before requesting the deletion."""
        self.desks.statistics.note_hour(look.hour)
        if self.desks.following is not None:
            return self.desks.retention.watched(look)
        confirmed = self.desks.confirmations.confirmed
        if self._elected is not None and look.deletable_end > confirmed:
            # A replica that truncates uncommitted records continues from the records before them.
            look = replace(look, deletable_end=confirmed)
        try:
            decided = self.desks.retention.measured(now_ms, look)
            if look.segments:
                decided += self.desks.delays.keep_above(look.segments[-1].end, look.wall_ms)
        except KourouError as error:
            decided = [LogWarning(f"deletable log segments cannot be determined: {error}")]
        return [*self.desks.appends.take_done(), *decided]

    def _record_progress(self, events: Sequence[Event], why: str, wall_ms: int) -> list[Effect]:
        """Record what fits; the rest stays in effect here, and in consumerOffset.json."""
        warnings: list[Effect] = []
        try:
            self.desks.recorder.record(events, Cause("broker", why), wall_ms)
        except KourouError as error:
            warnings.append(LogWarning(f"consumer progress is not recorded: {error}"))
        return [*self.desks.appends.take_done(), *warnings]


def appended_bytes(effects: Sequence[Effect]) -> int:
    """Return the bytes of records in these effects, for statistics."""
    return sum(
        len(data) for effect in effects if isinstance(effect, Append) for _, data in effect.pieces
    )


def _unconfirmed_at_start(desks: Desks) -> list[tuple[int, Sequence[tuple[str, int, int]]]]:
    """Return queues with messages that a Raft group has not committed: readers wait for them."""
    end = desks.confirmations.written
    if desks.confirmations.confirmed >= end:
        return []
    view = desks.view
    lanes = [(topic, queue_id) for topic in view.topics() for queue_id in view.queue_ids(topic)]
    ranges = [(lane, view.queue_range(*lane)) for lane in lanes]
    return [(end, [(*lane, span[1]) for lane, span in ranges if span is not None])]


def _handlers(desks: Desks) -> Mapping[type[Request], Handler]:
    """Return the handlers; any other request gets the reply REQUEST_CODE_NOT_SUPPORTED."""
    return {
        SendRecords: desks.sending.records,
        SendMessage: desks.single_sends.send,
        PullMessage: desks.pulls.answer,
        QueryConsumerOffset: desks.offsets.committed,
        UpdateConsumerOffset: desks.offsets.commit,
        GetMaxOffset: desks.offsets.maximum,
        GetMinOffset: desks.offsets.minimum,
        SearchOffsetByTimestamp: desks.offsets.by_time,
        GetAllDelayOffset: desks.delays.all_offsets,
        GetEarliestMsgStoreTime: desks.offsets.earliest,
        **desks.queries.handlers(),
        **desks.send_back.handlers(),
        **desks.members.handlers(),
        **desks.lock_desk.handlers(),
        **desks.transactions.handlers(),
        **desks.batch_desk.handlers(),
        **desks.topic_desk.handlers(),
        **desks.group_desk.handlers(),
        **desks.group_figures.handlers(),
        **desks.statistics.handlers(),
        **desks.ask_desk.handlers(),
        **desks.reply_desk.handlers(),
        **desks.broker_desk.handlers(),
        **desks.filter_desk.handlers(),
        **desks.filter_server_desk.handlers(),
        **desks.retention.handlers(),
        **desks.history.handlers(),
        **desks.beginning.handlers(),
        **desks.log_desk.handlers(),
        **desks.replica_desk.handlers(),
        **(desks.leading.handlers() if desks.leading is not None else {}),
        **(desks.following.handlers() if desks.following is not None else {}),
    }
