"""A member's epoch and its vote in it, and what must wait until both are on disk.

A member that forgets its vote may vote twice, and then two members lead one epoch. So no message
leaves while a vote is being written: it is held, and goes when all that was to be written is.

With the vote stands what this member is worth as a voter: `joining` while it has none, because what
it promised before may be lost (joining.py); `lived` from the moment in which others may count on
bytes that it has.
"""

from __future__ import annotations

from kourou.model.limits import HELD_MESSAGES_MAX
from kourou.replication.raft.effects import Effect, SaveVote, Send


class Ballot:
    """`voted_for` is "" while this member has no vote in `epoch`."""

    __slots__ = ("_held", "_unsaved", "epoch", "joining", "lived", "voted_for")

    def __init__(
        self, epoch: int, voted_for: str, *, joining: bool = False, lived: bool = True
    ) -> None:
        self.epoch = epoch
        self.voted_for = voted_for
        self.joining = joining
        self.lived = lived
        self._unsaved = 0
        self._held: list[Send] = []

    @property
    def saved(self) -> bool:
        """Whether the disk knows all of this."""
        return self._unsaved == 0

    def write(self, epoch: int, voted_for: str) -> SaveVote:
        """Enter `epoch` (never a lower one) with this vote, which is never taken back in it."""
        assert epoch >= self.epoch, f"epoch {epoch} after {self.epoch}"
        if epoch == self.epoch:
            assert self.voted_for in {"", voted_for}, f"two votes in epoch {epoch}"
        self.epoch = epoch
        self.voted_for = voted_for
        return self._write()

    def joins(self, epoch: int, voted_for: str, *, lived: bool) -> SaveVote:
        """From now on this member votes, but never in `epoch`: it may have before its loss."""
        self.joining, self.lived = False, lived
        return self.write(epoch, voted_for)

    def lives(self) -> SaveVote:
        """Others may count on what this member has, as soon as that is written down."""
        self.lived = True
        return self._write()

    def lives_no_more(self) -> SaveVote:
        """The whole log goes, since nothing of it was ever confirmed: none of it may be missed."""
        self.lived = False
        return self._write()

    def _write(self) -> SaveVote:
        self._unsaved += 1
        return SaveVote(self.epoch, self.voted_for, self.joining, self.lived)

    def send(self, message: Send, out: list[Effect]) -> None:
        """Send it, or hold it while the vote is being written."""
        if self.saved:
            out.append(message)
        elif len(self._held) < HELD_MESSAGES_MAX:
            self._held.append(message)

    def vote_saved(self, out: list[Effect]) -> bool:
        """The oldest write is done; True if it was the last one, and what was held goes."""
        assert self._unsaved > 0, "a vote was saved that was never written"
        self._unsaved -= 1
        if self._unsaved:
            return False
        out += self._held
        self._held.clear()
        return True
