"""Metrics of the last hour."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.errors import BadRequest
from kourou.model.limits import CONSOLE_SERIES_MAX
from kourou_console.gateway import Gateway
from kourou_console.lists import Missing
from kourou_console.metrics.sampler import ALL, Sampler
from kourou_console.metrics.series import Key
from kourou_console.operation import Operation

KNOWN: dict[str, tuple[str, str]] = {
    "messages_in_per_s": ("1/s", "Messages stored"),
    "messages_out_per_s": ("1/s", "Messages delivered"),
    "bytes_in_per_s": ("B/s", "Bytes stored"),
    "send_p50_ms": ("ms", "Median send latency (estimate)"),
    "send_p99_ms": ("ms", "99th percentile of send latency (estimate)"),
    "pull_p99_ms": (
        "ms",
        "99th percentile of pull latency without long-poll waiting (estimate)",
    ),
    "disk_used_ratio": ("ratio", "Disk usage ratio; for all brokers the highest"),
    "log_bytes": ("B", "Size of the commit log"),
    "held_pulls": ("1", "Pulls waiting for messages (long polling)"),
    "unflushed_bytes": ("B", "Bytes stored but not flushed to disk"),
    "dispatch_behind_bytes": ("B", "Bytes stored but not yet in consume queues"),
    "replica_lag_bytes": ("B", "Replication lag of the slowest replica"),
    "lag_messages": ("messages", "Consumer lag in messages"),
    "dead_letters": ("messages", "Messages in dead-letter topics"),
    "up": ("1", "1 if the broker is online; for all brokers the number online"),
}


class SeriesParameters(msgspec.Struct, frozen=True, kw_only=True):
    """`of`: a broker's or group's name, `broker:NAME`, `group:NAME`; by default the suite."""

    name: Annotated[list[str], msgspec.Meta(max_length=CONSOLE_SERIES_MAX)] = []
    of: Annotated[list[str], msgspec.Meta(max_length=CONSOLE_SERIES_MAX)] = []
    since_ms: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0


class Series(msgspec.Struct, frozen=True):
    """One line: a value for each time of `at_ms`, null where none is known."""

    name: str
    of: str
    unit: str
    values: list[float | None]


class KnownSeries(msgspec.Struct, frozen=True):
    """A stored metric and its owner: "" for the whole suite."""

    name: str
    unit: str
    about: str
    of: list[str]


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Columns that share their times. `truncated`: some series found no room."""

    as_of_ms: int
    interval_ms: int
    at_ms: list[int]
    series: list[Series]
    known: list[KnownSeries]
    truncated: bool
    missing: list[Missing] = []


async def series(gateway: Gateway, parameters: SeriesParameters) -> SeriesAnswer:
    """The requested series by name; without names, only the list of known series."""
    for name in parameters.name:
        if name not in KNOWN:
            raise BadRequest(f"unknown series {name!r}", hint=f"known: {', '.join(KNOWN)}")
    if len(parameters.name) * max(1, len(parameters.of)) > CONSOLE_SERIES_MAX:
        raise BadRequest(f"more than {CONSOLE_SERIES_MAX} series at once")
    sampler = gateway.part(Sampler)
    await sampler.fresh()
    there = set(sampler.samples.keys())
    wanted = [
        (name, of, _key(name, of, there))
        for of in parameters.of or [ALL]
        for name in parameters.name
    ]
    columns = sampler.samples.read([key for *_, key in wanted], parameters.since_ms)
    return SeriesAnswer(
        as_of_ms=gateway.clock.now_ms(),
        interval_ms=sampler.interval_ms,
        at_ms=columns.at_ms,
        series=[
            Series(name, of, KNOWN[name][0], values)
            for (name, of, _), values in zip(wanted, columns.values, strict=True)
        ],
        known=[
            KnownSeries(name, unit, about, [of for known, of in sorted(there) if known == name])
            for name, (unit, about) in KNOWN.items()
        ],
        truncated=sampler.samples.refused > 0,
    )


def _key(name: str, of: str, there: set[Key]) -> Key:
    """The series of a name without a prefix: the broker's, if there is one."""
    if of == ALL or of.startswith(("broker:", "group:")):
        return name, of
    broker = (name, f"broker:{of}")
    return broker if broker in there else (name, f"group:{of}")


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/series",
        "series",
        "Metrics of the last hour as columns: `name` and `of` are repeatable, null is a gap.",
        "Overview",
        series,
        SeriesAnswer,
        SeriesParameters,
    ),
)
