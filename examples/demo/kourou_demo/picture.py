"""What the demo shows at one moment, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class MemberPicture:
    """One member of the group."""

    name: str
    delivered: int = 0
    rate: float = 0.0
    killed: bool = False


@dataclass(slots=True)
class TablePicture:
    """What Spark makes of the flights."""

    name: str
    rows: int
    rate: float = 0.0


@dataclass(slots=True)
class Picture:
    """How far everything is; rates are messages per second over the last second or so.

    `goal` deliveries are wanted in the end, `available` is what the group could have been given by
    now. `publish_rate` is None where nothing is published.
    """

    goal: int
    available: int
    publish_rate: float | None = None
    members: list[MemberPicture] = field(default_factory=list)
    tables: list[TablePicture] = field(default_factory=list)

    @property
    def delivered(self) -> int:
        """Deliveries to all members, redeliveries included."""
        return sum(member.delivered for member in self.members)

    @property
    def lag(self) -> int:
        """Available and not delivered yet; redeliveries make it look smaller than it is."""
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
        """Take a reading; the rate by now."""
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
