"""One member in a simulation: the real core, and a simulated executor of its effects.

The executor follows the same order as the real one. It appends an epoch's first record some time
after the member becomes leader, when its engine is ready, and accepts no client messages before. It
reports `Appended` before any later message, coalesces flushes, ignores a flush that a truncation
has overtaken, and checks `may_acknowledge` directly before each reply.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from kourou.protocol.messages.replication import FetchLogResponse
from kourou.replication.epochs import TruncateLog
from kourou.replication.raft import effects as raft_effects
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.effects import Effect, RaftRole
from kourou.replication.raft.election import must_join
from kourou.replication.raft.inputs import Input
from kourou.replication.raft.node import PersistentState, RaftNode, RaftSettings
from kourou_rigs.raft_disk import CELL_BYTES, MemberDisk, data_cell, opening_cell
from kourou_rigs.raft_rules import RuleBroken, Rules

Does = Callable[[], None]
NEVER_MS = 200
"""The retry interval while no member knows the answer."""


class Surroundings(Protocol):
    """The part of the simulation that a node uses."""

    now: int
    rules: Rules
    chance: random.Random

    def after(self, delay_ms: int, does: Does) -> None:
        """Schedule a call."""
        ...

    def carry(self, source: str, target: str, item: Input) -> None:
        """Deliver an input to another node, subject to the network."""
        ...

    def ask(self, source: str, wanted: raft_effects.Fetch) -> None:
        """Request a part of another node's log."""
        ...

    def beginning(self, source: str) -> tuple[int, int] | None:
        """The first position of another node's log and the epoch of the preceding byte, if
        available.
        """
        ...


class Node:
    """A member that may be down (`member` is None) or stopped (`paused`)."""

    def __init__(self, world: Surroundings, settings: RaftSettings, disk: MemberDisk) -> None:
        self.name = settings.member
        self.disk = disk
        self.member: RaftNode | None = None
        self.paused = False
        #: How much faster its clock runs, in millionths, and its initial value.
        self.drift = 0
        self.offset = 0
        self.disk_ms = 3
        #: The maximum duration of a truncation, during which the store is closed.
        self.cut_ms_max = 3
        #: The maximum time until its engine is ready to lead; may be longer than an election.
        self.opening_ms_max = 80
        #: The maximum time until another node reports what precedes a log; NEVER_MS: none does.
        self.telling_ms = 3
        #: Whether the disk has free space.
        self.room = True
        self._world = world
        self._settings = settings
        self._life = 0
        self._waking_at = 0
        self._inbox: list[Input] = []
        self._flushing = False
        self._flush_again = False
        self._flush_serial = 0
        self._vote_saved_at = 0
        self._leading = self._asking = False
        self._owed: list[tuple[int, int, bytes]] = []

    # -- lifecycle -------------------------------------------------------------------------------

    def clock(self) -> int:
        """Its monotonic time, which continues while the process is stopped."""
        now = self._world.now
        return self.offset + now + now * self.drift // 1_000_000

    def start(self) -> None:
        """Start a process with the content of its disk."""
        epochs = self.disk.epochs()
        self.disk.confirmed = self.disk.first_position
        self._world.rules.recovered(self.name, epochs)
        vote = self.disk.vote
        epoch, voted_for, joining, lived = vote or (0, "", True, False)
        joining = must_join(
            found=vote is not None,
            joining=joining,
            lived=lived,
            end=len(self.disk.pages),
            born_anyway=False,
        )
        if joining and len(self._settings.members) > 1:
            self._world.rules.joining.add(self.name)
        elif self.name in self._world.rules.joining:
            self._world.rules.joined(self.name)
        self.member = RaftNode(
            self._settings,
            PersistentState(
                epochs,
                epoch,
                voted_for,
                first_position=self.disk.first_position,
                confirmed=self.disk.first_position,
                flushed=self.disk.first_position,
                joining=joining,
                lived=lived,
            ),
            chance=self._world.chance,
            source=self.disk,
            now_ms=self.clock(),
        )
        self._world.rules.living[self.name] = self.member.log.epochs
        self.run(())

    def die(self, *, power: bool) -> None:
        """End the process; with `power`, unflushed data may be lost."""
        self.member = None
        self._world.rules.living.pop(self.name, None)
        self.paused = False
        self._life += 1
        self._waking_at = 0
        self._inbox.clear()
        self._owed.clear()
        self._flushing = self._flush_again = self._leading = self._asking = False
        self.disk.closed = False
        self._vote_saved_at = 0
        if power:
            self.disk.lose_power()

    def resume(self) -> None:
        """Continue a stopped process, with the inputs received in the meantime."""
        self.paused = False
        waiting, self._inbox = self._inbox, []
        self._waking_at = 0
        self.run(waiting)

    # -- inputs ----------------------------------------------------------------------------------

    def receive(self, item: Input) -> None:
        """Receive an input; a process that is down ignores it."""
        if self.paused:
            self._inbox.append(item)
        elif self.member is not None:
            self.run((item,))

    def _later(self, delay_ms: int, does: Does) -> None:
        """Schedule a call for this process; the disk also works while the process is stopped."""
        life = self._life

        def still() -> None:
            if life == self._life:
                does()

        self._world.after(delay_ms, still)

    def run(self, inputs: Sequence[Input]) -> None:
        """Run one loop iteration, and those that follow from it immediately."""
        member = self.member
        assert member is not None
        while True:
            follow: list[Input] = []
            for effect in member.handle(self.clock(), inputs):
                self._perform(member, effect, follow)
            self._answer(member)
            if not follow:
                break
            inputs = follow
        self._wake_later(member)

    def _wake_later(self, member: RaftNode) -> None:
        wait = max(1, member.wake_at_ms - self.clock())
        at = self._world.now + min(wait, 1 << 20)
        if self._waking_at <= self._world.now or at < self._waking_at:
            self._waking_at = at
            self._later(at - self._world.now, lambda: self._wake(at))

    def _wake(self, at: int) -> None:
        member = self.member
        if member is None or self.paused or at != self._waking_at:
            return
        if member.wake_at_ms <= self.clock():
            self.run(())
        else:
            self._waking_at = 0
            self._wake_later(member)

    # -- effects ---------------------------------------------------------------------------------

    def _perform(self, member: RaftNode, effect: Effect, follow: list[Input]) -> None:
        match effect:
            case raft_effects.Send(to, message, body):
                self._world.carry(self.name, to, raft_inputs.MessageReceived(message, body))
            case raft_effects.WriteChunk(position, _, epoch, body):
                self._write(member, position, epoch, bytes(body), follow)
            case raft_effects.FlushLog():
                self._flush()
            case raft_effects.RoleChanged(role, epoch, _, start):
                self._role_changed(role, epoch, start)
            case raft_effects.Committed(position):
                self._world.rules.confirms(self.name, self.disk.confirmed, position)
                self.disk.confirmed = position
            case raft_effects.SaveVote():
                self._save_vote(effect)
            case TruncateLog(position):
                self._world.rules.cuts(self.name, position)
                self._close_store(lambda: self._cut(position))
            case raft_effects.DiscardLog():
                self._ask_what_came_before()
            case raft_effects.Fetch():
                self._world.ask(self.name, effect)
            case raft_effects.Halt(reason):
                raise RuleBroken(f"{self.name} halts: {reason}")
            case raft_effects.TransferFailed():
                pass
            case raft_effects.NeedsRepair(position, _):
                raise RuleBroken(f"{self.name} cannot read its log at {position}")

    def _write(
        self, member: RaftNode, position: int, epoch: int, body: bytes, follow: list[Input]
    ) -> None:
        if not self.room or position > len(self.disk.pages):  # the first causes the second
            follow.append(raft_inputs.WriteFailed(position))
            return
        self.disk.write(position, body)
        # A pending truncation is already visible in the member's epochs.
        epochs = None if member.log.truncating else member.log.epochs
        self._world.rules.written(self.name, position, epoch, body, epochs)

    def _disk_time(self) -> int:
        return 1 + int(self._world.chance.random() * self.disk_ms)

    def _flush(self) -> None:
        if self._flushing:
            self._flush_again = True
            return
        self._flushing = True
        self._flush_again = False
        writes, end = self.disk.begin_flush()
        serial = self._flush_serial
        self._later(self._disk_time(), lambda: self._flushed(serial, writes, end))

    def _close_store(self, does: Does) -> None:
        """Close the store for a truncation; flushes in progress are void."""
        self.disk.closed = True
        self._flush_serial += 1
        self._flushing = self._flush_again = False
        self._later(1 + int(self._world.chance.random() * self.cut_ms_max), does)

    def _flushed(self, serial: int, writes: int, end: int) -> None:
        if serial != self._flush_serial:
            return
        self.disk.end_flush(writes)
        self._flushing = False
        if self._flush_again:
            self._flush()
        self.receive(raft_inputs.LogFlushed(end))

    def _save_vote(self, vote: raft_effects.SaveVote) -> None:
        """Save votes in order: an older vote never replaces a newer one."""
        now = self._world.now
        self._vote_saved_at = max(self._vote_saved_at, now + self._disk_time())
        self._later(self._vote_saved_at - now, lambda: self._vote_saved(vote))

    def _vote_saved(self, vote: raft_effects.SaveVote) -> None:
        self.disk.vote = (vote.epoch, vote.voted_for, vote.joining, vote.lived)
        if not vote.joining and self.name in self._world.rules.joining:
            self._world.rules.joined(self.name)
        self.receive(raft_inputs.VoteSaved())

    def _cut(self, position: int) -> None:
        self.disk.closed = False
        self.disk.cut(position)
        self.receive(raft_inputs.LogTruncated())

    def _ask_what_came_before(self) -> None:
        """Ask the other nodes until one replies, or until the answer is no longer needed."""
        if not self._asking:
            self._asking = True
            self._later(1 + int(self._world.chance.random() * self.telling_ms), self._told)

    def _told(self) -> None:
        self._asking = False
        member = self.member
        assert member is not None
        if self.paused:
            self._asking = True
            self._later(1, self._told)
        elif member.wants_to_begin:
            found = self._world.beginning(self.name) if self.telling_ms < NEVER_MS else None
            if found is not None and member.may_begin(*found):
                position, epoch = found
                self._close_store(lambda: self._begin(position, epoch))
            else:
                self._ask_what_came_before()

    def _begin(self, position: int, epoch: int) -> None:
        self.disk.closed = False
        self.disk.begin(position, epoch)
        self.disk.confirmed = position
        assert self.member is not None
        self._world.rules.living[self.name] = self.member.log.epochs
        self.receive(raft_inputs.LogRestarted())

    def _role_changed(self, role: RaftRole, epoch: int, start: int) -> None:
        self._leading = False
        self._owed.clear()
        if role is not RaftRole.LEADER:
            return
        member = self.member
        assert member is not None
        self._world.rules.leads(self.name, epoch, member.log.epochs)
        assert start == len(self.disk.pages)
        wait = int(self._world.chance.random() ** 3 * self.opening_ms_max)
        self._later(wait, lambda: self._open(epoch))

    def _open(self, epoch: int) -> None:
        """The engine is ready; start to lead unless another member leads by now."""
        member = self.member
        if self.paused:
            self._later(1, lambda: self._open(epoch))
        elif member is not None and member.role is RaftRole.LEADER and member.epoch == epoch:
            self._leading = True
            self.run((self._append(epoch, opening_cell(epoch)),))

    def _append(self, epoch: int, cell: bytes) -> raft_inputs.Appended:
        position = len(self.disk.pages)
        self._world.rules.appended(epoch, position, cell)
        self.disk.write(position, cell)
        self._flush()
        return raft_inputs.Appended(epoch, position + len(cell))

    # -- clients ---------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """True if this process accepts client messages."""
        return self._leading and not self.paused

    def send(self, values: Sequence[int]) -> None:
        """Client messages: appended immediately, acknowledged when they are committed."""
        member = self.member
        assert member is not None
        cells = [data_cell(member.epoch, value) for value in values]
        end = len(self.disk.pages)
        for value, cell in zip(values, cells, strict=True):
            end += CELL_BYTES
            self._owed.append((end, value, cell))
        self.run((self._append(member.epoch, b"".join(cells)),))

    def _answer(self, member: RaftNode) -> None:
        confirmed = member.log.confirmed
        while self._owed and self._owed[0][0] <= confirmed:
            if not member.may_acknowledge(self.clock()):
                break
            end, value, cell = self._owed.pop(0)
            self._world.rules.acknowledges(self.name, value, end, cell)

    @property
    def is_leader(self) -> bool:
        """True if its core leads, whether or not its engine is ready."""
        return self.member is not None and self.member.role is RaftRole.LEADER

    def may_acknowledge(self) -> bool:
        """True if its core may acknowledge now."""
        member = self.member
        return member is not None and not self.paused and member.may_acknowledge(self.clock())

    def fetch(self, wanted: raft_effects.Fetch) -> raft_inputs.Fetched | None:
        """This member's reply to a request for its log; None while it cannot reply."""
        member = self.member
        if member is None or self.paused or member.log.truncating:
            return None
        log = member.log
        position = max(wanted.position, log.first_position)
        end, body, epoch = position, b"", log.epochs.epoch_at(min(position, log.end))
        if position == wanted.position and position < log.confirmed:
            run = log.epochs.run_from(position)
            piece = self.disk.read_chunk(position, min(run.end, log.confirmed), wanted.max_bytes)
            end, body, epoch = piece.end, piece.data, run.epoch
        answer = FetchLogResponse(
            position=position,
            end=end,
            previous_epoch=log.epochs.epoch_at(min(position, log.end)),
            data_epoch=epoch,
            confirmed=log.confirmed,
            first_position=log.first_position,
        )
        return raft_inputs.Fetched(wanted.serial, answer, body)
