"""The alarm rules: conditions that need an operator, and their texts.

An unknown metric causes no alarm of its own; the missing data is a separate alarm.

State: soft, since when each alarm has been active. An alarm that is inactive for one round is
dropped; if it returns, its time starts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

DISK_CRITICAL = 0.9
"""Brokers reject messages from this ratio on (diskSpaceWarningLevelRatio), by default."""

GAPS = 3
"""The number of intervals without a sample that count as a gap."""


@dataclass(frozen=True, slots=True)
class AlarmThresholds:
    """An alarm is raised if its metric exceeds the threshold."""

    disk_used_ratio: float = 0.75
    lag_messages: int = 100_000
    #: New dead letters of a group within ten minutes.
    new_dead_letters: int = 0
    replica_lag_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The state of one broker; `up` is False if it did not reply, for the reason `why`."""

    broker: str
    up: bool
    why: str | None = None
    disk_used_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of one replica. `in_sync` is None if it does not apply.

    `missing`: its Raft group contains it, but no name server has it.
    """

    broker: str
    member: str
    leads: bool
    why: str | None = None
    lag_bytes: int | None = None
    in_sync: bool | None = None
    must_be_in_sync: bool = False
    missing: bool = False


@dataclass(frozen=True, slots=True)
class AlarmInput:
    """The input of the rules. `lags`: consumer lag in messages for each group, as far as known.

    `new_dead_letters`: new dead letters of each group in the last ten minutes.
    """

    brokers: Sequence[BrokerState] = ()
    members: Sequence[ReplicaState] = ()
    lags: Mapping[str, int] = field(default_factory=dict)
    new_dead_letters: Mapping[str, int] = field(default_factory=dict)
    #: The age of the last sample; None: there is none yet.
    sample_age_ms: int | None = None
    interval_ms: int = 5_000
    #: Why the last round failed as a whole, if it did.
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """One active alarm, identified by `kind` and `of`; its start time is in the AlarmBook."""

    kind: str
    severity: str
    of_kind: str
    of: str
    title: str
    meaning: str
    what_to_do: str
    value: float | None = None
    threshold: float | None = None
    unit: str = ""

    @property
    def id(self) -> str:
        """The ID, which stays the same while the alarm is active."""
        return f"{self.kind}:{self.of_kind}:{self.of}"


def alarms(look: AlarmInput, thresholds: AlarmThresholds) -> list[Raised]:
    """All active alarms, the most severe first."""
    found = [
        *_sampling(look),
        *_brokers(look.brokers, thresholds),
        *_members(look.members, thresholds),
        *_groups(look, thresholds),
    ]
    return sorted(found, key=lambda one: (one.severity != "critical", one.kind, one.of))


def _sampling(look: AlarmInput) -> Iterable[Raised]:
    age_ms, limit_ms = look.sample_age_ms, GAPS * look.interval_ms
    if look.trouble is None and (age_ms is None or age_ms <= limit_ms):
        return
    yield Raised(
        "sampling_gap",
        "warning",
        "console",
        "console",
        "Metrics are out of date",
        "The console has no recent sample of the cluster"
        + (f": {look.trouble}" if look.trouble else "")
        + ". Charts have a gap, and other alarms may be delayed.",
        "Check that a name server is online (Name servers) and that this machine is not "
        "overloaded.",
        None if age_ms is None else float(age_ms),
        float(limit_ms),
        "ms",
    )


def _brokers(brokers: Sequence[BrokerState], thresholds: AlarmThresholds) -> Iterable[Raised]:
    for one in brokers:
        if not one.up:
            yield Raised(
                "broker_away",
                "critical",
                "broker",
                one.broker,
                f"Broker {one.broker} is offline",
                f"It does not respond ({one.why or 'reason unknown'}). Messages cannot be sent to "
                "it or read from it until a leader is online.",
                "Check its process and its log; if it has an in-sync follower, promote the "
                "follower.",
            )
        ratio = one.disk_used_ratio
        if ratio is None or ratio <= thresholds.disk_used_ratio:
            continue
        critical = ratio >= DISK_CRITICAL
        yield Raised(
            "disk",
            "critical" if critical else "warning",
            "broker",
            one.broker,
            f"The disk of {one.broker} is {ratio:.0%} full",
            "It refuses messages until disk space is freed."
            if critical
            else "Above diskMaxUsedSpaceRatio the broker deletes its oldest messages early; above "
            "diskSpaceWarningLevelRatio it refuses new messages.",
            "Add disk space, delete expired messages (Brokers, Clean up), or reduce "
            "fileReservedTime.",
            ratio,
            thresholds.disk_used_ratio,
            "ratio",
        )


def _members(members: Sequence[ReplicaState], thresholds: AlarmThresholds) -> Iterable[Raised]:
    for one in members:
        if one.leads:
            continue
        name = f"{one.broker}/{one.member}"
        if one.missing:
            yield Raised(
                "member_missing",
                "warning",
                "member",
                name,
                f"Member {one.member} of {one.broker} is offline",
                _remaining(members, one.broker),
                "Restart it on its store; its log shows why it ended.",
            )
            continue
        if one.why is not None:
            yield Raised(
                "member_away",
                "warning",
                "member",
                name,
                f"Replica {name} is offline",
                f"It does not respond ({one.why}). The log has one replica less.",
                "Check its process and its log.",
            )
            continue
        if one.must_be_in_sync and one.in_sync is False:
            yield Raised(
                "replica_not_in_sync",
                "critical",
                "member",
                name,
                f"Replica {name} is not in sync",
                "It is not in the in-sync set: acknowledged messages may be lost with the "
                "leader's machine, or sends wait.",
                "Check the state and lag of the replica (Brokers, Replicas), and its log.",
            )
        if one.lag_bytes is not None and one.lag_bytes > thresholds.replica_lag_bytes:
            yield Raised(
                "replica_behind",
                "warning",
                "member",
                name,
                f"Replica {name} has a high replication lag",
                "The missing messages would be lost if it became the leader now.",
                "Check its disk and the network to its leader.",
                float(one.lag_bytes),
                float(thresholds.replica_lag_bytes),
                "B",
            )


def _remaining(members: Sequence[ReplicaState], broker: str) -> str:
    """How many replicas of a Raft group are online, and whether it can lose another one."""
    group = [one for one in members if one.broker == broker]
    online = sum(not one.missing and one.why is None for one in group)
    text = f"{online} of {len(group)} replicas remain"
    return (
        f"{text}; losing another one stops writes." if online <= len(group) // 2 + 1 else text + "."
    )


def _groups(look: AlarmInput, thresholds: AlarmThresholds) -> Iterable[Raised]:
    for group, lag in look.lags.items():
        if lag > thresholds.lag_messages:
            yield Raised(
                "lag",
                "warning",
                "group",
                group,
                f"{group} has a lag of {lag:,} messages",
                "The group consumes slower than messages arrive, or it does not consume at all.",
                "Check its consumers, failures and queue lag (Groups); then add consumers or fix "
                "the handler.",
                float(lag),
                float(thresholds.lag_messages),
                "messages",
            )
    for group, count in look.new_dead_letters.items():
        if count > thresholds.new_dead_letters:
            yield Raised(
                "dead_letters",
                "warning",
                "group",
                group,
                f"{group} has {count:,} new dead {'letter' if count == 1 else 'letters'}",
                f"The group moved {count:,} {'message' if count == 1 else 'messages'} to the "
                "dead-letter queue within 10 minutes.",
                "Check the reasons (Dead letters), fix the handler, then redeliver the messages.",
                float(count),
                float(thresholds.new_dead_letters),
                "messages",
            )


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
