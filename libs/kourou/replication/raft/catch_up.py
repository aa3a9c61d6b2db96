"""How a follower that is far behind fetches committed data without loading its leader.

Committed bytes are the same at every replica, so any of them can supply them: other followers are
asked first, the leader last. There is one request at a time. If a replica does not reply in time,
or has nothing, the next one is asked when the leader reports again that there is data to fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.replication.raft.effects import Fetch

if TYPE_CHECKING:
    from kourou.replication.raft.member import Member

NONE_AWAITED = 0


class CatchUp:
    """The requests of one follower under one leader."""

    __slots__ = ("_awaited", "_deadline_ms", "_limit", "_member", "_turn")

    def __init__(self, member: Member) -> None:
        self._member = member
        self._awaited = NONE_AWAITED
        self._deadline_ms = 0
        self._limit = 0
        self._turn = 0

    def go_on(self, position: int, limit: int) -> None:
        """Everything below `position` is here: request what follows, if it is below `limit`."""
        self._limit = max(self._limit, limit)
        if self._awaited == NONE_AWAITED and position < self._limit:
            self._ask(position)

    def turn_to_another(self) -> None:
        """The last request had no result: send the next one to another replica."""
        self._turn += 1

    def is_awaited(self, serial: int) -> bool:
        """True if this replies to the last request; afterwards no reply is pending."""
        if serial != self._awaited:
            return False
        self._awaited = NONE_AWAITED
        return True

    def check_time(self) -> None:
        """Give up on a request after a timeout."""
        if self._awaited != NONE_AWAITED and self._member.now >= self._deadline_ms:
            self._awaited = NONE_AWAITED
            self.turn_to_another()

    def _ask(self, position: int) -> None:
        member = self._member
        self._awaited = member.next_serial()
        self._deadline_ms = member.now + member.settings.fetch_timeout_ms
        size = min(member.settings.fetch_bytes, self._limit - position)
        member.out.append(Fetch(self._awaited, self._source(), position, size))

    def _source(self) -> str:
        member = self._member
        others = [name for name in member.settings.peers if name != member.leader]
        if member.leader:
            others.append(member.leader)
        return others[self._turn % len(others)]
