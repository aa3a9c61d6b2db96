"""The follower's side of static replication: which bytes it accepts, and how it acknowledges them.

State: soft; the bytes are in the store, and their epochs in the log itself.

    DETACHED     no connection to the leader
    ATTACHING    attach request sent; the reply has the position up to which both logs agree
    FOLLOWING    accepts chunks
    REFUSED      may not follow, `reason` says why; tries again periodically

    state        event                     state
    any          connected                 ATTACHING
    any          disconnected              DETACHED
    ATTACHING    attached                  FOLLOWING
    ATTACHING    refused, or it would      REFUSED
                 have to truncate
                 acknowledged data
    ATTACHING    the leader's log starts   REFUSED, until the log restarts there
                 above the common part
    FOLLOWING    silence, a wrong epoch    ATTACHING
    FOLLOWING    the leader's log starts   ATTACHING
                 above the end of this one
    ATTACHING    silence                   ATTACHING
    REFUSED      the next attempt          ATTACHING

Invariants:  written <= taken; bytes are accepted in order, without a gap, each once
             `confirmed` <= written, and never decreases
             data acknowledged to a producer (SYNC_MASTER) is truncated only with an operator's
             consent
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kourou.protocol.messages.replication import Attach, Attached, ChunkAck, LogChunk
from kourou.replication.epochs import Epochs
from kourou.replication.progress import Lag

SILENT_MS = 5_000
"""A leader sends its positions every second; after this silence the follower attaches again."""


NOT_COPIED_MS = 1_000
"""After a failed write, chunks are ignored for this long."""


class FollowerStep(Enum):
    """The state of a follower."""

    DETACHED = auto()
    ATTACHING = auto()
    FOLLOWING = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class AppendBytes:
    """Append these bytes of the leader; `damage`: why they are not readable records, "" if they
    are.
    """

    position: int
    end: int
    data: memoryview
    damage: str = ""


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the log at `position`, before anything is appended: the rest is not the leader's."""

    position: int


@dataclass(frozen=True, slots=True)
class RestartAt:
    """Effect: start an empty log at `position`, because the leader's log starts there.

    The state before `position` is fetched from the leader first, and the core restarted; if that
    fails, the core requests it again. Both logs had the same bytes up to `common`; later bytes
    belong to no leader any more, and are kept for the operator.
    """

    position: int
    common: int


@dataclass(frozen=True, slots=True)
class SendToLeader:
    """Send this to the leader."""

    message: Attach | ChunkAck


@dataclass(frozen=True, slots=True)
class FollowerIdentity:
    """The identity of a follower."""

    cluster: str
    broker_name: str
    broker_id: int
    accept_cut_at: int | None = None
    """An operator accepts the loss of acknowledged data from this position on."""


class Copying:
    """One follower's replica of a log that starts at `first`; all of `epochs` is on disk.

    `promised`: according to the log, all data below that position may have been acknowledged to
    producers because of this replica; the owner keeps it up to date.
    """

    def __init__(
        self, member: FollowerIdentity, epochs: Epochs, first: int, *, promised: int = 0
    ) -> None:
        self._member = member
        self.promised = promised
        self._epochs = epochs
        self._first = first
        self.step = FollowerStep.DETACHED
        self.reason = ""
        self.written = self.flushed = epochs.end
        self.epoch = 0
        self.leader_end = 0
        self.heard_ms = 0
        self._confirmed = 0
        self._round = 0
        self._ack_due = False
        self._deaf_to_ms = 0
        self._signed_ms: int | None = None  # the leader's last message
        self._lag = Lag()
        self.flush_wanted = False

    @property
    def epochs(self) -> Epochs:
        """The history of the accepted bytes; must not be changed."""
        return self._epochs

    @property
    def taken(self) -> int:
        """The position where the next chunk must start."""
        return self._epochs.end

    @property
    def confirmed(self) -> int:
        """Data below is committed, and written here."""
        return min(self._confirmed, self.written)

    @property
    def lag_bytes(self) -> int:
        """Bytes that the leader has and this replica does not, as far as is known."""
        return max(0, self.leader_end - self.written)

    def lag_ms(self, now_ms: int) -> int | None:
        """Time since this replica had everything the leader had; None if never, or unknown.

        An idle leader counts as idle until its next heartbeat.
        """
        silent_ms = self.silent_ms(now_ms)
        if silent_ms is not None and self.step is FollowerStep.FOLLOWING and self.lag_bytes == 0:
            return 0
        return self._lag.ms(now_ms)

    def silent_ms(self, now_ms: int) -> int | None:
        """Time since the leader's last message; None if it is considered offline."""
        if self.step is FollowerStep.DETACHED or self._signed_ms is None:
            return None
        silent_ms = now_ms - self._signed_ms
        return silent_ms if silent_ms <= SILENT_MS else None

    # -- attaching --------------------------------------------------------------------------------

    def connected(self, now_ms: int) -> SendToLeader:
        """A connection to the leader exists: request its log."""
        self._signed_ms = now_ms
        return self._ask(now_ms)

    def disconnected(self) -> None:
        """The connection is closed."""
        self.step = FollowerStep.DETACHED

    def tick(self, now_ms: int) -> list[SendToLeader]:
        """Send the request again after a silence."""
        if self.step is FollowerStep.DETACHED or now_ms - self.heard_ms < SILENT_MS:
            return []
        return [self._ask(now_ms)]

    def _ask(self, now_ms: int) -> SendToLeader:
        self.step, self.heard_ms = FollowerStep.ATTACHING, now_ms
        self._ack_due = self.flush_wanted = False
        member = self._member
        return SendToLeader(
            Attach(
                cluster=member.cluster,
                broker_name=member.broker_name,
                broker_id=member.broker_id,
                epochs=self._epochs.summary(),
                end=self._epochs.end,
                first_position=self._first,
            )
        )

    def attached(self, now_ms: int, answer: Attached) -> list[TruncateTo | RestartAt]:
        """Handle the leader's reply. If the log must be truncated, that happens before the next
        request.

        Restarting the log needs more than this follower has; if it fails, the request is repeated
        later.
        """
        member = self._member
        who = answer.broker_name, answer.broker_id
        if self.step is not FollowerStep.ATTACHING or who != (member.broker_name, member.broker_id):
            return []
        self.heard_ms = self._signed_ms = now_ms
        if answer.refusal:
            self._refuse(f"the leader refuses this follower: {answer.refusal}")
            return []
        if answer.begin_at or answer.common < self.taken:
            promised = min(self.promised, self.taken)
            if answer.common < promised and member.accept_cut_at != answer.common:
                self._refuse(
                    f"the leader's log parts from this one at {answer.common}, and senders were "
                    f"promised what this follower has up to {promised}: the leader has lost it. "
                    "Promote this follower, or give its copy up with "
                    f"acceptDataLoss={answer.common}"
                )
                return []
            if answer.begin_at:
                self._refuse(
                    f"the leader's log now starts at {answer.begin_at}, and this log has the "
                    f"same bytes up to {answer.common}: it restarts there"
                )
                return [RestartAt(answer.begin_at, answer.common)]
            self.step = FollowerStep.DETACHED
            return [TruncateTo(answer.common)]
        self.step, self.reason, self.epoch = FollowerStep.FOLLOWING, "", answer.epoch
        self._round = 0
        return []

    def _refuse(self, reason: str) -> None:
        self.step, self.reason = FollowerStep.REFUSED, reason

    # -- bytes ------------------------------------------------------------------------------------

    def chunk(
        self, now_ms: int, chunk: LogChunk, data: memoryview
    ) -> list[AppendBytes | SendToLeader]:
        """Handle a chunk or heartbeat; returns refusals. `turn` returns the acknowledgements."""
        if self.step is not FollowerStep.FOLLOWING or chunk.group != self._member.broker_name:
            return []
        self._signed_ms = now_ms
        if now_ms < self._deaf_to_ms:
            return []
        if chunk.epoch < self.epoch:
            return [self._refusal(chunk.position)]
        if chunk.epoch > self.epoch:
            return [self._ask(now_ms)]
        self.heard_ms = now_ms
        self.leader_end = chunk.leader_end
        self._lag.noted(now_ms, self.written, chunk.leader_end)
        if chunk.first_position > self.taken:
            return [self._ask(now_ms)]  # the reply says what to do
        at = chunk.position
        if at > self.taken or self._epochs.epoch_at(at) != chunk.previous_epoch:
            return [self._refusal(at)]
        if at < self.taken < chunk.end:
            return [self._refusal(self.taken)]
        self._round = max(self._round, chunk.round)
        self._confirmed = max(self._confirmed, chunk.confirmed)
        self._ack_due = True
        self.flush_wanted = self.flush_wanted or chunk.flush
        if chunk.end <= self.taken:
            return []
        if chunk.data_epoch != chunk.previous_epoch:
            self._epochs.open(chunk.data_epoch, at)
        self._epochs.extend(chunk.end)
        return [AppendBytes(at, chunk.end, data, chunk.damage)]

    def copied(self, end: int) -> None:
        """The store has written all bytes up to `end`."""
        self.written = max(self.written, min(end, self.taken))
        self._ack_due = True

    def not_copied(self, now_ms: int, end: int) -> None:
        """The store could not write everything; its log ends at `end`.

        Chunks are ignored for a while: otherwise both sides would exchange messages at full speed
        without any progress.
        """
        self._deaf_to_ms = now_ms + NOT_COPIED_MS
        self._ack_due = False
        if end < self.taken:
            self._epochs.truncate(end)
        self.written = min(self.written, end)

    def flushed_to(self, position: int) -> None:
        """Data below is on this follower's disk."""
        if position > self.flushed:
            self.flushed = position
            self._ack_due = True

    def wants_flush(self) -> bool:
        """True if the leader waits for a flush here. Called once per loop iteration."""
        wanted = self.flush_wanted and self.flushed < self.written
        if wanted:
            self.flush_wanted = False
        return wanted

    def acknowledge(self) -> list[SendToLeader]:
        """Messages at the end of a loop iteration: one acknowledgement for all chunks."""
        if not self._ack_due or self.step is not FollowerStep.FOLLOWING:
            return []
        self._ack_due = False
        return [
            SendToLeader(
                ChunkAck(
                    group=self._member.broker_name,
                    epoch=self.epoch,
                    member=str(self._member.broker_id),
                    accepted=True,
                    written=self.written,
                    flushed=min(self.flushed, self.written),
                    round=self._round,
                )
            )
        ]

    def _refusal(self, position: int) -> SendToLeader:
        end = min(position, self.taken)
        return SendToLeader(
            ChunkAck(
                group=self._member.broker_name,
                epoch=self.epoch,
                member=str(self._member.broker_id),
                accepted=False,
                round=self._round,
                epochs=self._epochs.summary(below=end),
                end=end,
            )
        )
