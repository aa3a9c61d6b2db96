"""What a leader knows of one follower's log, and what it may send to it next.

    state      the leader sends
    PROBE      one chunk, then none until it is answered; empty ones now and then
    REPLICATE  chunks, as long as what is in flight stays within a window
    CATCH_UP   heartbeats only: the follower is far behind and fetches the log from whom it likes

    state      event      state       the follower ...
    PROBE      ACCEPTED   REPLICATE   has the leader's bytes up to `next`
    PROBE      REFUSED    PROBE       told its epochs: it is asked again, further down
    PROBE      SILENT     PROBE
    REPLICATE  ACCEPTED   REPLICATE
    REPLICATE  REFUSED    PROBE       missed a chunk, or was started again without its newest bytes
    REPLICATE  SILENT     PROBE       does not answer: what is in flight counts as lost
    any        FAR        CATCH_UP    is behind by more than chunks should carry
    CATCH_UP   NEAR       PROBE       has caught up
    CATCH_UP   ACCEPTED, REFUSED, SILENT   CATCH_UP

A refusal leads to PROBE even where the place at which both logs part is certain: each chunk of a
full window is refused on its own, and were each refusal answered by a window, they would multiply.

Invariants: flushed <= written <= sent, written <= next; only `refused` lowers any of them. What a
follower claims counts only as far as it was sent to it in this epoch.
State: soft; a leader learns it again from the first answer.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """How a follower is served."""

    PROBE = auto()
    REPLICATE = auto()
    CATCH_UP = auto()


class Event(Enum):
    """What happens to a follower."""

    ACCEPTED = auto()
    REFUSED = auto()
    SILENT = auto()
    FAR = auto()
    NEAR = auto()


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.PROBE, Event.ACCEPTED): State.REPLICATE,
    (State.PROBE, Event.REFUSED): State.PROBE,
    (State.PROBE, Event.SILENT): State.PROBE,
    (State.REPLICATE, Event.ACCEPTED): State.REPLICATE,
    (State.REPLICATE, Event.REFUSED): State.PROBE,
    (State.REPLICATE, Event.SILENT): State.PROBE,
    (State.PROBE, Event.FAR): State.CATCH_UP,
    (State.REPLICATE, Event.FAR): State.CATCH_UP,
    (State.CATCH_UP, Event.NEAR): State.PROBE,
    **{
        (State.CATCH_UP, event): State.CATCH_UP
        for event in (Event.ACCEPTED, Event.REFUSED, Event.SILENT)
    },
}


class Progress:
    """One follower, as its leader sees it in one epoch; positions in bytes, times monotonic ms."""

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
        self.state = State.PROBE
        #: The position of the next chunk.
        self.next = next_position
        #: Where the highest chunk sent in this epoch ended: no claim beyond it is believed.
        self.sent = 0
        #: The follower's log equals the leader's up to here ...
        self.written = 0
        #: ... and survives a crash of the follower up to here.
        self.flushed = 0
        #: The highest round that it has answered.
        self.round = 0
        #: When it was last heard; when the leader began, if never.
        self.heard_ms = now_ms
        # While probing: no chunk with bytes may be sent; where the last one began, in which round.
        self._probing = False
        self._probe_at = -1
        self._probe_round = -1

    def _move(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state, event]

    # -- what may be sent ------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Bytes sent and not yet known to be written."""
        return self.next - self.written

    def room(self, window_bytes: int) -> int:
        """How many bytes may be sent now; while probing, a chunk may."""
        if self.state is State.REPLICATE:
            return max(0, window_bytes - self.in_flight)
        return window_bytes if self.state is State.PROBE and not self._probing else 0

    def ships(self, end: int, answered_as: int = 0) -> None:
        """A chunk that ends at `end` (an empty one: at `next`) is sent in round `answered_as`."""
        if self.state is State.PROBE:
            self._probing = True
            self._probe_at = self.next
            self._probe_round = answered_as
        self.next = max(self.next, end)
        self.sent = max(self.sent, end)

    def fetches(self, end: int) -> None:
        """It may fetch from other members what lies below `end`."""
        self.sent = max(self.sent, end)

    # -- what was heard --------------------------------------------------------------------------

    def accepted(self, now_ms: int, answered: int, written: int, flushed: int) -> bool:
        """An answer to a chunk of round `answered`; True if it tells of new bytes."""
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
        """A chunk of round `answered` was refused; the logs agree up to `common`, if `certain`.

        False where the refusal is older than what is known since, and nothing is to be sent again.
        A follower below what it had flushed has lost its disk: it starts anew, and what was
        confirmed stays so.
        """
        self.heard_ms = max(self.heard_ms, now_ms)
        if answered < self.round or (answered == self.round and common < self.flushed):
            return False
        if self._probing and common == self._probe_at and answered <= self._probe_round:
            return False  # of a chunk that was sent before the probe
        self.round = answered
        self.next = common
        self.written = min(self.written, common)
        self.flushed = min(self.flushed, common)
        self._move(Event.REFUSED)
        self._probing = not certain
        return True

    def silent(self) -> None:
        """It did not answer for long: chunks in flight are taken for lost."""
        self.next = self.written or self.next
        self._move(Event.SILENT)
        self._probing = True

    # -- how far behind --------------------------------------------------------------------------

    def lag(self, end: int) -> int:
        """Bytes of a log up to `end` that it has not written."""
        return max(0, end - self.written)

    def judge_distance(self, end: int, first_position: int, catch_up_bytes: int) -> None:
        """Far or near, by where a log begins and ends that it may fetch from others.

        Near is less than half as far, so that a follower at the border does not go to and fro.
        """
        if self.state is State.CATCH_UP:
            self.next = max(self.written, first_position)
            if self.written >= first_position and end - self.written <= catch_up_bytes // 2:
                self._move(Event.NEAR)
                self._probing = False
        elif self.next < first_position or (
            self.state is State.REPLICATE and end - self.written > catch_up_bytes + self.in_flight
        ):
            self._move(Event.FAR)
            self.next = max(self.written, first_position)
