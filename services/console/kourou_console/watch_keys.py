"""The settings for sampling and alarms."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.service.process_keys import ProcessKeys
from kourou.settings.declaration import setting
from kourou_console.alarm_rules import AlarmThresholds

_PERCENT = 100


@dataclass(frozen=True, kw_only=True)
class WatchKeys(ProcessKeys):
    """The settings for sampling and alarms."""

    sample_interval_ms: int = setting(
        5_000,
        "sampleInterval",
        "How often all brokers are queried for metrics; one hour of them is kept in memory",
        unit="ms",
        low=1_000,
        high=60_000,
    )
    alarm_disk_percent: int = setting(
        75,
        "alarmDiskPercent",
        "An alarm where a broker's disk is fuller",
        unit="%",
        low=1,
        high=100,
    )
    alarm_lag_messages: int = setting(
        100_000,
        "alarmLagMessages",
        "Alarm if a group has a larger backlog of messages",
        low=0,
    )
    alarm_dead_letters: int = setting(
        0,
        "alarmDeadLetters",
        "Alarm if a group gets more dead letters within ten minutes",
        low=0,
    )
    alarm_replica_lag_bytes: int = setting(
        64 << 20,
        "alarmReplicaLagBytes",
        "Alarm if a replica lags more bytes behind its leader",
        unit="bytes",
        low=0,
    )

    @property
    def thresholds(self) -> AlarmThresholds:
        """The thresholds for the rules."""
        return AlarmThresholds(
            self.alarm_disk_percent / _PERCENT,
            self.alarm_lag_messages,
            self.alarm_dead_letters,
            self.alarm_replica_lag_bytes,
        )
