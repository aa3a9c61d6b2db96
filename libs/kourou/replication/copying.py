"""A static follower's side: which bytes of its leader it takes, and what it says of them.

State: soft; what it has is in the store, and which epochs those bytes are of in the log itself.

    DETACHED     no connection to the leader
    ATTACHING    asked; the answer says from where on both logs are the same
    FOLLOWING    chunks are taken
    REFUSED      may not follow, `reason` says why; asked again now and then

    state        event                     state
    any          connected                 ATTACHING
    any          disconnected              DETACHED
    ATTACHING    attached                  FOLLOWING
    ATTACHING    refused, or it would      REFUSED
                 have to cut what counted
    ATTACHING    the leader's log begins   REFUSED, until it has begun anew there
                 above what both have
    FOLLOWING    silence, an unfit epoch   ATTACHING
    FOLLOWING    the leader's log begins   ATTACHING
                 above this one's end
    ATTACHING    silence                   ATTACHING
    REFUSED      the next try              ATTACHING

Invariants:  written <= taken; bytes are taken in order, without a gap, each once
             `confirmed` <= written, and never decreases
             what counted for a sender (SYNC_MASTER) is never cut without an operator's word
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kourou.protocol.messages.replication import Attach, Attached, ChunkAck, LogChunk
from kourou.replication.epochs import Epochs
from kourou.replication.lag import Lag

SILENT_MS = 5_000
"""A leader tells every second where it stands; after this silence it is asked again."""


NOT_COPIED_MS = 1_000
"""A store that had no room is not asked again sooner."""


class Step(Enum):
    """How far a follower is with its leader."""

    DETACHED = auto()
    ATTACHING = auto()
    FOLLOWING = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Take:
    """Append these bytes of the leader; `damage` says why they are no readable records, if so."""

    position: int
    end: int
    data: memoryview
    damage: str = ""


@dataclass(frozen=True, slots=True)
class CutTo:
    """What lies from `position` on is not the leader's: it must go before anything is taken."""

    position: int


@dataclass(frozen=True, slots=True)
class BeginAt:
    """The leader's log begins at `position`: this one must go, and an empty one begin there.

    Both had the same bytes up to `common`; what lies beyond is no leader's any more.
    """

    position: int
    common: int


@dataclass(frozen=True, slots=True)
class Say:
    """Send this to the leader."""

    message: Attach | ChunkAck


@dataclass(frozen=True, slots=True)
class Member:
    """Who follows whom."""

    cluster: str
    broker_name: str
    broker_id: int
    accept_cut_at: int | None = None
    """An operator accepts that what counted from this position on is lost."""


class Copying:
    """One follower's copy of a log that begins at `first`; all of `epochs` is on disk.

    `promised`: by what the log says, senders may have been promised this copy of all below that
    position; the owner keeps it so.
    """

    def __init__(self, member: Member, epochs: Epochs, first: int, *, promised: int = 0) -> None:
        self._member = member
        self.promised = promised
        self._epochs = epochs
        self._first = first
        self.step = Step.DETACHED
        self.reason = ""
        self.written = self.flushed = epochs.end
        self.epoch = 0
        self.leader_end = 0
        self.heard_ms = 0
        self._confirmed = 0
        self._round = 0
        self._ack_due = False
        self._deaf_to_ms = 0
        self._signed_ms: int | None = None  # the leader's last sign of life
        self._lag = Lag()
        self.flush_wanted = False

    @property
    def epochs(self) -> Epochs:
        """The history of what was taken; not to be changed."""
        return self._epochs

    @property
    def taken(self) -> int:
        """Where the next chunk must begin."""
        return self._epochs.end

    @property
    def confirmed(self) -> int:
        """What lies below is confirmed, and here."""
        return min(self._confirmed, self.written)

    @property
    def lag_bytes(self) -> int:
        """How much the leader has that is not here, as far as is known."""
        return max(0, self.leader_end - self.written)

    def lag_ms(self, now_ms: int) -> int | None:
        """So long ago all that the leader had was here; None if never, as far as is known.

        A leader at rest is believed to be so until its next heartbeat.
        """
        silent_ms = self.silent_ms(now_ms)
        if silent_ms is not None and self.step is Step.FOLLOWING and self.lag_bytes == 0:
            return 0
        return self._lag.ms(now_ms)

    def silent_ms(self, now_ms: int) -> int | None:
        """How long the leader was not heard; None if it is taken for dead."""
        if self.step is Step.DETACHED or self._signed_ms is None:
            return None
        silent_ms = now_ms - self._signed_ms
        return silent_ms if silent_ms <= SILENT_MS else None

    # -- attaching --------------------------------------------------------------------------------

    def connected(self, now_ms: int) -> Say:
        """There is a connection to the leader: ask for its log."""
        self._signed_ms = now_ms
        return self._ask(now_ms)

    def disconnected(self) -> None:
        """The connection is gone."""
        self.step = Step.DETACHED

    def tick(self, now_ms: int) -> list[Say]:
        """Ask again where nothing was heard."""
        if self.step is Step.DETACHED or now_ms - self.heard_ms < SILENT_MS:
            return []
        return [self._ask(now_ms)]

    def _ask(self, now_ms: int) -> Say:
        self.step, self.heard_ms = Step.ATTACHING, now_ms
        self._ack_due = self.flush_wanted = False
        member = self._member
        return Say(
            Attach(
                cluster=member.cluster,
                broker_name=member.broker_name,
                broker_id=member.broker_id,
                epochs=self._epochs.told(),
                end=self._epochs.end,
                first_position=self._first,
            )
        )

    def attached(self, now_ms: int, answer: Attached) -> list[CutTo | BeginAt]:
        """The leader's answer. What it makes this follower cut is cut before it asks again.

        To begin anew takes more than this follower has: should that fail, it asks again later.
        """
        member = self._member
        who = answer.broker_name, answer.broker_id
        if self.step is not Step.ATTACHING or who != (member.broker_name, member.broker_id):
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
                return [BeginAt(answer.begin_at, answer.common)]
            self.step = Step.DETACHED
            return [CutTo(answer.common)]
        self.step, self.reason, self.epoch = Step.FOLLOWING, "", answer.epoch
        self._round = 0
        return []

    def _refuse(self, reason: str) -> None:
        self.step, self.reason = Step.REFUSED, reason

    # -- bytes ------------------------------------------------------------------------------------

    def chunk(self, now_ms: int, chunk: LogChunk, data: memoryview) -> list[Take | Say]:
        """Bytes of the leader, or where it stands. Answers are told by `turn`, but refusals."""
        if self.step is not Step.FOLLOWING or chunk.group != self._member.broker_name:
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
            return [self._ask(now_ms)]  # whose answer says what is to be done
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
        return [Take(at, chunk.end, data, chunk.damage)]

    def copied(self, end: int) -> None:
        """The store has what was taken up to `end`."""
        self.written = max(self.written, min(end, self.taken))
        self._ack_due = True

    def not_copied(self, now_ms: int, end: int) -> None:
        """The store could not take all; its log ends at `end`.

        Nothing is answered for a while: both would talk as fast as they can, and to no end.
        """
        self._deaf_to_ms = now_ms + NOT_COPIED_MS
        self._ack_due = False
        if end < self.taken:
            self._epochs.cut(end)
        self.written = min(self.written, end)

    def flushed_to(self, position: int) -> None:
        """What lies below is on this follower's disk."""
        if position > self.flushed:
            self.flushed = position
            self._ack_due = True

    def wants_flush(self) -> bool:
        """Does the leader wait for this disk? Asked once a turn."""
        wanted = self.flush_wanted and self.flushed < self.written
        if wanted:
            self.flush_wanted = False
        return wanted

    def turn(self) -> list[Say]:
        """What is to be said at the end of a turn: one answer to all that came."""
        if not self._ack_due or self.step is not Step.FOLLOWING:
            return []
        self._ack_due = False
        return [
            Say(
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

    def _refusal(self, position: int) -> Say:
        end = min(position, self.taken)
        return Say(
            ChunkAck(
                group=self._member.broker_name,
                epoch=self.epoch,
                member=str(self._member.broker_id),
                accepted=False,
                round=self._round,
                epochs=self._epochs.told(below=end),
                end=end,
            )
        )
