"""When something needs an operator, and what to tell that operator.

Lives here: the thresholds, the rules, the sentences; all pure. May not live here: asking brokers
(kourou_console.sampler), remembering since when (kourou_console.alarm_book).

A figure that is not known raises no alarm of its own; that it is not known is one.

State: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

DISK_CRITICAL = 0.9
"""Brokers refuse messages from here on (diskSpaceWarningLevelRatio), unless set otherwise."""

GAPS = 3
"""So many intervals without a sample are a gap."""


@dataclass(frozen=True, slots=True)
class AlarmThresholds:
    """Above which figure an alarm is raised."""

    disk_used_ratio: float = 0.75
    lag_messages: int = 100_000
    #: New dead letters of a group within ten minutes.
    dead_letters_grown: int = 0
    replica_lag_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class BrokerLook:
    """What is known of one broker; `up` False: it did not answer, for the reason `why`."""

    broker: str
    up: bool
    why: str | None = None
    disk_used_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class MemberLook:
    """One member of a log. `in_sync` None where nobody is asked for that.

    `missing`: its Raft group counts it, and no name server knows it.
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
class Look:
    """All that the rules look at. `lags`: messages a group has before it, as far as known.

    `grown`: new dead letters of each group in the last ten minutes.
    """

    brokers: Sequence[BrokerLook] = ()
    members: Sequence[MemberLook] = ()
    lags: Mapping[str, int] = field(default_factory=dict)
    grown: Mapping[str, int] = field(default_factory=dict)
    #: How long ago the last sample was taken; None: never yet.
    sample_age_ms: int | None = None
    interval_ms: int = 5_000
    #: Why the last round failed as a whole, if it did.
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """One alarm that holds now. `kind` and `of` name it; since when is somebody else's to know."""

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
        """The same while the same trouble lasts."""
        return f"{self.kind}:{self.of_kind}:{self.of}"


def alarms(look: Look, thresholds: AlarmThresholds) -> list[Raised]:
    """All that hold, the worst first."""
    found = [
        *_sampling(look),
        *_brokers(look.brokers, thresholds),
        *_members(look.members, thresholds),
        *_groups(look, thresholds),
    ]
    return sorted(found, key=lambda one: (one.severity != "critical", one.kind, one.of))


def _sampling(look: Look) -> Iterable[Raised]:
    age_ms, limit_ms = look.sample_age_ms, GAPS * look.interval_ms
    if look.trouble is None and (age_ms is None or age_ms <= limit_ms):
        return
    yield Raised(
        "sampling_gap",
        "warning",
        "console",
        "console",
        "Figures are not current",
        "This console has no fresh sample of the cluster"
        + (f": {look.trouble}" if look.trouble else "")
        + ". Charts show a gap, and other alarms may be late.",
        "Look whether a name server answers (Name servers), and how busy this machine is.",
        None if age_ms is None else float(age_ms),
        float(limit_ms),
        "ms",
    )


def _brokers(brokers: Sequence[BrokerLook], thresholds: AlarmThresholds) -> Iterable[Raised]:
    for one in brokers:
        if not one.up:
            yield Raised(
                "broker_away",
                "critical",
                "broker",
                one.broker,
                f"Broker {one.broker} is away",
                f"It gives no answer ({one.why or 'the reason is not known'}). Its messages can be "
                "neither sent nor read until it or another member leads again.",
                "Look at its process and its log; where it has a follower that is in sync, promote "
                "that one.",
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
            "It refuses messages until there is room."
            if critical
            else "Above diskMaxUsedSpaceRatio it deletes its oldest messages early; above "
            "diskSpaceWarningLevelRatio it refuses new ones.",
            "Give it more room, let it delete what is expired (Brokers, cleaning), or keep "
            "messages for fewer hours (fileReservedTime).",
            ratio,
            thresholds.disk_used_ratio,
            "ratio",
        )


def _members(members: Sequence[MemberLook], thresholds: AlarmThresholds) -> Iterable[Raised]:
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
                f"Member {one.member} of {one.broker} is not there",
                "Its group counts it, and no name server knows it. The log has one copy fewer, and "
                "the next member that goes may stop the group.",
                "Start it again on its store; look at its log for why it ended.",
            )
            continue
        if one.why is not None:
            yield Raised(
                "member_away",
                "warning",
                "member",
                name,
                f"The copy {name} is away",
                f"It gives no answer ({one.why}). The log has one copy fewer.",
                "Look at its process and its log.",
            )
            continue
        if one.must_be_in_sync and one.in_sync is False:
            yield Raised(
                "replica_not_in_sync",
                "critical",
                "member",
                name,
                f"The copy {name} is not in sync",
                "Its leader does not count on it: messages that were acknowledged may be lost with "
                "the leader's machine, or sends wait.",
                "Look at the lag and state of the copy (Brokers, replicas), and at its log.",
            )
        if one.lag_bytes is not None and one.lag_bytes > thresholds.replica_lag_bytes:
            yield Raised(
                "replica_behind",
                "warning",
                "member",
                name,
                f"The copy {name} is behind",
                "What it lacks would be lost if it had to lead now.",
                "Look at its disk and at the network between it and its leader.",
                float(one.lag_bytes),
                float(thresholds.replica_lag_bytes),
                "B",
            )


def _groups(look: Look, thresholds: AlarmThresholds) -> Iterable[Raised]:
    for group, lag in look.lags.items():
        if lag > thresholds.lag_messages:
            yield Raised(
                "lag",
                "warning",
                "group",
                group,
                f"{group} is {lag:,} messages behind",
                "Messages come faster than the group consumes them, or it does not consume at all.",
                "Look whether it has members, whether they fail, and which queues wait (Groups); "
                "then give it more members, or mend its handler.",
                float(lag),
                float(thresholds.lag_messages),
                "messages",
            )
    for group, count in look.grown.items():
        if count > thresholds.dead_letters_grown:
            yield Raised(
                "dead_letters",
                "warning",
                "group",
                group,
                f"{group} has {count:,} new dead letters",
                "Within ten minutes the group has given up on that many messages after all its "
                "attempts.",
                "Look at their reasons (Dead letters), mend the handler, then redrive them.",
                float(count),
                float(thresholds.dead_letters_grown),
                "messages",
            )
