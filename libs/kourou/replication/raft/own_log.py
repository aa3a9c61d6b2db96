"""What a member knows of its own log, and how bytes of a leader fit to it.

The ends run ahead of the disk in one way only: bytes that an effect of this very batch is about to
write count as written (never as flushed), so that the chunk after them fits.

Invariants: first_position, flushed and confirmed lie at or below `end`; `confirmed` never decreases
but where the log begins anew; nothing below `confirmed` is ever cut.
State: projection of the log; `confirmed` is soft.
"""

from __future__ import annotations

from enum import Enum, auto

from kourou.replication.epochs import Epochs


class Fit(Enum):
    """How a chunk fits to the log."""

    GAP = auto()  # the log ends before it, or has another epoch where it begins
    HAVE = auto()  # all of it is there
    NEXT = auto()  # it goes to the end
    OVERLAP = auto()  # the log has its beginning, and ends in it
    DIVERGED = auto()  # the log has something else instead


class OwnLog:
    """The log of one member."""

    __slots__ = ("confirmed", "cutting", "epochs", "first_position", "flushed")

    def __init__(
        self, epochs: Epochs, *, first_position: int, flushed: int, confirmed: int
    ) -> None:
        assert max(first_position, flushed, confirmed) <= epochs.end
        self.epochs = epochs
        self.first_position = first_position
        self.flushed = flushed
        self.confirmed = confirmed
        #: A cut or a new beginning is under way; nothing is written until it is durable.
        self.cutting = False

    @property
    def end(self) -> int:
        """Where the next byte goes."""
        return self.epochs.end

    # -- bytes of a leader -----------------------------------------------------------------------

    def fits(self, position: int, previous_epoch: int) -> bool:
        """Whether all bytes below `position` are those of a log with that epoch there."""
        return position <= self.end and self.epochs.epoch_at(position) == previous_epoch

    def compare(
        self, position: int, end: int, previous_epoch: int, data_epoch: int
    ) -> tuple[Fit, int]:
        """How bytes [position, end) of `data_epoch` fit, and up to where both logs agree.

        What lay below the first position was confirmed, so every leader that may come has the same;
        which epochs it was of need not be known any more.
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
        """Bytes of `epoch` go to the end; they open it if the log's newest is another one."""
        if epoch != self.epochs.newest:
            self.epochs.open(epoch, self.end)
        self.epochs.extend(end)

    # -- changes ---------------------------------------------------------------------------------

    def flush(self, end: int) -> bool:
        """What lies below `end` is on disk; True if that is news."""
        end = min(end, self.end)
        news = end > self.flushed
        self.flushed = max(self.flushed, end)
        return news

    def confirm(self, position: int) -> bool:
        """What lies below `position` is safe; True if that is news."""
        position = min(position, self.end)
        news = position > self.confirmed
        self.confirmed = max(self.confirmed, position)
        return news

    def may_cut(self, position: int) -> bool:
        """Whether nothing that is confirmed would go."""
        return position >= self.confirmed

    def cut(self, position: int) -> None:
        """What lies from `position` on goes."""
        self.epochs.cut(position)
        self.flushed = min(self.flushed, position)

    def begin(self, position: int, epoch: int) -> None:
        """The log is empty and starts at `position`; the byte before it was of `epoch`."""
        pairs = [(epoch, position - 1)] if epoch and position else []
        self.epochs = Epochs(pairs, position)
        self.first_position = self.flushed = self.confirmed = position
