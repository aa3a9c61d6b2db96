"""The settings of a replica of a Raft group."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.model.limits import (
    CATCH_UP_BYTES_MIN,
    CHUNK_BYTES_MAX,
    CHUNK_WINDOW_BYTES_MAX,
    FETCH_BYTES_MAX,
    MEMBERS_MAX,
)


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Times in monotonic milliseconds, sizes in bytes.

    A replica that hears no leader stands for election after a random time between
    `election_timeout_ms_min` and `_max`; heartbeats are sent several times within the minimum.
    `lease_ms` is how long a leader relies on a majority's last acknowledgement, counted from the
    start of its round: less than the minimum election timeout by as much as two clocks may drift
    apart in it. `address` is where clients reach this replica; it is published while it leads.
    `round_ms` is the minimum duration of a round.
    """

    group: str
    member: str
    members: tuple[str, ...]
    address: str = ""
    heartbeat_ms: int = 150
    election_timeout_ms_min: int = 750
    election_timeout_ms_max: int = 1_500
    lease_ms: int = 675
    round_ms: int = 15
    spread_ms: int = 10
    chunk_bytes: int = CHUNK_BYTES_MAX
    window_bytes: int = CHUNK_WINDOW_BYTES_MAX
    catch_up_bytes: int = CATCH_UP_BYTES_MIN
    fetch_bytes: int = FETCH_BYTES_MAX
    fetch_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        assert self.member in self.members, f"{self.member} is not of {self.members}"
        assert len(set(self.members)) == len(self.members) <= MEMBERS_MAX
        assert self.lease_ms < self.election_timeout_ms_min <= self.election_timeout_ms_max
        assert self.round_ms <= self.heartbeat_ms < self.lease_ms

    @property
    def peers(self) -> tuple[str, ...]:
        """All replicas except this one."""
        return tuple(name for name in self.members if name != self.member)

    @property
    def majority(self) -> int:
        """The number of replicas in a majority: any two majorities share one."""
        return len(self.members) // 2 + 1
