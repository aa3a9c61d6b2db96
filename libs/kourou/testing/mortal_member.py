"""A member of a Raft group that can be killed without ending the process.

State: soft.
"""

from __future__ import annotations

from kourou.broker.raft.raft_service import RaftService
from kourou.testing.mortal_broker import MortalBroker


class MortalMember(MortalBroker, RaftService):
    """A RaftService that calls `moved` like a MortalBroker, and after each change of its role."""

    async def die(self) -> None:
        """End like a killed process; a change of role in progress is completed."""
        self._stopping = True
        await self._group.stop()
        await self._renewed()
        await super().die()

    async def _begin(self) -> None:
        await super()._begin()
        self._moved()
