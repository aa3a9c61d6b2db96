"""A replica's own log, and how a leader's bytes fit to it.

The positions run ahead of the disk in one way only: bytes that an effect of the current batch will
write count as written (never as flushed), so that the chunk after them fits.

Invariants: first_position, flushed and confirmed are at or below `end`; `confirmed` never
decreases, except when the log restarts; nothing below `confirmed` is ever truncated. State:
projection of the log; `confirmed` is soft.
"""

from __future__ import annotations

from enum import Enum, auto

from kourou.replication.epochs import Epochs


class Fit(Enum):
    """How a chunk fits to the log."""

    GAP = auto()  # the log ends before it, or has another epoch at its position
    HAVE = auto()  # the log has all of it
    NEXT = auto()  # it continues the log
    OVERLAP = auto()  # the log has its first part, and ends within it
    DIVERGED = auto()  # the log has other bytes in its place


class OwnLog:
    """The log of one replica."""

    __slots__ = ("confirmed", "epochs", "first_position", "flushed", "truncating")

    def __init__(
        self, epochs: Epochs, *, first_position: int, flushed: int, confirmed: int
    ) -> None:
        assert max(first_position, flushed, confirmed) <= epochs.end
        self.epochs = epochs
        self.first_position = first_position
        self.flushed = flushed
        self.confirmed = confirmed
        #: A truncation or a restart is in progress; nothing is written until it is durable.
        self.truncating = False

    @property
    def end(self) -> int:
        """The position of the next byte."""
        return self.epochs.end

    # -- bytes of a leader -----------------------------------------------------------------------

    def fits(self, position: int, previous_epoch: int) -> bool:
        """True if all bytes below `position` equal those of a log with that epoch there."""
        return position <= self.end and self.epochs.epoch_at(position) == previous_epoch

    def compare(
        self, position: int, end: int, previous_epoch: int, data_epoch: int
    ) -> tuple[Fit, int]:
        """How bytes [position, end) of `data_epoch` fit, and the position up to which both logs
        agree.

        Data below the first position was committed, so every possible leader has the same; its
        epochs need not be known any more.
        """
        first = self.first_position
        if position < first:
            return (Fit.HAVE, end) if end <= first else (Fit.OVERLAP, first)
        if not self.fits(position, previous_epoch):
            return Fit.GAP, 0
        if end == position:
            return Fit.HAVE, position
        if position == self.end:
            return Fit.NEXT, position
        run = self.epochs.run_from(position)
        if run.epoch != data_epoch:
            return Fit.DIVERGED, position
        if end <= run.end:
            return Fit.HAVE, end
        return (Fit.OVERLAP if run.end == self.end else Fit.DIVERGED), run.end

    def append(self, end: int, epoch: int) -> None:
        """Append bytes of `epoch`; they open it if the log's newest epoch is another one."""
        if epoch != self.epochs.newest:
            self.epochs.open(epoch, self.end)
        self.epochs.extend(end)

    # -- changes ---------------------------------------------------------------------------------

    def flush(self, end: int) -> bool:
        """Everything below `end` is on disk; True if that is new."""
        end = min(end, self.end)
        news = end > self.flushed
        self.flushed = max(self.flushed, end)
        return news

    def confirm(self, position: int) -> bool:
        """Everything below `position` is committed; True if that is new."""
        position = min(position, self.end)
        news = position > self.confirmed
        self.confirmed = max(self.confirmed, position)
        return news

    def may_truncate(self, position: int) -> bool:
        """True if nothing committed would be removed."""
        return position >= self.confirmed

    def truncate(self, position: int) -> None:
        """Remove everything from `position` on."""
        self.epochs.truncate(position)
        self.flushed = min(self.flushed, position)

    def begin(self, position: int, epoch: int) -> None:
        """Make the log empty, starting at `position`; the byte before it was of `epoch`."""
        pairs = [(epoch, position - 1)] if epoch and position else []
        self.epochs = Epochs(pairs, position)
        self.first_position = self.flushed = self.confirmed = position
