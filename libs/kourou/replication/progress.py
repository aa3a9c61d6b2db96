"""A leader's view of its followers' logs: what may be sent next, and which are in sync.

    state      the leader sends
    PROBE      one chunk, then none until it is acknowledged; empty ones periodically
    REPLICATE  chunks, as long as the bytes in flight stay within a window
    CATCH_UP   heartbeats only: the follower is far behind and fetches the log from any replica

    state      event      state       the follower ...
    PROBE      ACCEPTED   REPLICATE   has the leader's bytes up to `next`
    PROBE      REFUSED    PROBE       sent its epochs: the next probe is at a lower position
    PROBE      SILENT     PROBE
    REPLICATE  ACCEPTED   REPLICATE
    REPLICATE  REFUSED    PROBE       missed a chunk, or restarted without its newest bytes
    REPLICATE  SILENT     PROBE       does not answer: chunks in flight count as lost
    any        FAR        CATCH_UP    is further behind than chunks should make up for
    CATCH_UP   NEAR       PROBE       has caught up
    CATCH_UP   ACCEPTED, REFUSED, SILENT   CATCH_UP

A refusal leads to PROBE even if the position where both logs diverge is certain: each chunk of a
full window is refused separately, and if each refusal caused a window of chunks, they would
multiply.

Invariants: flushed <= written <= sent, written <= next; only `refused` lowers any of them. A
follower's claim counts only up to what was sent to it in this epoch. State: soft; a leader learns
it again from the first acknowledgement.

A producer's reply waits for the in-sync replicas (brokerRole=SYNC_MASTER). A leader starts with
an empty set and adds followers that keep up.

A follower keeps up if, within the last `timeout_ms`, it had everything that the leader had at some
moment of that period. So neither a growing nor an idle log makes a healthy follower count as late.

    joins    it keeps up, and lacks at most `fallbehind_max` bytes
    leaves   it is no longer attached; or it lacks more than that (haSlaveFallbehindMax); or it
             did not keep up (slaveTimeout)

Invariants:  only attached followers are in the set after `update`
             `copied` is the lowest position of any follower in the set
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto


class ReplicationState(Enum):
    """How a follower is served."""

    PROBE = auto()
    REPLICATE = auto()
    CATCH_UP = auto()


class Event(Enum):
    """Events of a follower."""

    ACCEPTED = auto()
    REFUSED = auto()
    SILENT = auto()
    FAR = auto()
    NEAR = auto()


TRANSITIONS: dict[tuple[ReplicationState, Event], ReplicationState] = {
    (ReplicationState.PROBE, Event.ACCEPTED): ReplicationState.REPLICATE,
    (ReplicationState.PROBE, Event.REFUSED): ReplicationState.PROBE,
    (ReplicationState.PROBE, Event.SILENT): ReplicationState.PROBE,
    (ReplicationState.REPLICATE, Event.ACCEPTED): ReplicationState.REPLICATE,
    (ReplicationState.REPLICATE, Event.REFUSED): ReplicationState.PROBE,
    (ReplicationState.REPLICATE, Event.SILENT): ReplicationState.PROBE,
    (ReplicationState.PROBE, Event.FAR): ReplicationState.CATCH_UP,
    (ReplicationState.REPLICATE, Event.FAR): ReplicationState.CATCH_UP,
    (ReplicationState.CATCH_UP, Event.NEAR): ReplicationState.PROBE,
    **{
        (ReplicationState.CATCH_UP, event): ReplicationState.CATCH_UP
        for event in (Event.ACCEPTED, Event.REFUSED, Event.SILENT)
    },
}


class FollowerProgress:
    """One follower in one epoch of its leader; positions in bytes, times in monotonic ms."""

    __slots__ = (
        "_probe_at",
        "_probe_round",
        "_probing",
        "flushed",
        "heard_ms",
        "member",
        "next",
        "round",
        "sent",
        "state",
        "written",
    )

    def __init__(self, member: str, next_position: int, now_ms: int) -> None:
        self.member = member
        self.state = ReplicationState.PROBE
        #: The position of the next chunk.
        self.next = next_position
        #: The end of the highest chunk sent in this epoch: a claim beyond it is not accepted.
        self.sent = 0
        #: The follower's log equals the leader's up to here ...
        self.written = 0
        #: ... and survives a crash of the follower up to here.
        self.flushed = 0
        #: The highest round that it has acknowledged.
        self.round = 0
        #: Time of its last message; the leader's start if there was none.
        self.heard_ms = now_ms
        # While probing: true if no chunk with bytes may be sent; the last probe's position and
        # round.
        self._probing = False
        self._probe_at = -1
        self._probe_round = -1

    def _move(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state, event]

    # -- sending ----------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Bytes sent and not yet acknowledged as written."""
        return self.next - self.written

    def room(self, window_bytes: int) -> int:
        """How many bytes may be sent now; while probing, one chunk."""
        if self.state is ReplicationState.REPLICATE:
            return max(0, window_bytes - self.in_flight)
        return window_bytes if self.state is ReplicationState.PROBE and not self._probing else 0

    def ships(self, end: int, answered_as: int = 0) -> None:
        """Record that a chunk ending at `end` (an empty one: at `next`) is sent in round
        `answered_as`.
        """
        if self.state is ReplicationState.PROBE:
            self._probing = True
            self._probe_at = self.next
            self._probe_round = answered_as
        self.next = max(self.next, end)
        self.sent = max(self.sent, end)

    def fetches(self, end: int) -> None:
        """The follower may fetch everything below `end` from other replicas."""
        self.sent = max(self.sent, end)

    # -- receiving --------------------------------------------------------------------------------

    def accepted(self, now_ms: int, answered: int, written: int, flushed: int) -> bool:
        """Handle an acknowledgement of round `answered`; True if it reports new bytes."""
        self.heard_ms = max(self.heard_ms, now_ms)
        self.round = max(self.round, answered)
        written = min(written, self.sent)
        flushed = min(flushed, written)
        news = written > self.written or flushed > self.flushed
        self.written = max(self.written, written)
        self.flushed = max(self.flushed, flushed)
        self.next = max(self.next, self.written)
        self._move(Event.ACCEPTED)
        self._probing = False
        return news

    def refused(self, now_ms: int, answered: int, common: int, certain: bool) -> bool:
        """Handle the refusal of a chunk of round `answered`; the logs agree up to `common`, if
        `certain`.

        False if the refusal is outdated and nothing must be sent again. A follower whose log ends
        below what it had flushed has lost its disk: it starts again, and committed data stays
        committed.
        """
        self.heard_ms = max(self.heard_ms, now_ms)
        if answered < self.round or (answered == self.round and common < self.flushed):
            return False
        if self._probing and common == self._probe_at and answered <= self._probe_round:
            return False  # the refused chunk was sent before the probe
        self.round = answered
        self.next = common
        self.written = min(self.written, common)
        self.flushed = min(self.flushed, common)
        self._move(Event.REFUSED)
        self._probing = not certain
        return True

    def silent(self) -> None:
        """The follower has not answered for long: chunks in flight count as lost."""
        self.next = self.written or self.next
        self._move(Event.SILENT)
        self._probing = True

    # -- distance ---------------------------------------------------------------------------------

    def lag(self, end: int) -> int:
        """Bytes of a log that ends at `end` that it has not written."""
        return max(0, end - self.written)

    def judge_distance(self, end: int, first_position: int, catch_up_bytes: int) -> None:
        """Decide between FAR and NEAR, given the start and end of the log available from others.

        NEAR requires less than half the distance of FAR, so that a follower near the limit does not
        alternate.
        """
        if self.state is ReplicationState.CATCH_UP:
            self.next = max(self.written, first_position)
            if self.written >= first_position and end - self.written <= catch_up_bytes // 2:
                self._move(Event.NEAR)
                self._probing = False
        elif self.next < first_position or (
            self.state is ReplicationState.REPLICATE
            and end - self.written > catch_up_bytes + self.in_flight
        ):
            self._move(Event.FAR)
            self.next = max(self.written, first_position)


class Lag:
    """The lag of one replica; `kept_up_ms`: when it last had the whole log, None if never.

    State: soft. Times are monotonic ms, positions bytes.

    If a replica now has everything that the log had at an earlier report, it had kept up at that
    moment. So neither a growing nor an idle log makes a healthy replica count as late.
    """

    __slots__ = ("_asked_end", "_asked_ms", "kept_up_ms")

    def __init__(self) -> None:
        self.kept_up_ms: int | None = None
        self._asked_end: int | None = None
        self._asked_ms = 0

    def noted(self, now_ms: int, has: int, end: int) -> None:
        """The replica has everything below `has`, and the log ends at `end`."""
        if has >= end:
            self.kept_up_ms = now_ms
        elif self._asked_end is not None and has >= self._asked_end:
            self.kept_up_ms = self._asked_ms
        elif self._asked_end is not None:
            return  # it lacks even that: the earlier moment stays valid
        self._asked_end, self._asked_ms = end, now_ms

    def ms(self, now_ms: int) -> int | None:
        """Time since it had the whole log; None if never."""
        return None if self.kept_up_ms is None else now_ms - self.kept_up_ms


@dataclass(slots=True)
class _Copy:
    """What a follower has, and its lag since it attached."""

    has: int = 0
    lag: Lag = field(default_factory=Lag)


@dataclass(frozen=True, slots=True)
class InSyncChange:
    """The set changed: brokerIds, ascending."""

    members: tuple[int, ...]
    before: tuple[int, ...]
    reason: str


class InSync:
    """The set of one leader. Positions in bytes, times in monotonic ms, followers by brokerId."""

    def __init__(self, fallbehind_max: int, timeout_ms: int) -> None:
        self.fallbehind_max = fallbehind_max
        self.timeout_ms = timeout_ms
        self.members: tuple[int, ...] = ()
        self._copies: dict[int, _Copy] = {}

    @property
    def copied(self) -> int:
        """Every follower in the set has everything below; 0 if the set is empty."""
        return min((self._copies[member].has for member in self.members), default=0)

    def attached(self, member: int) -> None:
        """The follower attached; what it has is reported later."""
        self._copies[member] = _Copy()

    def detached(self, member: int) -> None:
        """The follower disconnected; the next `update` removes it."""
        self._copies.pop(member, None)

    def acknowledged(self, now_ms: int, member: int, has: int, end: int) -> None:
        """An attached follower has everything below `has`; the leader's log ends at `end`."""
        copy = self._copies[member]
        copy.has = max(copy.has, has)
        copy.lag.noted(now_ms, has, end)

    def lag_ms(self, now_ms: int, member: int, end: int) -> int | None:
        """Time since an attached follower had everything the log had; None if never."""
        copy = self._copies.get(member)
        if copy is None or copy.lag.kept_up_ms is None:
            return None
        return 0 if copy.has >= end else copy.lag.ms(now_ms)

    def update(self, now_ms: int, end: int) -> InSyncChange | None:
        """Update the set; None if nothing changes."""
        before, reasons = self.members, []
        kept: list[int] = []
        for member in before:
            reason = self._why_not(now_ms, member, end)
            if reason:
                reasons.append(f"{member} {reason}")
            else:
                kept.append(member)
        for member in self._copies:
            if member not in before and not self._why_not(now_ms, member, end):
                kept.append(member)
                reasons.append(f"{member} has caught up")
        self.members = tuple(sorted(kept))
        if self.members == before and not reasons:
            return None
        return InSyncChange(self.members, before, "; ".join(reasons))

    def _why_not(self, now_ms: int, member: int, end: int) -> str:
        copy = self._copies.get(member)
        if copy is None:
            return "is not attached any more"
        behind_ms = copy.lag.ms(now_ms)
        if behind_ms is None:
            return "has not caught up"
        if end - copy.has > self.fallbehind_max:
            return f"lacks {end - copy.has} bytes"
        if behind_ms > self.timeout_ms:
            return f"did not keep up for {behind_ms} ms"
        return ""


def named(members: Sequence[int]) -> str:
    """The brokerIds as text for messages."""
    return ", ".join(map(str, members)) or "none"
