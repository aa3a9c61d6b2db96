"""The replica that accepts writes: it replicates its log, counts acknowledgements, and commits.

A position is committed once a majority, including this replica, has flushed it, and it is in the
leader's own epoch. Data of an older epoch is committed only together with a record of this one:
otherwise a replica without it could still win an election and truncate it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import ChunkAck, LogChunk, StandNow
from kourou.replication.progress import FollowerProgress, ReplicationState
from kourou.replication.raft.effects import Committed, NeedsRepair, RaftRole, TransferFailed
from kourou.replication.raft.role import RoleBehavior, TransitionCause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kourou.replication.raft.inputs import Buffer
    from kourou.replication.raft.node import RaftNode


_NOT_DUE = 1 << 62


class RaftLeader(RoleBehavior):
    """The leader role. `start` is where its epoch begins."""

    role = RaftRole.LEADER
    __slots__ = (
        "_changed",
        "_committed_sent",
        "_damaged",
        "_heartbeat_ms",
        "_probes",
        "_spread_ms",
        "admission",
        "lease",
        "peers",
        "start",
        "transfer",
    )

    def __init__(self, node: RaftNode) -> None:
        super().__init__(node)
        settings = node.settings
        self.start = node.log.end
        self.lease = LeaderLease(
            node.now,
            majority=settings.majority,
            lease_ms=settings.lease_ms,
            round_ms=settings.round_ms,
        )
        self.peers = {name: FollowerProgress(name, self.start, node.now) for name in settings.peers}
        self.admission = Admission(self)
        self.transfer = LeadershipTransfer(self)
        self._committed_sent = dict.fromkeys(settings.peers, 0)  # the committed position last sent
        self._heartbeat_ms = node.now
        self._spread_ms = _NOT_DUE
        self._changed = False  # something may be committed
        self._probes: set[str] = set()  # replicas to send an empty chunk in this batch
        self._damaged: set[int] = set()  # positions for which a repair was requested

    def begin(self) -> None:
        """Open the epoch: the caller appends its first record after RoleChanged."""
        node = self.node
        node.leader = node.settings.member
        node.log.epochs.open(node.epoch, self.start)
        self._tick_again()

    # -- time ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send heartbeats, and resign if no majority is heard from."""
        node = self.node
        if not self._hears_majority():
            node.become(TransitionCause.TIMEOUT)
            return
        self.transfer.check_time()
        if node.now >= self._heartbeat_ms:
            self._heartbeat_ms = node.now + node.settings.heartbeat_ms
            silent_since = node.now - node.settings.election_timeout_ms_min
            for name, progress in self.peers.items():
                if progress.heard_ms < silent_since:
                    progress.silent()
                self._probes.add(name)
            self.transfer.remind()
        if node.now >= self._spread_ms:
            self._spread_ms = _NOT_DUE
            self._probes.update(
                name for name, sent in self._committed_sent.items() if sent < node.log.confirmed
            )
        self._tick_again()

    def _tick_again(self) -> None:
        self.deadline_ms = min(self._heartbeat_ms, self._spread_ms)

    def _hears_majority(self) -> bool:
        settings = self.node.settings
        since = self.node.now - settings.election_timeout_ms_max
        heard = sum(progress.heard_ms > since for progress in self.voters())
        return heard + 1 >= settings.majority

    def leads(self, now_ms: int) -> bool:
        """True if a majority has acknowledged recently enough."""
        return self.lease.valid(now_ms, (each.round for each in self.voters()))

    def voters(self) -> Iterator[FollowerProgress]:
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
            if progress.accepted(self.node.now, ack.round, ack.written, ack.flushed):
                self._changed = True
            return
        epochs = self.node.log.epochs
        common = epochs.common(ack.epochs, ack.end)
        if progress.refused(
            self.node.now, ack.round, common, certain=epochs.is_certain(ack.epochs)
        ):
            self._probes.add(ack.member)

    def appended(self, end: int) -> None:
        """Nothing to do: `end_batch` sends the new bytes."""

    def flushed(self) -> None:
        """This replica itself counts towards the majority."""
        self._changed = True
        if self.node.log.flushed > self.start:
            self.node.lives()

    def vote_saved(self) -> None:
        """This replica's data counts now."""
        self._changed = True

    def transfer_leadership(self, target: str) -> None:
        """Start a leadership transfer."""
        self.transfer.start(target)

    # -- commitment -------------------------------------------------------------------------------

    def majority_flushed(self) -> int:
        """The highest position that a majority has on disk."""
        node = self.node
        ends = [each.flushed for each in self.voters()]
        if node.ballot.saved:  # the vote file says that this replica has data
            ends.append(node.log.flushed)
        ends.sort(reverse=True)
        needed = node.settings.majority
        return ends[needed - 1] if len(ends) >= needed else 0

    def may_confirm(self, position: int) -> bool:
        """True if a record of this epoch is below `position`."""
        return position > self.start

    def _confirm(self) -> None:
        node = self.node
        position = self.majority_flushed()
        if self.may_confirm(position) and node.log.confirm(position):
            node.out.append(Committed(node.log.confirmed))
            self._spread_ms = min(self._spread_ms, node.now + node.settings.spread_ms)
            self._tick_again()

    # -- replication ------------------------------------------------------------------------------

    def end_batch(self) -> None:
        """Commit what can be committed, then send every follower what it lacks."""
        if self._changed:
            self._changed = False
            self._confirm()
        log = self.node.log
        settings = self.node.settings
        self.transfer.go_on()
        self.lease.turn(self.node.now)
        self.admission.admit()
        self.node.round_heard = self.lease.round
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

    def _ship(self, progress: FollowerProgress, room: int) -> bool:
        """Send one chunk; False if nothing can be sent."""
        node = self.node
        log = node.log
        position = progress.next
        run = log.epochs.run_from(position)
        piece = node.source.read_chunk(position, run.end, min(room, node.settings.chunk_bytes))
        if piece.damage or piece.end <= position:
            if position not in self._damaged:
                self._damaged.add(position)
                node.out.append(NeedsRepair(position, piece.damage))
            return False
        self._damaged.discard(position)
        self._send(progress, position, piece.end, run.epoch, piece.data)
        return True

    def _probe(self, progress: FollowerProgress) -> None:
        position = progress.next
        if progress.state is ReplicationState.CATCH_UP:
            progress.fetches(self.node.log.confirmed)
        self._send(progress, position, position, self.node.log.epochs.epoch_at(position), b"")

    def _send(
        self, progress: FollowerProgress, position: int, end: int, data_epoch: int, body: Buffer
    ) -> None:
        node = self.node
        log = node.log
        joining, joining_at = self.admission.word(progress.member)
        node.send(
            progress.member,
            LogChunk(
                group=node.settings.group,
                epoch=node.epoch,
                leader=node.leader,
                position=position,
                end=end,
                previous_epoch=log.epochs.epoch_at(position),
                data_epoch=data_epoch,
                confirmed=log.confirmed,
                leader_end=log.end,
                first_position=log.first_position,
                round=self.lease.round,
                flush=end > position,
                catch_up=progress.state is ReplicationState.CATCH_UP,
                address=node.settings.address,
                joining=joining,
                joining_at=joining_at,
            ),
            body,
        )
        progress.ships(end, self.lease.round)
        self._committed_sent[progress.member] = log.confirmed


_NEVER = -(1 << 62)


class LeaderLease:
    """The lease of one leader in one epoch.

    Every chunk has the number of a *round*, and its acknowledgement returns it. The leader knows
    when it began that round, so the follower received it no earlier. A follower does not vote
    within the minimum election timeout after hearing from a leader. So until then, minus the
    possible clock drift (`lease_ms`), no other replica gets a majority that includes this follower.

    A leader that asks another replica to stand at once (StandNow) suspends its lease: voters that
    have received no later round than the one in that request vote although the leader is online. If
    the target does not take over, a new round begins, and only acknowledgements of it or later ones
    count.
    """

    __slots__ = ("_began", "_lease_ms", "_needed", "_oldest", "_round_ms", "round", "suspended")

    def __init__(self, now_ms: int, *, majority: int, lease_ms: int, round_ms: int) -> None:
        self._needed = majority - 1  # without the leader itself
        self._lease_ms = lease_ms
        self._round_ms = round_ms
        self._began: deque[int] = deque([now_ms])
        self._oldest = 1
        #: The number of the current round.
        self.round = 1
        #: True from StandNow on: nothing may be acknowledged.
        self.suspended = False

    def turn(self, now_ms: int) -> None:
        """Begin a new round before sending, unless the last one has only just begun."""
        if self.suspended or now_ms - self._began[-1] < self._round_ms:
            return
        self._begin(now_ms)
        while self._began[0] < now_ms - self._lease_ms and len(self._began) > 1:
            self._began.popleft()
            self._oldest += 1

    def _begin(self, now_ms: int) -> None:
        self._began.append(now_ms)
        self.round += 1

    def suspend(self) -> None:
        """Another replica is asked to stand."""
        self.suspended = True

    def resume(self, now_ms: int) -> None:
        """The target did not take over: earlier rounds no longer count."""
        self.suspended = False
        self._began.clear()
        self._oldest = self.round + 1
        self._begin(now_ms)

    def valid(self, now_ms: int, answered: Iterable[int]) -> bool:
        """True if the acknowledged rounds prove that this replica is the only leader."""
        if self.suspended:
            return False
        if not self._needed:
            return True
        times = sorted((self._time_of(each) for each in answered), reverse=True)
        if len(times) < self._needed:
            return False
        return now_ms < times[self._needed - 1] + self._lease_ms

    def _time_of(self, answered: int) -> int:
        index = answered - self._oldest
        return self._began[index] if 0 <= index < len(self._began) else _NEVER


@dataclass(slots=True)
class _Joiner:
    """`start` is its number; `end` the end of the log when it reported, before round `needed`."""

    start: int
    end: int
    needed: int
    reported_in: int | None = None


class Admission:
    """The joining replicas in one leader's epoch.

        heard     a replica reports that it is joining, with the number of its start
        sure      voting replicas, a majority with this leader, have acknowledged a later round:
                  so no other leader had been elected at that time, with or without the joining
                  replica
        reported  each chunk has the end of this log at the time of the replica's report
        joined    it acknowledges such a chunk without that number: it can vote, and has all its
                  data

    Acknowledgements of a joining replica keep chunks coming to it, and count for nothing else: no
    commitment, no lease, no election. One from before its loss is recognized by its older round.
    """

    __slots__ = ("_joiners", "_leader")

    def __init__(self, leader: RaftLeader) -> None:
        self._leader = leader
        self._joiners: dict[str, _Joiner] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._joiners

    def hear(self, ack: ChunkAck) -> bool:
        """Handle an acknowledgement; False if it is from before the replica's loss."""
        known = self._joiners.get(ack.member)
        if ack.joining:
            if known is None or known.start != ack.joining:
                leader = self._leader
                end, needed = leader.node.log.end, leader.lease.round + 1
                self._joiners[ack.member] = _Joiner(ack.joining, end, needed)
            return True
        if known is None:
            return True
        if known.reported_in is None or ack.round < known.reported_in:
            return False
        del self._joiners[ack.member]
        return True

    def admit(self) -> None:
        """From here on, chunks admit each joining replica for which it is certain."""
        leader = self._leader
        for each in self._joiners.values():
            if each.reported_in is None:
                answered = sum(
                    progress.round >= each.needed
                    for name, progress in leader.peers.items()
                    if name not in self._joiners
                )
                if answered + 1 >= leader.node.settings.majority:
                    each.reported_in = leader.lease.round

    def word(self, name: str) -> tuple[int, int]:
        """The admission in a chunk: (number of its start, position); (0, 0) for none."""
        known = self._joiners.get(name)
        if known is None or known.reported_in is None:
            return 0, 0
        return known.start, known.end


class LeadershipTransfer:
    """A leader's state of a transfer; `target` is "" while there is none.

    started   new writes are refused; the target receives what it lacks
    sent      the target has everything: StandNow is sent, and nothing is acknowledged any more
    over      the target leads, which this replica learns from a higher epoch; or one election
              timeout has passed, and this replica continues to lead, in a new round
              (LeaderLease says why)
    """

    __slots__ = ("_leader", "_until_ms", "target")

    def __init__(self, leader: RaftLeader) -> None:
        self._leader = leader
        self._until_ms = 0
        self.target = ""

    def start(self, target: str) -> None:
        """Start a transfer requested by an operator."""
        leader = self._leader
        target = target or max(
            (each.member for each in leader.voters()),
            key=lambda name: leader.peers[name].flushed,
            default="",
        )
        if target not in leader.peers:
            self._fail(target, "is not another replica of this group")
        elif target in leader.admission:
            self._fail(target, "has no vote yet: it catches up first")
        elif self.target:
            self._fail(target, f"has to wait: {self.target} is to lead")
        else:
            self.target = target
            self._until_ms = leader.node.now + leader.node.settings.election_timeout_ms_max

    def go_on(self) -> None:
        """Send StandNow to the target once it has everything."""
        leader = self._leader
        if not self.target or leader.lease.suspended:
            return
        progress = leader.peers[self.target]
        if progress.state is ReplicationState.REPLICATE and progress.flushed == leader.node.log.end:
            leader.lease.suspend()
            self.remind()

    def remind(self) -> None:
        """Send StandNow, or repeat it."""
        leader = self._leader
        if self.target and leader.lease.suspended:
            node = leader.node
            node.send(
                self.target,
                StandNow(
                    group=node.settings.group,
                    epoch=node.epoch,
                    leader=node.leader,
                    round=leader.lease.round,
                ),
            )

    def check_time(self) -> None:
        """Continue to lead if the target did not take over in time."""
        leader = self._leader
        if self.target and leader.node.now >= self._until_ms:
            if leader.lease.suspended:
                leader.lease.resume(leader.node.now)
            self._fail(self.target, "did not take over in time")
            self.target = ""

    def _fail(self, target: str, reason: str) -> None:
        self._leader.node.out.append(TransferFailed(target, reason))
