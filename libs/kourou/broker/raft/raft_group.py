"""A broker's Raft replica: runs the Raft core and executes its effects.

The replica lives as long as the process; heartbeats, votes and replication continue while the
broker's core is replaced. While the log is truncated or restarted no store is attached; the Raft
core then requests no write, no read and no flush.

The Raft core is called only between iterations of the broker's loop: a broker core that is stopped
appends nothing afterwards.

State: log (votes, and the leader's bytes, through their executors); soft: roles, the committed
position.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kourou.broker.raft.peer_links import PeerLinks
from kourou.broker.raft.repairs import DamagedLog, Repairs
from kourou.broker.storage.store_runtime import StoreRuntime
from kourou.clock import Clock
from kourou.engine import inputs as engine
from kourou.engine.ports import JOINING, QuorumMember
from kourou.errors import Corrupt, DiskFull, KourouError, Rejected
from kourou.protocol.messages.replication import ChunkAck, FetchLog, FetchLogResponse, LogChunk
from kourou.replication.epochs import Epochs, TruncateLog
from kourou.replication.raft import effects as raft_effects
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.effects import Effect, RaftRole, RoleChanged
from kourou.replication.raft.election import must_join
from kourou.replication.raft.inputs import Buffer, Chance, Input
from kourou.replication.raft.leader import RaftLeader
from kourou.replication.raft.node import PersistentState, RaftNode, RaftSettings
from kourou.store.disk import Disk
from kourou.store.paths import StorePaths
from kourou.store.replica.chunks import StoredChunk
from kourou.store.replica.replica_files import StoredVote, VoteFile
from kourou.store.store import Store

if TYPE_CHECKING:
    from kourou.broker.telemetry.spans import CopySpans

_log = logging.getLogger("kourou.raft")


WAIT_MS_MAX = 60_000
PREFER_PAUSE_MS = 10_000
"""Pause between two attempts to transfer leadership to the preferred replica."""


@dataclass(frozen=True, slots=True)
class GroupCallbacks:
    """The callbacks of the group: `role` for a new role, `cut` and `begin` for changes of the log.

    They are called between iterations of the broker's loop. `post` passes an input to the current
    broker core; `failed` ends the process.
    """

    role: Callable[[RoleChanged], None]
    cut: Callable[[TruncateLog], None]
    begin: Callable[[raft_effects.DiscardLog], None]
    post: Callable[[engine.Input], None]
    failed: Callable[[BaseException], None]


class RaftGroup:
    """One replica of a Raft group; implements kourou.engine.ports.Quorum.

    All calls must be made on the running loop.
    """

    def __init__(
        self,
        settings: RaftSettings,
        clock: Clock,
        links: PeerLinks,
        chance: Chance,
        callbacks: GroupCallbacks,
        preferred: str | None = None,
        *,
        born_anyway: bool = False,
    ) -> None:
        """`preferred` leads if possible; `born_anyway`: vote even if this disk has lost data."""
        self._born_anyway = born_anyway
        self.settings = settings
        self._preferred = preferred
        self._prefer_at_ms = 0
        self._voter_status = VoterStatusLog(clock.monotonic_ms())
        self._clock = clock
        self._links = links
        self._chance = chance
        self._callbacks = callbacks
        self._vote: VoteWriter | None = None
        self._store_runtime: StoreRuntime | None = None
        self._core: RaftNode | None = None
        self._inbox: deque[Input] = deque()
        self._takes_part = self._in_turn = self._soon = False
        self._appended: raft_inputs.Appended | None = None
        self._waking: asyncio.TimerHandle | None = None
        self._waking_at = 0
        self._leader_end = 0
        self._copies: CopySpans | None = None
        self._repairs = Repairs(
            settings.group,
            settings.peers,
            log=self._damaged,
            fetch=links.fetch,
            repaired=self._turn_soon,
            failed=callbacks.failed,
        )
        self.leader_address = ""

    # -- lifecycle ---------------------------------------------------------------------------------

    def prepare(
        self,
        store_runtime: StoreRuntime,
        epochs: Sequence[tuple[int, int]],
        vote: VoteWriter,
        address: str,
        copies: CopySpans | None = None,
    ) -> None:
        """Create the Raft core with this log and this vote; reads files. Raises what `read` raises.

        `address` is this replica's address for clients. `copies` receives what is shipped,
        acknowledged and committed, for traced requests.
        """
        self._copies = copies
        self._store_runtime, self._vote = store_runtime, vote
        boot = boot_of(store_runtime.store, epochs, vote.read(), born_anyway=self._born_anyway)
        self._core = RaftNode(
            replace(self.settings, address=address),
            boot,
            chance=self._chance,
            source=self,
            now_ms=self._clock.monotonic_ms(),
        )

    def open(self) -> None:
        """Join the group."""
        self._links.open()
        self._takes_part = True
        self._turn()

    def detach(self) -> None:
        """Detach the store, which is about to be closed to truncate or restart the log."""
        self._store_runtime = None

    def attach(
        self, store_runtime: StoreRuntime, done: raft_inputs.LogTruncated | raft_inputs.LogRestarted
    ) -> None:
        """Attach the reopened store after the requested change.

        Raises Corrupt if the log is not as requested.
        """
        found = store_runtime.opened.recovered.control.replicas.epochs
        if isinstance(done, raft_inputs.LogTruncated):
            wanted, end = self._member.log.epochs, store_runtime.store.end
            pairs = [pair for pair in wanted.opened() if pair[1] < end]
            if end != wanted.end or found != pairs:
                raise Corrupt(
                    f"the log should have been truncated to {wanted!r}, but is "
                    f"{Epochs(found, end)!r}"
                )
        self._store_runtime = store_runtime
        self._enqueue(done)

    async def stop(self) -> None:
        """Leave the group: nothing is received, sent or written any more."""
        self._takes_part = False
        if self._waking is not None:
            self._waking.cancel()
        self._repairs.stop()
        self._links.close()
        if self._vote is not None:
            await self._vote.stop()

    # -- inputs ------------------------------------------------------------------------------------

    def received(self, messages: Sequence[raft_inputs.MessageReceived]) -> None:
        """Handle messages of other replicas; ignored before `open`, as if lost on the network."""
        if not self._takes_part:
            return
        self._inbox += messages
        chunk: LogChunk | None = None
        for each in messages:
            match each.message:
                case LogChunk():
                    chunk = each.message
                case ChunkAck() if self._copies:
                    self._copies.acknowledged(each.message.member, each.message)
        self._turn()
        if chunk is not None and chunk.leader == self.leader:
            self._leader_end, self.leader_address = chunk.leader_end, chunk.address
        self._repairs.look()

    def appended(self, end: int) -> None:
        """Record appends of the leading broker core; handled once, after its loop iteration."""
        self._appended = raft_inputs.Appended(self._member.log.epochs.newest, end)
        self._turn_soon()

    def flushed(self, position: int) -> None:
        """Record that the log is on disk below `position`; ignored while no store is attached."""
        if self._store_runtime is not None:
            self._enqueue(raft_inputs.LogFlushed(position))

    def vote_saved(self) -> None:
        """Record that the oldest pending vote is on disk."""
        self._enqueue(raft_inputs.VoteSaved())

    def transfer_leadership(self, target: str) -> None:
        """Transfer leadership to `target`, for an operator; "" is the most up-to-date replica."""
        self._enqueue(raft_inputs.TransferLeadership(target))

    def store_failed(self, reason: str) -> None:
        """Record a disk failure: the process ends, and acknowledges nothing until then."""
        self._enqueue(raft_inputs.DiskFailed(reason))

    def _enqueue(self, item: Input) -> None:
        self._inbox.append(item)
        self._turn_soon()

    # -- iterations --------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._soon and not self._in_turn:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Pass inputs to the Raft core and execute its effects, until nothing is left."""
        self._soon = False
        if self._in_turn or not self._takes_part:
            return
        self._in_turn = True
        try:
            self._handle(self._member)
        except Exception as error:  # noqa: BLE001 - whatever it is, the state is not to be trusted
            _log.critical(
                "raft-replica-failed: the Raft replica failed unexpectedly", exc_info=error
            )
            self._takes_part = False
            self._callbacks.failed(error)
        finally:
            self._in_turn = False

    def _handle(self, core: RaftNode) -> None:
        while self._takes_part:
            inputs = self._taken(core)
            for effect in core.handle(self._clock.monotonic_ms(), inputs):
                self._perform(effect)
            if not self._inbox and self._appended is None:
                break
        if self._takes_part:
            self._wake_at(core.wake_at_ms)

    def _taken(self, core: RaftNode) -> list[Input]:
        """Return the pending inputs; appends come before messages that arrived later."""
        inputs: list[Input] = []
        if self._appended is not None:
            inputs.append(self._appended)
            self._appended = None
            self._flush()
        if self._store_runtime is not None:
            first, _ = self._store_runtime.store.log_range()
            if first > core.log.first_position:
                inputs.append(raft_inputs.SegmentsDeleted(first))
        inputs += self._inbox
        self._inbox.clear()
        return inputs

    def _wake_at(self, at_ms: int) -> None:
        """Set the single timer: moved if an earlier time is needed, set again when it fires."""
        if self._waking is not None:
            if self._waking_at <= at_ms:
                return
            self._waking.cancel()
        wait_ms = min(max(at_ms - self._clock.monotonic_ms(), 1), WAIT_MS_MAX)
        self._waking_at = at_ms
        self._waking = asyncio.get_running_loop().call_later(wait_ms / 1_000, self._woken)

    def _woken(self) -> None:
        self._waking = None
        self._turn()
        self._repairs.look()
        self._give_way()
        self._voter_status.look(self._member, self._clock.monotonic_ms())

    def _give_way(self) -> None:
        """Transfer leadership to the preferred replica when it is near the end of the log."""
        name, now_ms = self._preferred, self._clock.monotonic_ms()
        if name is None or name == self.member or now_ms < self._prefer_at_ms:
            return
        near = self._member.log.end - self.settings.chunk_bytes
        fresh_ms = self.settings.election_timeout_ms_min
        for each in self.followers():
            heard = each.heard_ms_ago is not None and each.heard_ms_ago < fresh_ms
            if each.member == name and heard and each.written >= near:
                self._prefer_at_ms = now_ms + PREFER_PAUSE_MS
                _log.info(
                    "leadership-transfer-started: transferring leadership to %(target)s, the "
                    "preferred leader",
                    {"target": name},
                )
                self.transfer_leadership(name)

    # -- effects -----------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case raft_effects.Send(member, message, body):
                self._links.send(member, message, body)
                if self._copies is not None and isinstance(message, LogChunk):
                    self._copies.shipped(member, message)
            case raft_effects.WriteChunk():
                self._write(effect)
            case raft_effects.FlushLog():
                self._flush()
            case raft_effects.Committed(position):
                if self._copies:
                    self._copies.confirmed(position)
                self._callbacks.post(engine.Confirmed(position))
            case raft_effects.SaveVote():
                assert self._vote is not None
                self._vote.save(
                    StoredVote(effect.epoch, effect.voted_for, effect.joining, effect.lived)
                )
                self._voter_status.written(joining=effect.joining)
            case raft_effects.RoleChanged():
                self._role_changed(effect)
            case TruncateLog():
                self._callbacks.cut(effect)
            case raft_effects.DiscardLog():
                self._callbacks.begin(effect)
            case raft_effects.Fetch():
                self._fetch(effect)
            case raft_effects.NeedsRepair():
                self._repairs.look()
            case raft_effects.TransferFailed(target, reason):
                _log.warning(
                    "leadership-transfer-failed: the transfer of leadership to %(target)s failed: "
                    "%(reason)s",
                    {"target": target or "the most up-to-date replica", "reason": reason},
                )
            case raft_effects.Halt(reason):
                _log.critical(
                    "raft-replica-halted: this replica stops: %(reason)s", {"reason": reason}
                )
                self._callbacks.failed(Corrupt(reason))

    def _write(self, effect: raft_effects.WriteChunk) -> None:
        """Append a chunk.

        One that does not fit, or for which there is no space, is sent again, as are the chunks
        after it. StoreFaulted ends the process.
        """
        assert self._store_runtime is not None
        copies = self._copies
        began_ns = 0 if copies is None else copies.now_ns()
        try:
            end = self._store_runtime.store.append_chunk(effect.position, effect.body)
        except (Corrupt, Rejected, DiskFull) as error:
            _log.warning(
                "replication-write-failed: data from the leader was not stored: %(error)s",
                {"error": error},
            )
            self._inbox.append(raft_inputs.WriteFailed(effect.position))
            return
        if copies is not None:
            copies.replicated(effect.body, end, began_ns)
        self._callbacks.post(engine.Copied(end))
        self._store_runtime.executor.copied()

    def _flush(self) -> None:
        if self._store_runtime is not None:
            self._store_runtime.flush()

    def _role_changed(self, effect: RoleChanged) -> None:
        _log.info(
            "raft-role-changed: epoch %(epoch)d: this replica is now %(role)s; the leader is "
            "%(leader)s",
            {
                "epoch": effect.epoch,
                "role": effect.role.value,
                "leader": effect.leader or "unknown",
            },
        )
        if not effect.leader:
            self.leader_address = ""
        self._callbacks.role(effect)

    # -- requests to other replicas ----------------------------------------------------------------

    def _fetch(self, effect: raft_effects.Fetch) -> None:
        def done(answer: FetchLogResponse | KourouError, body: Buffer) -> None:
            if isinstance(answer, KourouError):
                self._enqueue(raft_inputs.FetchFailed(effect.serial))
            else:
                self._enqueue(raft_inputs.Fetched(effect.serial, answer, body))

        request = FetchLog(
            group=self.settings.group, position=effect.position, max_bytes=effect.max_bytes
        )
        self._links.fetch(effect.member, request, done, self.settings.fetch_timeout_ms)

    def _damaged(self) -> DamagedLog | None:
        log = self._member.log
        if self._store_runtime is None or log.truncating:
            return None
        return DamagedLog(self._store_runtime.store, log.epochs, log.confirmed)

    # -- kourou.replication.raft.inputs.PieceSource ------------------------------------------------

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> StoredChunk:
        """Return whole records of the log; see kourou.store.replica.copies."""
        assert self._store_runtime is not None
        return self._store_runtime.store.read_chunk(position, limit, max_bytes)

    # -- kourou.engine.ports.Quorum ----------------------------------------------------------------

    @property
    def _member(self) -> RaftNode:
        assert self._core is not None
        return self._core

    @property
    def group(self) -> str:
        """The name of the group."""
        return self.settings.group

    @property
    def member(self) -> str:
        """The name of this replica."""
        return self.settings.member

    @property
    def state(self) -> str:
        """The role; "joining" for a follower that may not vote yet."""
        core = self._member
        waits = core.joining is not None and core.role is RaftRole.FOLLOWER
        return JOINING if waits else core.role.value

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._member.epoch

    @property
    def epochs(self) -> Epochs:
        """The epoch history of the log."""
        return self._member.log.epochs

    @property
    def leader(self) -> str:
        """The leader of the epoch; "" if unknown."""
        return self._member.leader

    @property
    def leader_end(self) -> int:
        """The end of the leader's log in its last message."""
        return self._leader_end

    @property
    def wants_to_begin(self) -> bool:
        """Does it need the state before the start of its leader's log?"""
        return self._member.wants_to_begin

    def may_begin(self, position: int, epoch: int) -> bool:
        """May the log be restarted there? If so, the replica accepts nothing until that is done."""
        return self._member.may_begin(position, epoch)

    @property
    def confirmed(self) -> int:
        """The committed position: everything below it is durable at a majority."""
        return self._member.log.confirmed

    def may_acknowledge(self) -> bool:
        """Is this replica the leader, and certainly the only one, at this moment?"""
        return self._takes_part and self._member.may_acknowledge(self._clock.monotonic_ms())

    def may_append(self) -> bool:
        """May it append? A leader may, unless it is transferring leadership."""
        part = self._member.behavior
        return isinstance(part, RaftLeader) and not part.transfer.target

    def leads(self, epoch: int) -> bool:
        """Does it lead this epoch?"""
        return self.leading_epoch == epoch

    @property
    def leading_epoch(self) -> int:
        """The epoch that it leads; 0 if it does not lead."""
        core = self._member
        return core.epoch if core.role is RaftRole.LEADER else 0

    def followers(self) -> Sequence[QuorumMember]:
        """Return the other replicas as seen by the leader; empty on other replicas."""
        part = self._member.behavior
        if not isinstance(part, RaftLeader):
            return ()
        now_ms = self._clock.monotonic_ms()
        places = {name: number for number, name in enumerate(sorted(self.settings.members), 1)}
        return [
            QuorumMember(
                name,
                places[name],
                JOINING.upper() if name in part.admission else each.state.name,
                each.written,
                each.flushed,
                now_ms - each.heard_ms if each.round else None,
            )
            for name, each in part.peers.items()
        ]


# -- the right to vote -----------------------------------------------------------------------------


UNKNOWN = StoredVote(0, "", joining=True, lived=False)
"""The assumed vote if there is no vote file."""

WARN_MS = 10_000
"""Interval of the warning that a replica cannot vote, and what it waits for."""


def boot_of(
    store: Store, epochs: Sequence[tuple[int, int]], found: StoredVote | None, *, born_anyway: bool
) -> PersistentState:
    """Return the Raft core's start state.

    `found` is the content of the vote file; `born_anyway`: an operator allows it to vote.
    """
    first, end = store.log_range()
    vote = found or UNKNOWN
    if born_anyway:
        _log.warning(
            "raft-group-forced: raftNewGroup=true: this replica votes, even if it lost data that "
            "it had"
        )
    joining = must_join(
        found=found is not None,
        joining=vote.joining,
        lived=vote.lived,
        end=end,
        born_anyway=born_anyway,
    )
    return PersistentState(
        Epochs(epochs, end),
        vote.epoch,
        vote.voted_for,
        first_position=first,
        confirmed=first,
        flushed=min(store.flushed, end),
        joining=joining,
        lived=vote.lived,
    )


class VoterStatusLog:
    """Logs warnings while a replica waits for permission to vote, and when that ends."""

    def __init__(self, now_ms: int) -> None:
        self._joining = False
        self._warn_at_ms = now_ms + WARN_MS

    def written(self, *, joining: bool) -> None:
        """Record the status of a vote that was written."""
        if self._joining and not joining:
            _log.info("vote-allowed: this replica may vote now")
        self._joining = joining

    def look(self, member: RaftNode, now_ms: int) -> None:
        """Warn, at intervals, why the group does not start."""
        if member.joining is None or member.leader or now_ms < self._warn_at_ms:
            return
        self._warn_at_ms = now_ms + WARN_MS
        _log.warning(
            "vote-forbidden: this replica cannot vote: its store is new, or was lost. It may vote "
            "when it has caught up with a leader; a new group starts when all replicas report that "
            "they are new, and these did not: %(members)s",
            {"members": ", ".join(member.joining.awaited())},
        )


class VoteWriter:
    """Writes votes to disk, in order, before they are reported.

    An election waits for this write, so it has a thread of its own: the loop's other threads may
    all be busy with flushes. `saved` is called on the loop once per save, in their order.

    `failed` is called once with a disk error; nothing is written or reported after that, because
    the content of the disk is unknown and the process must end.
    """

    def __init__(
        self,
        disk: Disk,
        paths: StorePaths,
        *,
        saved: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._file = VoteFile(disk, paths)
        self._saved = saved
        self._failed = failed
        self._thread = ThreadPoolExecutor(1, "kourou-vote")
        self._over = False

    def read(self) -> StoredVote | None:
        """Return the vote that was written last; None if there is none.

        Blocks; must be called before the first `save`. Raises Corrupt if the vote is unreadable,
        and OSError.
        """
        return self._file.load()

    def save(self, vote: StoredVote) -> None:
        """Write a vote, "" for none; `saved` is called when it survives a power loss."""
        if self._over:
            return
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._thread, self._write, vote)
        writing.add_done_callback(self._written)

    def _write(self, vote: StoredVote) -> None:
        self._file.save(vote.epoch, vote.voted_for, joining=vote.joining, lived=vote.lived)

    def _written(self, writing: asyncio.Future[None]) -> None:
        if self._over:
            return
        if writing.cancelled():
            self._over = True
            return
        error = writing.exception()
        if error is None:
            self._saved()
        else:
            self._over = True
            self._failed(error)

    async def stop(self) -> None:
        """Wait for the write in progress; no callback is called afterwards."""
        self._over = True
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
