"""Since when which alarm has held.

State: soft. An alarm that is gone for one round is forgotten, and begins anew if it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou_console.alarm_rules import Raised


@dataclass(frozen=True, slots=True)
class Standing:
    """An alarm and when it was first seen, in ms since 1970."""

    raised: Raised
    since_ms: int


class AlarmBook:
    """What stands now."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def note(self, now_ms: int, raised: Sequence[Raised]) -> list[Standing]:
        """These hold now, and no others; each with its beginning."""
        self._since = {one.id: self._since.get(one.id, now_ms) for one in raised}
        return [Standing(one, self._since[one.id]) for one in raised]
