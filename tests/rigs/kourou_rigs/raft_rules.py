"""Invariants of a Raft group that must hold at every moment, whatever fails.

    one leader per epoch     an epoch has at most one leader
    log matching             bytes of an epoch are those that its leader appended, at the same
                             positions, and the preceding epoch is the same in all logs
    committed stays          all committed logs are prefixes of one log, which is durable on a
                             majority and is never truncated
    leader completeness      a leader has everything that leaders of lower epochs committed
                             (and from the commit on, no other member could be elected)
    acknowledged             a value is committed, at the position that the client was told
    one at a time            no two members may acknowledge at the same time
    no vote without data     a member with a lost disk does not vote until it has all committed data

The content of a lost disk counts as durable until its member has a vote again: until then the
member cannot elect a leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kourou.replication.epochs import Epochs
from kourou_rigs.raft_disk import CELL, MemberDisk


class RuleBroken(AssertionError):
    """Raised when an invariant does not hold; the text says which one, and how."""


@dataclass(slots=True)
class _Epoch:
    """The bytes that a leader appended from `start` on."""

    leader: str
    start: int
    before: int
    data: bytearray = field(default_factory=bytearray)


class Rules:
    """Checks the invariants; `disks` are those of all members, running or not."""

    def __init__(self, disks: dict[str, MemberDisk]) -> None:
        self._disks = disks
        #: The epochs of running members, updated by their nodes.
        self.living: dict[str, Epochs] = {}
        #: Members without a vote, and the former content of lost disks.
        self.joining: set[str] = set()
        self._lost: dict[str, bytes] = {}
        #: The position up to which lost disks contributed to commits.
        self._promised: dict[str, int] = {}
        self._majority = len(disks) // 2 + 1
        self._epochs: dict[int, _Epoch] = {}
        #: The committed log.
        self.confirmed = bytearray()
        #: (position, epoch): the epoch whose leader committed up to the position; both ascend.
        self._confirmed_in: list[tuple[int, int]] = []
        #: Acknowledged values and their end positions.
        self.acknowledged: dict[int, int] = {}

    def given(self, past: bytes) -> None:
        """Let all logs start with these bytes, which precede any epoch."""
        self._epochs[0] = _Epoch("", 0, 0, bytearray(past))
        self.confirmed += past
        self._confirmed_in.append((len(past), 0))

    # -- lost disks ------------------------------------------------------------------------------

    @property
    def may_lose_a_disk(self) -> bool:
        """True if enough other members have a vote for the group to continue.

        Before the first epoch, old data is not protected: two members could lose it, one after the
        other.
        """
        past_only = any(self._confirmed_in) and not any(by for _, by in self._confirmed_in)
        return not past_only and len(self._disks) - len(self.joining) - 1 >= self._majority

    def loses(self, name: str) -> None:
        """Record that a member's disk is about to be replaced by an empty one.

        The data of a member that is not `lived` (kourou.replication.raft.election) does not count
        as durable, nor does data from before the first epoch.
        """
        disk = self._disks[name]
        lived = disk.vote is not None and disk.vote[3]
        self._lost[name] = bytes(disk.platter) if lived else b""
        self._promised[name] = len(self.confirmed) if lived else 0

    def joined(self, name: str) -> None:
        """Check a member that has a vote again."""
        self.joining.discard(name)
        if self._lost.pop(name, None) is None:
            return
        disk = self._disks[name]
        first, end = disk.first_position, self._promised[name]
        if disk.platter[first:end] != self.confirmed[first:end]:
            raise RuleBroken(f"{name} has a vote again, without all that it once had")

    # -- leaders ---------------------------------------------------------------------------------

    def leads(self, name: str, epoch: int, epochs: Epochs) -> None:
        """Check a member that starts to lead `epoch`; its log is unchanged."""
        if epoch in self._epochs:
            raise RuleBroken(f"{name} leads epoch {epoch}, as {self._epochs[epoch].leader} did")
        end = epochs.end
        self._epochs[epoch] = _Epoch(name, end, epochs.epoch_at(end))
        disk = self._disks[name]
        first = disk.first_position
        # Votes may reach a stopped member long after higher epochs have started. It then leads no
        # other member and does not need what those epochs committed.
        wanted = max((at for at, by in self._confirmed_in if by < epoch), default=0)
        if end < wanted or disk.pages[first:wanted] != self.confirmed[first:wanted]:
            raise RuleBroken(f"{name} leads epoch {epoch} without all that is confirmed")

    def appended(self, epoch: int, position: int, data: bytes) -> None:
        """Record an append by the leader of `epoch`."""
        known = self._epochs[epoch]
        assert position == known.start + len(known.data), f"{known.leader} appended at {position}"
        known.data += data

    def one_at_a_time(self, names: Iterable[str]) -> None:
        """Check that at most one member would acknowledge now."""
        found = list(names)
        if len(found) > 1:
            raise RuleBroken(f"{' and '.join(found)} may acknowledge at one moment")

    # -- replicas --------------------------------------------------------------------------------

    def written(
        self, name: str, position: int, epoch: int, data: bytes, epochs: Epochs | None
    ) -> None:
        """Check bytes of `epoch` that a follower wrote; `epochs`, if given, include them."""
        known = self._epochs.get(epoch)
        if known is None:
            raise RuleBroken(f"{name} wrote bytes of epoch {epoch}, which had no leader")
        at = position - known.start
        if at < 0 or known.data[at : at + len(data)] != data:
            raise RuleBroken(f"{name} wrote at {position} what was never appended in epoch {epoch}")
        if epochs is not None:
            self._same_past(name, epoch, epochs)

    def _same_past(self, name: str, epoch: int, epochs: Epochs) -> None:
        known = self._epochs[epoch]
        start = epochs.start_of(epoch)
        if start is None or start < self._disks[name].first_position:
            return
        if start != known.start or epochs.epoch_at(start) != known.before:
            raise RuleBroken(f"{name} has another past before epoch {epoch}: {epochs!r}")

    def recovered(self, name: str, epochs: Epochs) -> None:
        """Check the log of a member that was started."""
        disk = self._disks[name]
        position = disk.first_position
        while position < epochs.end:
            run = epochs.run_from(position)
            if run.epoch or 0 in self._epochs:
                known = self._epochs.get(run.epoch)
                data = disk.pages[run.start : run.end]
                if known is None or known.data[run.start - known.start :][: len(data)] != data:
                    raise RuleBroken(f"{name} has wrong bytes in epoch {run.epoch}: {epochs!r}")
                self._same_past(name, run.epoch, epochs)
            position = run.end

    def cuts(self, name: str, position: int) -> None:
        """Check a member that is about to truncate its log."""
        pages = self._disks[name].pages
        head = pages[position : min(position + 8, len(self.confirmed))]
        if head and head == self.confirmed[position : position + len(head)]:
            raise RuleBroken(f"{name} cuts at {position} what is confirmed")

    # -- commits ---------------------------------------------------------------------------------

    def confirms(self, name: str, before: int, position: int) -> None:
        """Check that a member's committed position moves from `before` to `position` correctly."""
        if position < before:
            raise RuleBroken(f"{name} confirmed {before}, and now {position}")
        disk = self._disks[name]
        begin = max(before, disk.first_position)
        data = bytes(disk.pages[begin:position])
        if begin + len(data) < position:
            raise RuleBroken(f"{name} confirms {position}, its log ends at {len(disk.pages)}")
        known = bytes(self.confirmed[begin:position])
        if data[: len(known)] != known:
            raise RuleBroken(f"{name} confirms at {begin} something else than was confirmed before")
        news = data[len(known) :]
        if not news:
            return
        at = begin + len(known)
        holders = [each for each, one in self._disks.items() if one.holds(at, news)]
        for each, data in self._lost.items():
            if each not in holders and data[at : at + len(news)] == news:
                holders.append(each)
                self._promised[each] = position
        if len(holders) < self._majority:
            raise RuleBroken(f"{name} confirms {position}, on the platters of {holders} alone")
        self.confirmed += news
        # Its last record is of the leader's epoch: older records are committed together with it.
        self._confirmed_in.append((position, CELL.unpack(news[-CELL.size :])[0]))
        self._nobody_else_can_win(name, position)

    def _nobody_else_can_win(self, name: str, position: int) -> None:
        """Check that no member without the committed data could win an election."""
        logs = {}
        for each, disk in self._disks.items():
            epochs = self.living.get(each) or disk.epochs()
            logs[each] = (epochs.last, epochs.end)
        for each, log in logs.items():
            if each in self.joining:
                continue
            first = self._disks[each].first_position
            if self._disks[each].pages[first:position] == self.confirmed[first:]:
                continue
            voters = [
                other for other, its in logs.items() if log >= its and other not in self.joining
            ]
            if len(voters) >= self._majority:
                raise RuleBroken(
                    f"{name} confirms {position}, and {each}, which lacks it, can get {voters}"
                )

    def acknowledges(self, name: str, value: int, position: int, cell: bytes) -> None:
        """Check that an acknowledged value is committed before `position`."""
        if self.confirmed[position - len(cell) : position] != cell:
            raise RuleBroken(f"{name} acknowledges {value} at {position}, which is not confirmed")
        self.acknowledged[value] = position

    # -- the end ---------------------------------------------------------------------------------

    def all_agree(self) -> bool:
        """True if every log equals the committed log."""
        return all(
            disk.pages[disk.first_position :] == self.confirmed[disk.first_position :]
            and len(disk.pages) == len(self.confirmed)
            for disk in self._disks.values()
        )
