"""A member that copies its leader's log.

A chunk says which epoch the leader's log has where the chunk begins. If this log has another one
there, or ends before, the follower refuses and tells its newest epochs: from those the leader finds
the place where both logs part, in one round trip. If the log has something else than the chunk's
bytes, that is what an older leader wrote and nobody confirmed: it is cut, durably, before anything
else is written. What is confirmed is never cut; a member that should do so stops.

What it answers counts only what was compared with this leader's log in this epoch (`matched`): an
older tail beyond says nothing. One answer a batch, and one after each flush.
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
    """See above."""

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
        #: The leader's confirmed position, as far as it was told.
        self.confirmable = 0
        self._answering = NOTHING  # the round to be answered in this batch
        self._told_flushed = NOTHING
        self._blocked_until_ms = member.now
        self._catch_up = CatchUp(member)
        self._beginning = NOTHING  # where the log is to begin anew
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
        """No leader is heard: find out whether an election would do any good."""
        member = self.member
        if self._may_stand():
            member.become(Cause.TIMEOUT)
        elif member.joining is not None:
            member.joining.ask()
            self.deadline_ms = member.now + member.settings.heartbeat_ms
        else:
            self._wait()

    def _may_stand(self) -> bool:
        """Whether the log is open: who leads reads and writes at once, and a cut takes a while.

        To stand later is always safe; the end of the cut, or of the process, lets it stand again.
        Who has no vote does not stand.
        """
        return not self.member.log.cutting and self.member.joining is None

    # -- chunks ----------------------------------------------------------------------------------

    def chunk(self, chunk: LogChunk, body: Buffer) -> None:
        """Bytes or a heartbeat of this epoch's leader."""
        self._wait()
        log = self.member.log
        if log.cutting or (chunk.end > chunk.position and self.member.now < self._blocked_until_ms):
            return
        joining = self.member.joining
        if joining is not None and not joining.is_marked:
            return
        self.confirmable = max(self.confirmable, chunk.confirmed)
        if self._must_begin_anew(chunk):
            self._begin_anew(chunk)
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
        """Write what is new; False if it does not fit, and then nothing was written."""
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
            self.matched = max(self.matched, agreed)  # of an overlap; none of a gap
            return False
        self.matched = max(self.matched, end)
        self._confirm()
        return True

    def _confirm(self) -> None:
        """Only what is on this disk: a write may fail yet, and a power loss must not unsay it."""
        log = self.member.log
        if log.confirm(min(self.confirmable, self.matched, log.flushed)):
            self.member.out.append(Confirmed(log.confirmed))

    # -- what must go ----------------------------------------------------------------------------

    def _cut(self, position: int) -> None:
        log = self.member.log
        if not log.may_cut(position):
            self.member.halt(f"a cut at {position}, and all is confirmed up to {log.confirmed}")
            return
        ballot = self.member.ballot
        if position == 0 and ballot.lived:
            self.member.out.append(ballot.lives_no_more())
        if position == 0 and not ballot.saved:
            return  # an empty log beside a vote that knows of bytes is a lost one: that goes first
        self.member.out.append(CutLog(position, log.confirmed))
        log.cut(position)
        log.cutting = True

    def _must_begin_anew(self, chunk: LogChunk) -> bool:
        """Whether nobody has any longer what this log lacks.

        All below the leader's first position is confirmed: a log that has another epoch there, or
        ends before, has nothing of what follows. A log that begins there or later itself has all
        that is confirmed up to where it begins: then the chunk is one that comes late.
        """
        first = chunk.first_position
        if not chunk.catch_up or chunk.position != first or chunk.confirmed < first:
            return False
        log = self.member.log
        return first > log.first_position and not log.fits(first, chunk.previous_epoch)

    def _begin_anew(self, chunk: LogChunk) -> None:
        """Have it found out what came before; until somebody tells, the log stays what it is.

        So a next leader that still has what this log lacks can send it. The leader that has not
        goes on hearing from this member, now and then: a refusal a chunk would have it ask again.
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
        """Whether the log is to begin anew; `position` is where it could, if somebody told."""
        wanted = self._beginning
        return wanted != NOTHING and (position is None or position >= wanted)

    def log_changed(self) -> None:
        """Say where the log ends now: the leader goes on from there."""
        member = self.member
        self._beginning = NOTHING
        self.matched = min(self.matched, member.log.end)
        self._told_flushed = min(self._told_flushed, self.matched)
        if member.leader:
            member.send(member.leader, member.refusal(member.round_heard, member.log.end))

    def write_failed(self) -> None:
        """Take no bytes for a heartbeat's time, and say nothing: else both sides spin."""
        member = self.member
        self._blocked_until_ms = member.now + member.settings.heartbeat_ms
        self.matched = min(self.matched, member.log.end)
        self._answering = NOTHING

    # -- answers ---------------------------------------------------------------------------------

    def flushed(self) -> None:
        """More may be told, and more be confirmed."""
        self._confirm()
        if self.member.leader and min(self.matched, self.member.log.flushed) > self._told_flushed:
            self._answering = max(self._answering, self.member.round_heard)

    def settle(self) -> None:
        """Answer all chunks of this batch at once."""
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

    # -- other members ---------------------------------------------------------------------------

    def stand_now(self, order: StandNow) -> None:
        """The leader gives way; if this member cannot stand now, it goes on leading."""
        if not self._may_stand():
            return
        self.member.transfer = order.round
        self.member.become(Cause.STAND_NOW)

    def fetched(self, item: Fetched) -> None:
        """Bytes of another member, all confirmed: they are the leader's as well."""
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
            # To begin anew would throw away what is answered for here; the leader says it again.
            self._beginning = NOTHING
            self._answering = max(self._answering, self.member.round_heard)
            told = len(out)
            self._catch_up.go_on(self.matched, self.confirmable)
            # The next question leaves before this answer is written: its source works meanwhile.
            out[ahead:] = out[told:] + out[ahead:told]
        else:
            self._catch_up.turn_to_another()

    def fetch_failed(self, serial: int) -> None:
        """Another member may have it."""
        if self._catch_up.is_awaited(serial):
            self._catch_up.turn_to_another()
