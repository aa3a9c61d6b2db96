"""A replica that copies its leader's log.

A chunk has the epoch of the leader's log at the chunk's position. If this log has another one
there, or ends before it, the follower refuses and sends its newest epochs: from those the leader
finds the position where both logs diverge, in one round trip. If the log has other bytes in place
of the chunk's, an older leader wrote them and they were never committed: they are truncated,
durably, before anything else is written. Committed data is never truncated; a replica that would
have to do so stops.

Acknowledgements cover only data that was compared with this leader's log in this epoch (`matched`),
not an older tail after it. There is one acknowledgement per batch, and one after each flush.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import ChunkAck, LogChunk, StandNow
from kourou.replication.raft.catch_up import CatchUp
from kourou.replication.raft.effects import (
    BeginLog,
    Confirmed,
    CutLog,
    FlushLog,
    Role,
    WriteChunk,
)
from kourou.replication.raft.own_log import Fit
from kourou.replication.raft.part import Cause, Part

if TYPE_CHECKING:
    from kourou.replication.raft.inputs import Buffer, Fetched
    from kourou.replication.raft.member import Member

NOTHING = -1


class Follower(Part):
    """The follower role of a replica."""

    role = Role.FOLLOWER
    __slots__ = (
        "_answering",
        "_beginning",
        "_blocked_until_ms",
        "_catch_up",
        "_late_told_ms",
        "_told_flushed",
        "confirmable",
        "matched",
    )

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        #: This log equals the leader's up to here.
        self.matched = 0
        #: The leader's committed position, as far as it is known.
        self.confirmable = 0
        self._answering = NOTHING  # the round to be acknowledged in this batch
        self._told_flushed = NOTHING
        self._blocked_until_ms = member.now
        self._catch_up = CatchUp(member)
        self._beginning = NOTHING  # the position where the log is to restart
        self._late_told_ms = NOTHING

    def begin(self) -> None:
        """Wait for a leader."""
        if self.member.joining is None:
            self._wait()
        else:
            self.deadline_ms = self.member.now

    def _wait(self) -> None:
        self.deadline_ms = self.member.now + self.member.election_timeout_ms()

    def tick(self) -> None:
        """No leader was heard from: find out whether an election would succeed."""
        member = self.member
        if self._may_stand():
            member.become(Cause.TIMEOUT)
        elif member.joining is not None:
            member.joining.ask()
            self.deadline_ms = member.now + member.settings.heartbeat_ms
        else:
            self._wait()

    def _may_stand(self) -> bool:
        """True if this replica may stand for election: its log is open, and it has a vote.

        A leader reads and writes at once, and a truncation takes a while. Standing later is always
        safe; the end of the truncation, or a restart, makes it possible again.
        """
        return not self.member.log.cutting and self.member.joining is None

    # -- chunks ----------------------------------------------------------------------------------

    def chunk(self, chunk: LogChunk, body: Buffer) -> None:
        """Handle a chunk or a heartbeat of this epoch's leader."""
        self._wait()
        log = self.member.log
        if log.cutting or (chunk.end > chunk.position and self.member.now < self._blocked_until_ms):
            return
        joining = self.member.joining
        if joining is not None and not joining.is_marked:
            return
        self.confirmable = max(self.confirmable, chunk.confirmed)
        if self._must_restart(chunk):
            self._restart_log(chunk)
            return
        self._beginning = NOTHING
        if self._take(chunk.position, chunk.end, chunk.previous_epoch, chunk.data_epoch, body):
            self._answering = max(self._answering, chunk.round)
        elif not log.cutting:
            self.member.send(chunk.leader, self.member.refusal(chunk.round, chunk.position))
        if chunk.catch_up:
            self._catch_up.go_on(self.matched, min(chunk.confirmed, chunk.leader_end))
        if joining is not None:
            joining.check(chunk)

    def _take(
        self, position: int, end: int, previous_epoch: int, data_epoch: int, body: Buffer
    ) -> bool:
        """Write the new bytes; False if they do not fit, and then nothing was written."""
        member = self.member
        log = member.log
        fit, agreed = log.compare(position, end, previous_epoch, data_epoch)
        if fit is Fit.NEXT:
            if data_epoch != previous_epoch and data_epoch <= log.epochs.newest:
                return False  # an epoch opens once
            log.append(end, data_epoch)
            member.out += (WriteChunk(position, end, data_epoch, body), FlushLog())
        elif fit is Fit.DIVERGED:
            self._cut(agreed)
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
        log = self.member.log
        if log.confirm(min(self.confirmable, self.matched, log.flushed)):
            self.member.out.append(Confirmed(log.confirmed))

    # -- truncation -------------------------------------------------------------------------------

    def _cut(self, position: int) -> None:
        log = self.member.log
        if not log.may_cut(position):
            self.member.halt(f"a cut at {position}, and all is confirmed up to {log.confirmed}")
            return
        ballot = self.member.ballot
        if position == 0 and ballot.lived:
            self.member.out.append(ballot.lives_no_more())
        if position == 0 and not ballot.saved:
            return  # an empty log with a vote that has `lived` counts as lost: write the vote first
        self.member.out.append(CutLog(position, log.confirmed))
        log.cut(position)
        log.cutting = True

    def _must_restart(self, chunk: LogChunk) -> bool:
        """True if no replica has the data that this log lacks.

        Everything below the leader's first position is committed: a log that has another epoch
        there, or ends before it, has nothing of what follows. A log that itself starts there or
        later has everything committed up to its start: then the chunk is outdated.
        """
        first = chunk.first_position
        if not chunk.catch_up or chunk.position != first or chunk.confirmed < first:
            return False
        log = self.member.log
        return first > log.first_position and not log.fits(first, chunk.previous_epoch)

    def _restart_log(self, chunk: LogChunk) -> None:
        """Have the state at the position fetched; until it arrives, the log stays unchanged.

        So a later leader that still has the missing data can send it. The current leader continues
        to get replies from this replica, one per heartbeat interval: a refusal of every chunk would
        make it probe again each time.
        """
        member = self.member
        position = chunk.first_position
        if member.log.confirmed > position:
            confirmed = member.log.confirmed
            member.halt(f"the log should restart at {position}, but is committed up to {confirmed}")
            return
        if position != self._beginning:
            self._beginning = position
            member.out.append(BeginLog(position, chunk.previous_epoch))
        if member.now >= self._late_told_ms + member.settings.heartbeat_ms:
            self._late_told_ms = member.now
            member.send(chunk.leader, member.refusal(chunk.round, chunk.position))

    def wants_to_begin(self, position: int | None = None) -> bool:
        """True if the log is to restart; `position`: where it could, given the available state."""
        wanted = self._beginning
        return wanted != NOTHING and (position is None or position >= wanted)

    def log_changed(self) -> None:
        """Report the new end of the log, so that the leader continues from there."""
        member = self.member
        self._beginning = NOTHING
        self.matched = min(self.matched, member.log.end)
        self._told_flushed = min(self._told_flushed, self.matched)
        if member.leader:
            member.send(member.leader, member.refusal(member.round_heard, member.log.end))

    def write_failed(self) -> None:
        """Accept no bytes for a heartbeat interval and stay silent, or both sides would loop."""
        member = self.member
        self._blocked_until_ms = member.now + member.settings.heartbeat_ms
        self.matched = min(self.matched, member.log.end)
        self._answering = NOTHING

    # -- acknowledgements -------------------------------------------------------------------------

    def flushed(self) -> None:
        """More can be acknowledged and committed."""
        self._confirm()
        if self.member.leader and min(self.matched, self.member.log.flushed) > self._told_flushed:
            self._answering = max(self._answering, self.member.round_heard)

    def settle(self) -> None:
        """Acknowledge all chunks of this batch at once."""
        member = self.member
        if self._answering != NOTHING and not member.log.cutting:
            flushed = min(self.matched, member.log.flushed)
            if flushed:
                member.lives()
            member.send(
                member.leader,
                ChunkAck(
                    group=member.settings.group,
                    epoch=member.epoch,
                    member=member.settings.member,
                    accepted=True,
                    written=self.matched,
                    flushed=flushed,
                    round=self._answering,
                    joining=member.joining_start,
                ),
            )
            self._told_flushed = flushed
        self._answering = NOTHING
        self._catch_up.check_time()

    # -- other replicas ---------------------------------------------------------------------------

    def stand_now(self, order: StandNow) -> None:
        """The leader resigns; if this replica cannot stand now, the leader continues."""
        if not self._may_stand():
            return
        self.member.transfer = order.round
        self.member.become(Cause.STAND_NOW)

    def fetched(self, item: Fetched) -> None:
        """Handle bytes from another replica: they are committed, so they equal the leader's."""
        answer = item.answer
        blocked = self.member.now < self._blocked_until_ms
        if not self._catch_up.is_awaited(item.serial) or blocked:
            return
        log, out = self.member.log, self.member.out
        limit = min(self.confirmable, answer.confirmed)
        before, ahead = self.matched, len(out)
        if (
            not log.cutting
            and answer.position == before
            and answer.position < answer.end <= limit
            and answer.previous_epoch <= answer.data_epoch <= self.member.epoch
        ):
            self._take(
                answer.position, answer.end, answer.previous_epoch, answer.data_epoch, item.body
            )
        if self.matched > before:
            # A restart would discard what is acknowledged here; the leader repeats its request if
            # necessary.
            self._beginning = NOTHING
            self._answering = max(self._answering, self.member.round_heard)
            told = len(out)
            self._catch_up.go_on(self.matched, self.confirmable)
            # Send the next request before these bytes are written: its source works in the
            # meantime.
            out[ahead:] = out[told:] + out[ahead:told]
        else:
            self._catch_up.turn_to_another()

    def fetch_failed(self, serial: int) -> None:
        """Try another replica."""
        if self._catch_up.is_awaited(serial):
            self._catch_up.turn_to_another()
