"""A replica that copies its leader's log, and how the leader's bytes fit to its own.

A chunk has the epoch of the leader's log at the chunk's position. If this log has another one
there, or ends before it, the follower refuses and sends its newest epochs: from those the leader
finds the position where both logs diverge, in one round trip. If the log has other bytes in place
of the chunk's, an older leader wrote them and they were never committed: they are truncated,
durably, before anything else is written. Committed data is never truncated; a replica that would
have to do so stops.

Acknowledgements cover only data that was compared with this leader's log in this epoch (`matched`),
not an older tail after it. There is one acknowledgement per batch, and one after each flush.

The positions of its own log run ahead of the disk in one way only: bytes that an effect of the
current batch will write count as written (never as flushed), so that the chunk after them fits.

Invariants: first_position, flushed and confirmed are at or below `end`; `confirmed` never
decreases, except when the log restarts; nothing below `confirmed` is ever truncated. State:
projection of the log; `confirmed` is soft.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import ChunkAck, LogChunk, StandNow
from kourou.replication.epochs import Epochs, TruncateLog
from kourou.replication.raft.effects import (
    Committed,
    DiscardLog,
    Fetch,
    FlushLog,
    RaftRole,
    WriteChunk,
)
from kourou.replication.raft.role import RoleBehavior, TransitionCause

if TYPE_CHECKING:
    from kourou.replication.raft.inputs import Buffer, Fetched
    from kourou.replication.raft.node import RaftNode


class Fit(Enum):
    """How a chunk fits to the log."""

    GAP = auto()  # the log ends before it, or has another epoch at its position
    HAVE = auto()  # the log has all of it
    NEXT = auto()  # it continues the log
    OVERLAP = auto()  # the log has its first part, and ends within it
    DIVERGED = auto()  # the log has other bytes in its place


class OwnLog:
    """The log of one replica."""

    __slots__ = ("confirmed", "epochs", "first_position", "flushed", "truncating")

    def __init__(
        self, epochs: Epochs, *, first_position: int, flushed: int, confirmed: int
    ) -> None:
        assert max(first_position, flushed, confirmed) <= epochs.end
        self.epochs = epochs
        self.first_position = first_position
        self.flushed = flushed
        self.confirmed = confirmed
        #: A truncation or a restart is in progress; nothing is written until it is durable.
        self.truncating = False

    @property
    def end(self) -> int:
        """The position of the next byte."""
        return self.epochs.end

    # -- bytes of a leader -----------------------------------------------------------------------

    def fits(self, position: int, previous_epoch: int) -> bool:
        """True if all bytes below `position` equal those of a log with that epoch there."""
        return position <= self.end and self.epochs.epoch_at(position) == previous_epoch

    def compare(
        self, position: int, end: int, previous_epoch: int, data_epoch: int
    ) -> tuple[Fit, int]:
        """How bytes [position, end) of `data_epoch` fit, and the position up to which both logs
        agree.

        Data below the first position was committed, so every possible leader has the same; its
        epochs need not be known any more.
        """
        first = self.first_position
        if position < first:
            return (Fit.HAVE, end) if end <= first else (Fit.OVERLAP, first)
        if not self.fits(position, previous_epoch):
            return Fit.GAP, 0
        if end == position:
            return Fit.HAVE, position
        if position == self.end:
            return Fit.NEXT, position
        run = self.epochs.run_from(position)
        if run.epoch != data_epoch:
            return Fit.DIVERGED, position
        if end <= run.end:
            return Fit.HAVE, end
        return (Fit.OVERLAP if run.end == self.end else Fit.DIVERGED), run.end

    def append(self, end: int, epoch: int) -> None:
        """Append bytes of `epoch`; they open it if the log's newest epoch is another one."""
        if epoch != self.epochs.newest:
            self.epochs.open(epoch, self.end)
        self.epochs.extend(end)

    # -- changes ---------------------------------------------------------------------------------

    def flush(self, end: int) -> bool:
        """Everything below `end` is on disk; True if that is new."""
        end = min(end, self.end)
        news = end > self.flushed
        self.flushed = max(self.flushed, end)
        return news

    def confirm(self, position: int) -> bool:
        """Everything below `position` is committed; True if that is new."""
        position = min(position, self.end)
        news = position > self.confirmed
        self.confirmed = max(self.confirmed, position)
        return news

    def may_truncate(self, position: int) -> bool:
        """True if nothing committed would be removed."""
        return position >= self.confirmed

    def truncate(self, position: int) -> None:
        """Remove everything from `position` on."""
        self.epochs.truncate(position)
        self.flushed = min(self.flushed, position)

    def begin(self, position: int, epoch: int) -> None:
        """Make the log empty, starting at `position`; the byte before it was of `epoch`."""
        pairs = [(epoch, position - 1)] if epoch and position else []
        self.epochs = Epochs(pairs, position)
        self.first_position = self.flushed = self.confirmed = position


NOTHING = -1


class RaftFollower(RoleBehavior):
    """The follower role of a replica."""

    role = RaftRole.FOLLOWER
    __slots__ = (
        "_acknowledged",
        "_answering",
        "_beginning",
        "_blocked_until_ms",
        "_catch_up",
        "_late_refused_ms",
        "confirmable",
        "matched",
    )

    def __init__(self, node: RaftNode) -> None:
        super().__init__(node)
        #: This log equals the leader's up to here.
        self.matched = 0
        #: The leader's committed position, as far as it is known.
        self.confirmable = 0
        self._answering = NOTHING  # the round to be acknowledged in this batch
        self._acknowledged = NOTHING
        self._blocked_until_ms = node.now
        self._catch_up = CatchUp(node)
        self._beginning = NOTHING  # the position where the log is to restart
        self._late_refused_ms = NOTHING

    def begin(self) -> None:
        """Wait for a leader."""
        if self.node.joining is None:
            self._wait()
        else:
            self.deadline_ms = self.node.now

    def _wait(self) -> None:
        self.deadline_ms = self.node.now + self.node.election_timeout_ms()

    def tick(self) -> None:
        """No leader was heard from: find out whether an election would succeed."""
        node = self.node
        if self._may_stand():
            node.become(TransitionCause.TIMEOUT)
        elif node.joining is not None:
            node.joining.ask()
            self.deadline_ms = node.now + node.settings.heartbeat_ms
        else:
            self._wait()

    def _may_stand(self) -> bool:
        """True if this replica may stand for election: its log is open, and it has a vote.

        A leader reads and writes at once, and a truncation takes a while. Standing later is always
        safe; the end of the truncation, or a restart, makes it possible again.
        """
        return not self.node.log.truncating and self.node.joining is None

    # -- chunks ----------------------------------------------------------------------------------

    def chunk(self, chunk: LogChunk, body: Buffer) -> None:
        """Handle a chunk or a heartbeat of this epoch's leader."""
        self._wait()
        log = self.node.log
        if log.truncating or (
            chunk.end > chunk.position and self.node.now < self._blocked_until_ms
        ):
            return
        joining = self.node.joining
        if joining is not None and not joining.is_marked:
            return
        self.confirmable = max(self.confirmable, chunk.confirmed)
        if self._must_restart(chunk):
            self._restart_log(chunk)
            return
        self._beginning = NOTHING
        if self._take(chunk.position, chunk.end, chunk.previous_epoch, chunk.data_epoch, body):
            self._answering = max(self._answering, chunk.round)
        elif not log.truncating:
            self.node.send(chunk.leader, self.node.refusal(chunk.round, chunk.position))
        if chunk.catch_up:
            self._catch_up.go_on(self.matched, min(chunk.confirmed, chunk.leader_end))
        if joining is not None:
            joining.check(chunk)

    def _take(
        self, position: int, end: int, previous_epoch: int, data_epoch: int, body: Buffer
    ) -> bool:
        """Write the new bytes; False if they do not fit, and then nothing was written."""
        node = self.node
        log = node.log
        fit, agreed = log.compare(position, end, previous_epoch, data_epoch)
        if fit is Fit.NEXT:
            if data_epoch != previous_epoch and data_epoch <= log.epochs.newest:
                return False  # an epoch opens once
            log.append(end, data_epoch)
            node.out += (WriteChunk(position, end, data_epoch, body), FlushLog())
        elif fit is Fit.DIVERGED:
            self._truncate(agreed)
            return False
        elif fit is not Fit.HAVE:
            self.matched = max(self.matched, agreed)  # of an overlap; 0 for a gap
            return False
        self.matched = max(self.matched, end)
        self._confirm()
        return True

    def _confirm(self) -> None:
        """Commit only what is on this disk: a write may still fail, and a power loss must not undo
        it.
        """
        log = self.node.log
        if log.confirm(min(self.confirmable, self.matched, log.flushed)):
            self.node.out.append(Committed(log.confirmed))

    # -- truncation -------------------------------------------------------------------------------

    def _truncate(self, position: int) -> None:
        log = self.node.log
        if not log.may_truncate(position):
            self.node.halt(f"a cut at {position}, and all is confirmed up to {log.confirmed}")
            return
        ballot = self.node.ballot
        if position == 0 and ballot.lived:
            self.node.out.append(ballot.lives_no_more())
        if position == 0 and not ballot.saved:
            return  # an empty log with a vote that has `lived` counts as lost: write the vote first
        self.node.out.append(TruncateLog(position, log.confirmed))
        log.truncate(position)
        log.truncating = True

    def _must_restart(self, chunk: LogChunk) -> bool:
        """True if no replica has the data that this log lacks.

        Everything below the leader's first position is committed: a log that has another epoch
        there, or ends before it, has nothing of what follows. A log that itself starts there or
        later has everything committed up to its start: then the chunk is outdated.
        """
        first = chunk.first_position
        if not chunk.catch_up or chunk.position != first or chunk.confirmed < first:
            return False
        log = self.node.log
        return first > log.first_position and not log.fits(first, chunk.previous_epoch)

    def _restart_log(self, chunk: LogChunk) -> None:
        """Have the state at the position fetched; until it arrives, the log stays unchanged.

        So a later leader that still has the missing data can send it. The current leader continues
        to get replies from this replica, one per heartbeat interval: a refusal of every chunk would
        make it probe again each time.
        """
        node = self.node
        position = chunk.first_position
        if node.log.confirmed > position:
            confirmed = node.log.confirmed
            node.halt(f"the log should restart at {position}, but is committed up to {confirmed}")
            return
        if position != self._beginning:
            self._beginning = position
            node.out.append(DiscardLog(position, chunk.previous_epoch))
        if node.now >= self._late_refused_ms + node.settings.heartbeat_ms:
            self._late_refused_ms = node.now
            node.send(chunk.leader, node.refusal(chunk.round, chunk.position))

    def wants_to_begin(self, position: int | None = None) -> bool:
        """True if the log is to restart; `position`: where it could, given the available state."""
        wanted = self._beginning
        return wanted != NOTHING and (position is None or position >= wanted)

    def log_changed(self) -> None:
        """Report the new end of the log, so that the leader continues from there."""
        node = self.node
        self._beginning = NOTHING
        self.matched = min(self.matched, node.log.end)
        self._acknowledged = min(self._acknowledged, self.matched)
        if node.leader:
            node.send(node.leader, node.refusal(node.round_heard, node.log.end))

    def write_failed(self) -> None:
        """Accept no bytes for a heartbeat interval and stay silent, or both sides would loop."""
        node = self.node
        self._blocked_until_ms = node.now + node.settings.heartbeat_ms
        self.matched = min(self.matched, node.log.end)
        self._answering = NOTHING

    # -- acknowledgements -------------------------------------------------------------------------

    def flushed(self) -> None:
        """More can be acknowledged and committed."""
        self._confirm()
        if self.node.leader and min(self.matched, self.node.log.flushed) > self._acknowledged:
            self._answering = max(self._answering, self.node.round_heard)

    def end_batch(self) -> None:
        """Acknowledge all chunks of this batch at once."""
        node = self.node
        if self._answering != NOTHING and not node.log.truncating:
            flushed = min(self.matched, node.log.flushed)
            if flushed:
                node.lives()
            node.send(
                node.leader,
                ChunkAck(
                    group=node.settings.group,
                    epoch=node.epoch,
                    member=node.settings.member,
                    accepted=True,
                    written=self.matched,
                    flushed=flushed,
                    round=self._answering,
                    joining=node.joining_start,
                ),
            )
            self._acknowledged = flushed
        self._answering = NOTHING
        self._catch_up.check_time()

    # -- other replicas ---------------------------------------------------------------------------

    def stand_now(self, order: StandNow) -> None:
        """The leader resigns; if this replica cannot stand now, the leader continues."""
        if not self._may_stand():
            return
        self.node.transfer = order.round
        self.node.become(TransitionCause.STAND_NOW)

    def fetched(self, item: Fetched) -> None:
        """Handle bytes from another replica: they are committed, so they equal the leader's."""
        answer = item.answer
        blocked = self.node.now < self._blocked_until_ms
        if not self._catch_up.is_awaited(item.serial) or blocked:
            return
        log, out = self.node.log, self.node.out
        limit = min(self.confirmable, answer.confirmed)
        before, ahead = self.matched, len(out)
        if (
            not log.truncating
            and answer.position == before
            and answer.position < answer.end <= limit
            and answer.previous_epoch <= answer.data_epoch <= self.node.epoch
        ):
            self._take(
                answer.position, answer.end, answer.previous_epoch, answer.data_epoch, item.body
            )
        if self.matched > before:
            # A restart would discard what is acknowledged here; the leader repeats its request if
            # necessary.
            self._beginning = NOTHING
            self._answering = max(self._answering, self.node.round_heard)
            requests = len(out)
            self._catch_up.go_on(self.matched, self.confirmable)
            # Send the next request before these bytes are written: its source works in the
            # meantime.
            out[ahead:] = out[requests:] + out[ahead:requests]
        else:
            self._catch_up.turn_to_another()

    def fetch_failed(self, serial: int) -> None:
        """Try another replica."""
        if self._catch_up.is_awaited(serial):
            self._catch_up.turn_to_another()


NONE_AWAITED = 0


class CatchUp:
    """The requests of one follower under one leader.

    Committed bytes are the same at every replica, so any of them can supply them: other followers
    are asked first, the leader last. There is one request at a time. If a replica does not reply in
    time, or has nothing, the next one is asked when the leader reports again that there is data to
    fetch.
    """

    __slots__ = ("_awaited", "_deadline_ms", "_limit", "_node", "_turn")

    def __init__(self, node: RaftNode) -> None:
        self._node = node
        self._awaited = NONE_AWAITED
        self._deadline_ms = 0
        self._limit = 0
        self._turn = 0

    def go_on(self, position: int, limit: int) -> None:
        """Everything below `position` is here: request what follows, if it is below `limit`."""
        self._limit = max(self._limit, limit)
        if self._awaited == NONE_AWAITED and position < self._limit:
            self._ask(position)

    def turn_to_another(self) -> None:
        """The last request had no result: send the next one to another replica."""
        self._turn += 1

    def is_awaited(self, serial: int) -> bool:
        """True if this replies to the last request; afterwards no reply is pending."""
        if serial != self._awaited:
            return False
        self._awaited = NONE_AWAITED
        return True

    def check_time(self) -> None:
        """Give up on a request after a timeout."""
        if self._awaited != NONE_AWAITED and self._node.now >= self._deadline_ms:
            self._awaited = NONE_AWAITED
            self.turn_to_another()

    def _ask(self, position: int) -> None:
        node = self._node
        self._awaited = node.next_serial()
        self._deadline_ms = node.now + node.settings.fetch_timeout_ms
        size = min(node.settings.fetch_bytes, self._limit - position)
        node.out.append(Fetch(self._awaited, self._source(), position, size))

    def _source(self) -> str:
        node = self._node
        others = [name for name in node.settings.peers if name != node.leader]
        if node.leader:
            others.append(node.leader)
        return others[self._turn % len(others)]
