"""The epochs of a log: which leader wrote which bytes. Two logs are compared by this history.

An epoch is a period with at most one leader, and only that leader appends its bytes. So if two logs
have the same epoch at a position, all bytes below it are the same (Raft's *log matching*), and the
position where two logs diverge is found by comparing a few pairs of integers.

    epochs   0 .......... 3 ........... 5 ......
    starts   0            100           260        end = 300

Epoch 0 is everything written before any epoch was opened; a broker that never had a follower stays
there. The epoch *at* a position is that of the byte before it: epoch_at(100) is 0, and a log that
ends at 300 can be continued where `epoch_at(300)` is 5.

Invariants: epochs and starts both ascend strictly; no start is beyond `end`. State: projection of
the EpochOpened records of the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kourou.errors import Corrupt
from kourou.model.limits import EPOCHS_SENT_MAX

EpochStart: TypeAlias = tuple[int, int]
"""(epoch, position where it starts)."""

BEFORE_ALL_EPOCHS: tuple[EpochStart, ...] = ((0, 0),)
"""The history of a log in which no epoch was ever opened."""


class Run(NamedTuple):
    """Adjacent bytes of one epoch: from `start` up to `end`."""

    epoch: int
    start: int
    end: int


class Epochs:
    """The history of one log, up to its end.

    `pairs` come from `opened()`, a file or a message. Raises Corrupt if they do not ascend or are
    beyond `end`.
    """

    __slots__ = ("_epochs", "_starts", "end")

    def __init__(self, pairs: Iterable[EpochStart] = (), end: int = 0) -> None:
        self._epochs = [0]
        self._starts = [0]
        self.end = end
        for epoch, start in pairs:
            if epoch == 0 and start == 0 and len(self._epochs) == 1:
                continue
            if epoch <= self._epochs[-1] or not self._may_start(start) or start > end:
                raise Corrupt(f"epoch {epoch} from {start} on does not follow {self!r}")
            self._add(epoch, start)

    def __repr__(self) -> str:
        runs = " ".join(f"{epoch}@{start}" for epoch, start in self.opened())
        return f"<Epochs {runs or 'none'} end {self.end}>"

    def _may_start(self, start: int) -> bool:
        return start > self._starts[-1] or start == self._starts[-1] == 0

    def _add(self, epoch: int, start: int) -> None:
        if start == self._starts[-1]:  # epoch 0, or one that was opened without writing anything
            self._epochs[-1] = epoch
        else:
            self._epochs.append(epoch)
            self._starts.append(start)

    # -- queries ----------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The epoch of the last byte; 0 for an empty log."""
        return self.epoch_at(self.end)

    @property
    def newest(self) -> int:
        """The highest epoch that was opened, whether or not it wrote anything."""
        return self._epochs[-1]

    def epoch_at(self, position: int) -> int:
        """The epoch of the byte before `position`; 0 at 0."""
        index = bisect_left(self._starts, position) - 1
        return self._epochs[index] if index >= 0 else 0

    def run_from(self, position: int) -> Run:
        """The bytes of one epoch from `position` (below the end) on."""
        index = bisect_right(self._starts, position) - 1
        return Run(self._epochs[index], position, self._end_of(index))

    def start_of(self, epoch: int) -> int | None:
        """The start of `epoch`; None if this log does not have it."""
        index = bisect_left(self._epochs, epoch)
        known = index < len(self._epochs) and self._epochs[index] == epoch
        return self._starts[index] if known else None

    def opened(self) -> tuple[EpochStart, ...]:
        """All epochs with their starts, without epoch 0."""
        pairs = zip(self._epochs, self._starts, strict=True)
        return tuple(pair for pair in pairs if pair[0] > 0)

    def summary(
        self, below: int | None = None, count: int = EPOCHS_SENT_MAX
    ) -> tuple[EpochStart, ...]:
        """The newest `count` epochs that start below `below` (the end, if None), for messages.

        If they are all epochs of the log, the first start is 0.
        """
        last = bisect_left(self._starts, max(1, self.end if below is None else below))
        first = max(0, last - count)
        return tuple(zip(self._epochs[first:last], self._starts[first:last], strict=True))

    def _end_of(self, index: int) -> int:
        return self._starts[index + 1] if index + 1 < len(self._starts) else self.end

    # -- comparison ------------------------------------------------------------------------------

    def common(self, other: Sequence[EpochStart], other_end: int) -> int:
        """The largest position up to which both histories agree.

        `other` is the result of another log's `summary()`. If it does not have all epochs of that
        log, and none of them is in this one, the result is only the position to compare next: see
        `is_certain`.
        """
        end = other_end
        for epoch, start in reversed(other or BEFORE_ALL_EPOCHS):
            index = bisect_left(self._epochs, epoch)
            if index < len(self._epochs) and self._epochs[index] == epoch:
                return min(end, self._end_of(index))
            end = start
        return min(end, self.end)

    def is_certain(self, other: Sequence[EpochStart]) -> bool:
        """True if `common` returns a position up to which both logs certainly agree."""
        sent = other or BEFORE_ALL_EPOCHS
        return sent[0][1] == 0 or any(self.start_of(epoch) is not None for epoch, _ in sent)

    # -- changes ---------------------------------------------------------------------------------

    def open(self, epoch: int, start: int) -> None:
        """Start `epoch` at the end of the log; the previous one may have written nothing."""
        assert epoch > self._epochs[-1], f"epoch {epoch} opened after {self._epochs[-1]}"
        assert start == self.end, f"epoch {epoch} opened at {start}, the log ends at {self.end}"
        self._add(epoch, start)

    def extend(self, end: int) -> None:
        """Extend the newest epoch: bytes were appended up to `end`."""
        assert end >= self.end, f"the log ends at {self.end}, beyond {end}"
        self.end = end

    def truncate(self, end: int) -> None:
        """Remove everything from `end` on, including epochs that start there."""
        assert 0 <= end <= self.end, f"cut at {end}, the log ends at {self.end}"
        keep = max(1, bisect_left(self._starts, end))
        del self._epochs[keep:], self._starts[keep:]
        self.end = end
        if end == 0:
            self._epochs[0] = 0

    def copy(self) -> Epochs:
        """An independent copy of this history."""
        return Epochs(self.opened(), self.end)


STARTS = 64
"""brokerIds below this are distinguished."""
PROMOTION = 2**32


def next_epoch(newest: int, broker_id: int, *, promoted: bool = False) -> int:
    """The epoch to open if `newest` is the highest known one.

    There is no vote in a static pair. So two brokers that both consider themselves leader must
    never open the same epoch, and a promoted broker must always have a higher epoch than the old
    leader, however often that one restarts.

        epoch = promotion * 2**32 + start * 64 + brokerId

    A leader opens one at each start, with its own brokerId; a promotion starts the next multiple of
    2**32 above all known epochs. A log that never had a follower stays at epoch 0.

    Two replicas that are promoted without knowledge of each other open epochs of the same
    promotion. Its first epoch distinguishes them, however often either restarts: the higher
    brokerId wins.
    """
    assert 0 <= broker_id < STARTS, broker_id
    promotions, rest = divmod(newest, PROMOTION)
    start = rest // STARTS + 1
    if promoted or start * STARTS >= PROMOTION:
        promotions, start = promotions + 1, 1
    return promotions * PROMOTION + start * STARTS + broker_id


def promotion_of(epochs: Iterable[int]) -> int:
    """The epoch with which the newest promotion of a log began, among all its epochs; 0: none."""
    known = list(epochs)
    newest = max(known, default=0) // PROMOTION
    return min(epoch for epoch in known if epoch // PROMOTION == newest) if newest else 0


def are_rivals(one: int, other: int) -> bool:
    """True if two replicas began the same promotion, so that no restart gives either precedence."""
    same = one // PROMOTION == other // PROMOTION > 0
    return same and one % STARTS != other % STARTS


def last_of_promotion(epoch: int) -> int:
    """The highest epoch number of the same promotion."""
    return (epoch // PROMOTION + 1) * PROMOTION - 1


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Effect: the rest of the log from `position` on is not the leader's; truncate it, durably.

    The removed bytes are saved aside. The store refuses to remove anything below `confirmed`, and
    reports it to the operator.
    """

    position: int
    confirmed: int
