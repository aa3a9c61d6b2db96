"""The in-sync replicas that a producer's reply waits for (brokerRole=SYNC_MASTER).

State: soft; a leader starts with an empty set and adds followers that keep up.

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

from kourou.replication.progress import Lag


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
