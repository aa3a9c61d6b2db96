"""Remembers since when each alarm has been active.

State: soft. An alarm that is inactive for one round is dropped; if it returns, its time starts
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou_console.alarm_rules import Raised


@dataclass(frozen=True, slots=True)
class ActiveAlarm:
    """An active alarm and when it was first seen, in ms since 1970."""

    raised: Raised
    since_ms: int


class AlarmBook:
    """The active alarms."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def note(self, now_ms: int, raised: Sequence[Raised]) -> list[ActiveAlarm]:
        """Replace the active alarms by these. Returns them with their start times."""
        self._since = {one.id: self._since.get(one.id, now_ms) for one in raised}
        return [ActiveAlarm(one, self._since[one.id]) for one in raised]
