"""A member of a Raft group that can be killed inside a living process.

State: soft.
"""

from __future__ import annotations

from kourou.serving.raft_service import RaftService
from kourou.testing.mortal_broker import MortalBroker


class MortalMember(MortalBroker, RaftService):
    """A RaftService that calls `moved` as a MortalBroker does, and when its role has changed."""

    async def die(self) -> None:
        """End as a killed process does; a change of its role that is under way is finished."""
        self._stopping = True
        await self._group.stop()
        await self._renewed()
        await super().die()

    async def _begin(self) -> None:
        await super()._begin()
        self._moved()
