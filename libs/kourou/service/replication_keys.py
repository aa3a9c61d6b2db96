"""The settings of replication."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.settings.declaration import SAME, setting

WRITTEN, FLUSHED = "written", "flushed"
REPLICATION_PORT_SHIFT = 10_001


@dataclass(frozen=True, kw_only=True)
class ReplicationKeys:
    """The settings of replication."""

    replication_enabled: bool = setting(
        True,
        "replicationEnable",
        "Listen for followers; false for a broker that shall have none",
    )
    replication_port: int | None = setting(
        None,
        "replicationPort",
        "Where members of the log meet; empty is P + 10001, 0 takes any",
        low=0,
        high=65_535,
    )
    fallbehind_max_bytes: int = setting(
        256 * 1024 * 1024,
        "haSlaveFallbehindMax",
        "SYNC_MASTER waits for no follower that lacks more",
        unit="bytes",
        low=1,
        high=2**31 - 1,
        rocketmq=SAME,
    )
    slave_timeout_ms: int = setting(
        3_000,
        "slaveTimeout",
        "SYNC_MASTER: so long a sender waits for copies, and so long a follower may be slow",
        unit="ms",
        low=1,
        high=600_000,
        rocketmq=SAME,
    )
    ack_on: str | None = setting(
        None,
        "haAckOn",
        "SYNC_MASTER: a copy counts when it is written (as in RocketMQ) or flushed; empty is "
        "flushed with SYNC_FLUSH, else written",
        choices=(WRITTEN, FLUSHED),
    )
