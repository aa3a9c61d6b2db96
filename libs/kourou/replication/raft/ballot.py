"""A replica's epoch and vote, and the messages that must wait until both are on disk.

A replica that forgets its vote may vote twice, and then one epoch may have two leaders. So no
message is sent while a vote is being written: it is held until everything is written.

The vote is stored with the replica's voting status: `joining` while it may not vote, because its
earlier promises may be lost (joining.py); `lived` once others may rely on bytes that it has.
"""

from __future__ import annotations

from kourou.model.limits import HELD_MESSAGES_MAX
from kourou.replication.raft.effects import Effect, SaveVote, Send


class Ballot:
    """`voted_for` is "" while this replica has not voted in `epoch`."""

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
        """True if all of this is on disk."""
        return self._unsaved == 0

    def write(self, epoch: int, voted_for: str) -> SaveVote:
        """Enter `epoch` (never a lower one) with this vote, which is final within the epoch."""
        assert epoch >= self.epoch, f"epoch {epoch} after {self.epoch}"
        if epoch == self.epoch:
            assert self.voted_for in {"", voted_for}, f"two votes in epoch {epoch}"
        self.epoch = epoch
        self.voted_for = voted_for
        return self._write()

    def joins(self, epoch: int, voted_for: str, *, lived: bool) -> SaveVote:
        """From now on this replica votes, but not in `epoch`, where it may have voted before its
        loss.
        """
        self.joining, self.lived = False, lived
        return self.write(epoch, voted_for)

    def lives(self) -> SaveVote:
        """Others may rely on this replica's data once this is on disk."""
        self.lived = True
        return self._write()

    def lives_no_more(self) -> SaveVote:
        """The whole, never committed log is removed: no other replica may rely on it any more."""
        self.lived = False
        return self._write()

    def _write(self) -> SaveVote:
        self._unsaved += 1
        return SaveVote(self.epoch, self.voted_for, self.joining, self.lived)

    def send(self, message: Send, out: list[Effect]) -> None:
        """Send the message, or hold it while the vote is being written."""
        if self.saved:
            out.append(message)
        elif len(self._held) < HELD_MESSAGES_MAX:
            self._held.append(message)

    def vote_saved(self, out: list[Effect]) -> bool:
        """The oldest write is done; True if it was the last one, and held messages are sent."""
        assert self._unsaved > 0, "a vote was saved that was never written"
        self._unsaved -= 1
        if self._unsaved:
            return False
        out += self._held
        self._held.clear()
        return True
