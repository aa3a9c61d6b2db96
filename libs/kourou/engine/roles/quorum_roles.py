"""The roles of a broker's core in a Raft group: leader and follower.

State: none. A role is soft: every start begins as a follower.
"""

from __future__ import annotations

from dataclasses import dataclass

from kourou.engine.ports import Quorum


@dataclass(frozen=True, slots=True)
class QuorumLeaderRole:
    """Leads `epoch`, which its first record opens. `slave_timeout_ms`: how long a sender waits."""

    epoch: int
    quorum: Quorum
    slave_timeout_ms: int = 3_000


@dataclass(frozen=True, slots=True)
class QuorumFollowerRole:
    """Follows the elected leader, or waits for an election."""

    quorum: Quorum
