"""The replica that accepts writes: it replicates its log, counts acknowledgements, and commits.

A position is committed once a majority, including this replica, has flushed it, and it is in the
leader's own epoch. Data of an older epoch is committed only together with a record of this one:
otherwise a replica without it could still win an election and truncate it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import ChunkAck, LogChunk
from kourou.replication.progress import Progress, State
from kourou.replication.raft.admission import Admission
from kourou.replication.raft.effects import Confirmed, NeedsRepair, Role
from kourou.replication.raft.hand_over import HandingOver
from kourou.replication.raft.lease import Lease
from kourou.replication.raft.part import Cause, Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kourou.replication.raft.inputs import Buffer
    from kourou.replication.raft.member import Member

_NOT_DUE = 1 << 62


class Leader(Part):
    """The leader role. `start` is where its epoch begins."""

    role = Role.LEADER
    __slots__ = (
        "_changed",
        "_damaged",
        "_heartbeat_ms",
        "_probes",
        "_spread_ms",
        "_told",
        "admission",
        "handing_over",
        "lease",
        "peers",
        "start",
    )

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        settings = member.settings
        self.start = member.log.end
        self.lease = Lease(
            member.now,
            majority=settings.majority,
            lease_ms=settings.lease_ms,
            round_ms=settings.round_ms,
        )
        self.peers = {name: Progress(name, self.start, member.now) for name in settings.peers}
        self.admission = Admission(self)
        self.handing_over = HandingOver(self)
        self._told = dict.fromkeys(settings.peers, 0)  # the committed position last sent
        self._heartbeat_ms = member.now
        self._spread_ms = _NOT_DUE
        self._changed = False  # something may be committed
        self._probes: set[str] = set()  # replicas to send an empty chunk in this batch
        self._damaged: set[int] = set()  # positions for which a repair was requested

    def begin(self) -> None:
        """Open the epoch: the caller appends its first record after RoleChanged."""
        member = self.member
        member.leader = member.settings.member
        member.log.epochs.open(member.epoch, self.start)
        self._tick_again()

    # -- time ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send heartbeats, and resign if no majority is heard from."""
        member = self.member
        if not self._hears_majority():
            member.become(Cause.TIMEOUT)
            return
        self.handing_over.check_time()
        if member.now >= self._heartbeat_ms:
            self._heartbeat_ms = member.now + member.settings.heartbeat_ms
            silent_since = member.now - member.settings.election_timeout_ms_min
            for name, progress in self.peers.items():
                if progress.heard_ms < silent_since:
                    progress.silent()
                self._probes.add(name)
            self.handing_over.remind()
        if member.now >= self._spread_ms:
            self._spread_ms = _NOT_DUE
            self._probes.update(
                name for name, told in self._told.items() if told < member.log.confirmed
            )
        self._tick_again()

    def _tick_again(self) -> None:
        self.deadline_ms = min(self._heartbeat_ms, self._spread_ms)

    def _hears_majority(self) -> bool:
        settings = self.member.settings
        since = self.member.now - settings.election_timeout_ms_max
        heard = sum(progress.heard_ms > since for progress in self.voters())
        return heard + 1 >= settings.majority

    def leads(self, now_ms: int) -> bool:
        """True if a majority has acknowledged recently enough."""
        return self.lease.valid(now_ms, (each.round for each in self.voters()))

    def voters(self) -> Iterator[Progress]:
        """The other replicas that can vote."""
        return (each for name, each in self.peers.items() if name not in self.admission)

    # -- inputs ----------------------------------------------------------------------------------

    def ack(self, ack: ChunkAck) -> None:
        """Handle an acknowledgement or a refusal from a follower."""
        if ack.round > self.lease.round:
            return  # a round not sent yet: from a faulty replica, and misleading later
        progress = self.peers[ack.member]
        if not self.admission.hear(ack):
            return
        if ack.accepted:
            if progress.accepted(self.member.now, ack.round, ack.written, ack.flushed):
                self._changed = True
            return
        epochs = self.member.log.epochs
        common = epochs.common(ack.epochs, ack.end)
        if progress.refused(
            self.member.now, ack.round, common, certain=epochs.is_certain(ack.epochs)
        ):
            self._probes.add(ack.member)

    def appended(self, end: int) -> None:
        """Nothing to do: `settle` sends the new bytes."""

    def flushed(self) -> None:
        """This replica itself counts towards the majority."""
        self._changed = True
        if self.member.log.flushed > self.start:
            self.member.lives()

    def vote_saved(self) -> None:
        """This replica's data counts now."""
        self._changed = True

    def hand_over(self, target: str) -> None:
        """Start a leadership transfer."""
        self.handing_over.start(target)

    # -- commitment -------------------------------------------------------------------------------

    def majority_flushed(self) -> int:
        """The highest position that a majority has on disk."""
        member = self.member
        ends = [each.flushed for each in self.voters()]
        if member.ballot.saved:  # the vote file says that this replica has data
            ends.append(member.log.flushed)
        ends.sort(reverse=True)
        needed = member.settings.majority
        return ends[needed - 1] if len(ends) >= needed else 0

    def may_confirm(self, position: int) -> bool:
        """True if a record of this epoch is below `position`."""
        return position > self.start

    def _confirm(self) -> None:
        member = self.member
        position = self.majority_flushed()
        if self.may_confirm(position) and member.log.confirm(position):
            member.out.append(Confirmed(member.log.confirmed))
            self._spread_ms = min(self._spread_ms, member.now + member.settings.spread_ms)
            self._tick_again()

    # -- replication ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Commit what can be committed, then send every follower what it lacks."""
        if self._changed:
            self._changed = False
            self._confirm()
        log = self.member.log
        settings = self.member.settings
        self.handing_over.go_on()
        self.lease.turn(self.member.now)
        self.admission.settle()
        self.member.round_heard = self.lease.round
        for name, progress in self.peers.items():
            progress.judge_distance(log.confirmed, log.first_position, settings.catch_up_bytes)
            sent = False
            while progress.next < log.end and (room := progress.room(settings.window_bytes)):
                if not self._ship(progress, room):
                    break
                sent = True
            if name in self._probes and not sent:
                self._probe(progress)
        self._probes.clear()

    def _ship(self, progress: Progress, room: int) -> bool:
        """Send one chunk; False if nothing can be sent."""
        member = self.member
        log = member.log
        position = progress.next
        run = log.epochs.run_from(position)
        piece = member.source.read_chunk(position, run.end, min(room, member.settings.chunk_bytes))
        if piece.damage or piece.end <= position:
            if position not in self._damaged:
                self._damaged.add(position)
                member.out.append(NeedsRepair(position, piece.damage))
            return False
        self._damaged.discard(position)
        self._send(progress, position, piece.end, run.epoch, piece.data)
        return True

    def _probe(self, progress: Progress) -> None:
        position = progress.next
        if progress.state is State.CATCH_UP:
            progress.fetches(self.member.log.confirmed)
        self._send(progress, position, position, self.member.log.epochs.epoch_at(position), b"")

    def _send(
        self, progress: Progress, position: int, end: int, data_epoch: int, body: Buffer
    ) -> None:
        member = self.member
        log = member.log
        joining, joining_at = self.admission.word(progress.member)
        member.send(
            progress.member,
            LogChunk(
                group=member.settings.group,
                epoch=member.epoch,
                leader=member.leader,
                position=position,
                end=end,
                previous_epoch=log.epochs.epoch_at(position),
                data_epoch=data_epoch,
                confirmed=log.confirmed,
                leader_end=log.end,
                first_position=log.first_position,
                round=self.lease.round,
                flush=end > position,
                catch_up=progress.state is State.CATCH_UP,
                address=member.settings.address,
                joining=joining,
                joining_at=joining_at,
            ),
            body,
        )
        progress.ships(end, self.lease.round)
        self._told[progress.member] = log.confirmed
