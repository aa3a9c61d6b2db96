"""The active alarms."""

from __future__ import annotations

import msgspec

from kourou_console.gateway import Gateway
from kourou_console.lists import Listing
from kourou_console.metrics.alarms import GAPS, ActiveAlarm
from kourou_console.metrics.sampler import Sampler
from kourou_console.operation import NoParameters, Operation


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something that holds now. `kind` is one of disk, lag, dead_letters, replica_behind,
    replica_not_in_sync, broker_away, member_away, member_missing, sampling_gap; `severity` is
    warning or critical.
    """

    id: str
    kind: str
    severity: str
    of_kind: str
    of: str
    since_ms: int
    value: float | None
    threshold: float | None
    unit: str
    title: str
    meaning: str
    what_to_do: str


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm is raised above these; settings of the console."""

    disk_used_ratio: float
    lag_messages: int
    #: New dead letters of a group within ten minutes.
    new_dead_letters: int = msgspec.field(name="dead_letters_grown")
    replica_lag_bytes: int
    sampling_gap_ms: int


class AlarmList(Listing[Alarm], frozen=True, kw_only=True):
    """The alarms that hold, the worst first."""

    thresholds: Thresholds


async def alarms(gateway: Gateway, _parameters: NoParameters) -> AlarmList:
    """The active alarms as of the last sample."""
    sampler = gateway.part(Sampler)
    await sampler.fresh()
    found = [alarm_view(one) for one in sampler.active_alarms()]
    limits = gateway.settings.thresholds
    return AlarmList(
        items=found,
        total=len(found),
        missing=sampler.without_lags(),
        as_of_ms=gateway.clock.now_ms(),
        thresholds=Thresholds(
            disk_used_ratio=limits.disk_used_ratio,
            lag_messages=limits.lag_messages,
            new_dead_letters=limits.new_dead_letters,
            replica_lag_bytes=limits.replica_lag_bytes,
            sampling_gap_ms=GAPS * sampler.interval_ms,
        ),
    )


def alarm_view(one: ActiveAlarm) -> Alarm:
    """The response form of an alarm."""
    raised = one.raised
    return Alarm(
        id=raised.id,
        kind=raised.kind,
        severity=raised.severity,
        of_kind=raised.of_kind,
        of=raised.of,
        since_ms=one.since_ms,
        value=raised.value,
        threshold=raised.threshold,
        unit=raised.unit,
        title=raised.title,
        meaning=raised.meaning,
        what_to_do=raised.what_to_do,
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/alarms",
        "alarms",
        "Active alarms: start time, meaning, action.",
        "Alarms",
        alarms,
        AlarmList,
    ),
)
