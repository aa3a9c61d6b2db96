"""How a member of a Raft group leads or follows: the roles of its core.

State: none. A member's role is soft: every start begins as a follower.
"""

from __future__ import annotations

from dataclasses import dataclass

from kourou.engine.ports import Quorum


@dataclass(frozen=True, slots=True)
class QuorumLeaderRole:
    """Leads `epoch`, which its first record opens. `slave_timeout_ms`: so long a sender waits."""

    epoch: int
    quorum: Quorum
    slave_timeout_ms: int = 3_000


@dataclass(frozen=True, slots=True)
class QuorumFollowerRole:
    """Follows whom the group has elected, or waits until it has."""

    quorum: Quorum
