"""A snapshot of the demo's progress, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class MemberPicture:
    """One consumer of the group."""

    name: str
    delivered: int = 0
    rate: float = 0.0
    killed: bool = False


@dataclass(slots=True)
class TablePicture:
    """One Spark query."""

    name: str
    rows: int
    rate: float = 0.0


@dataclass(slots=True)
class Picture:
    """The progress; rates are messages per second, averaged over about the last second.

    `goal` is the final number of deliveries, `available` what the group could have received by now.
    `publish_rate` is None while nothing is published.
    """

    goal: int
    available: int
    publish_rate: float | None = None
    members: list[MemberPicture] = field(default_factory=list)
    tables: list[TablePicture] = field(default_factory=list)

    @property
    def delivered(self) -> int:
        """Deliveries to all consumers, including redeliveries."""
        return sum(member.delivered for member in self.members)

    @property
    def lag(self) -> int:
        """Available messages that are not yet delivered; redeliveries make it too small."""
        return max(0, self.available - self.delivered)


class Rate:
    """A smoothed rate from readings of a counter."""

    __slots__ = ("_at_s", "_count", "_rate")

    SMOOTHING_S = 0.7

    def __init__(self) -> None:
        self._at_s: float | None = None
        self._count = 0
        self._rate = 0.0

    def read(self, at_s: float, count: int) -> float:
        """Add a reading; returns the current rate."""
        if self._at_s is None:
            self._at_s, self._count = at_s, count
            return 0.0
        passed_s = at_s - self._at_s
        if passed_s <= 0:
            return self._rate
        weight = min(1.0, passed_s / self.SMOOTHING_S)
        self._rate += weight * ((count - self._count) / passed_s - self._rate)
        self._at_s, self._count = at_s, count
        return self._rate
