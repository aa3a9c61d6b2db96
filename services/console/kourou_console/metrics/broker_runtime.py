"""Parses a broker's runtime table into numbers.

A value that a broker (such as RocketMQ's) does not report is None and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MORE = "more"
"""The name of the last bucket, which has no upper bound."""

TODAY = ("msgPutTotalTodayMorning", "msgGetTotalTodayMorning")


@dataclass(frozen=True, slots=True)
class Runtime:
    """A sample of a broker at `at_ms`. Totals count since its start (`started_ms`)."""

    at_ms: int
    started_ms: int | None
    version: str | None
    messages_in: int | None
    messages_out: int | None
    bytes_in: int | None
    messages_in_today: int | None
    messages_out_today: int | None
    disk_used_ratio: float | None
    disk_total_bytes: int | None
    disk_free_bytes: int | None
    disk_level: str | None
    log_bytes: int | None
    held_pulls: int | None
    unflushed_bytes: int | None
    dispatch_behind_bytes: int | None
    replica_lag_bytes: int | None
    send_counts: tuple[tuple[float | None, int], ...] | None
    pull_counts: tuple[tuple[float | None, int], ...] | None


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates between two samples; None if one of them lacks the value."""

    messages_in_per_s: float | None = None
    messages_out_per_s: float | None = None
    bytes_in_per_s: float | None = None
    send_p50_ms: float | None = None
    send_p99_ms: float | None = None
    pull_p99_ms: float | None = None


def runtime_of(table: Mapping[str, str], at_ms: int) -> Runtime:
    """Parse a broker's table that was received at `at_ms`."""
    stored, read = whole(table, "msgPutTotalTodayNow"), whole(table, "msgGetTotalTodayNow")
    stored_before, read_before = (whole(table, name) for name in TODAY)
    low, high = whole(table, "commitLogMinOffset"), whole(table, "commitLogMaxOffset")
    lags = [
        lag
        for name in table
        if name.startswith("replicationLagBytes_") and (lag := whole(table, name)) is not None
    ]
    return Runtime(
        at_ms=at_ms,
        started_ms=whole(table, "bootTimestamp"),
        version=table.get("brokerVersionDesc"),
        messages_in=stored,
        messages_out=read,
        bytes_in=whole(table, "putMessageSizeTotal"),
        messages_in_today=_less(stored, stored_before),
        messages_out_today=_less(read, read_before),
        disk_used_ratio=_ratio(table, "commitLogDiskRatio"),
        disk_total_bytes=whole(table, "commitLogDiskTotal"),
        disk_free_bytes=whole(table, "commitLogDiskFree"),
        disk_level=table.get("diskLevel"),
        log_bytes=_less(high, low),
        held_pulls=whole(table, "pollingHolds"),
        unflushed_bytes=whole(table, "remainHowManyDataToFlush"),
        dispatch_behind_bytes=whole(table, "dispatchBehindBytes"),
        replica_lag_bytes=max(lags, default=None),
        send_counts=_counts(table.get("sendLatencyCounts")),
        pull_counts=_counts(table.get("pullLatencyCounts")),
    )


def rates_between(before: Runtime | None, now: Runtime) -> Rates:
    """The rates for each second; all unknown if the broker restarted in between."""
    if before is None or before.started_ms != now.started_ms or now.at_ms <= before.at_ms:
        return Rates()
    seconds = (now.at_ms - before.at_ms) / 1_000
    sends = _difference(before.send_counts, now.send_counts)
    pulls = _difference(before.pull_counts, now.pull_counts)
    return Rates(
        messages_in_per_s=_rate(before.messages_in, now.messages_in, seconds),
        messages_out_per_s=_rate(before.messages_out, now.messages_out, seconds),
        bytes_in_per_s=_rate(before.bytes_in, now.bytes_in, seconds),
        send_p50_ms=quantile(sends, 0.5),
        send_p99_ms=quantile(sends, 0.99),
        pull_p99_ms=quantile(pulls, 0.99),
    )


def quantile(counts: Sequence[tuple[float | None, int]] | None, share: float) -> float | None:
    """The quantile `share` of a histogram, as in Prometheus's `histogram_quantile`.

    It is an estimate: values are assumed to be evenly distributed within a bucket, from the
    previous bound (0 for the first) to its own. None if there are no values. Beyond the last bound,
    the last bound is returned, which is too low.
    """
    if counts is None:
        return None
    total = sum(count for _, count in counts)
    if total <= 0:
        return None
    wanted = share * total
    below, low = 0, 0.0
    for bound, count in counts:
        if bound is None:
            break
        if count and below + count >= wanted:
            return low + (bound - low) * (wanted - below) / count
        below += count
        low = bound
    return low


def joined(
    many: Sequence[tuple[tuple[float | None, int], ...]],
) -> tuple[tuple[float | None, int], ...] | None:
    """The sum of histograms; None if there are none, or their buckets differ."""
    if not many or any([b for b, _ in one] != [b for b, _ in many[0]] for one in many):
        return None
    return tuple(
        (bound, sum(one[place][1] for one in many)) for place, (bound, _) in enumerate(many[0])
    )


def sends_between(
    before: Runtime | None, now: Runtime
) -> tuple[tuple[float | None, int], ...] | None:
    """The histogram of sends between two samples, in the form for `joined`."""
    if before is None or before.started_ms != now.started_ms:
        return None
    found = _difference(before.send_counts, now.send_counts)
    return None if found is None else tuple(found)


def whole(table: Mapping[str, str], name: str) -> int | None:
    """An integer of a table, or None."""
    text = table.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _ratio(table: Mapping[str, str], name: str) -> float | None:
    try:
        found = float(table[name])
    except (KeyError, ValueError):
        return None
    return found if 0.0 <= found <= 1.0 else None


def _less(high: int | None, low: int | None) -> int | None:
    return None if high is None or low is None else max(0, high - low)


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    if before is None or now is None or now < before:
        return None
    return (now - before) / seconds


def _counts(text: str | None) -> tuple[tuple[float | None, int], ...] | None:
    """`1:40 3:2 more:0` as pairs; None if it is invalid."""
    if not text:
        return None
    found: list[tuple[float | None, int]] = []
    for part in text.split():
        bound, _, count = part.partition(":")
        if not (count.isascii() and count.isdigit()) or not (bound == MORE or bound.isdigit()):
            return None
        found.append((None if bound == MORE else float(bound), int(count)))
    return tuple(found)


def _difference(
    before: tuple[tuple[float | None, int], ...] | None,
    now: tuple[tuple[float | None, int], ...] | None,
) -> list[tuple[float | None, int]] | None:
    if before is None or now is None or len(before) != len(now):
        return None
    return [
        (bound, max(0, count - old)) for (_, old), (bound, count) in zip(before, now, strict=True)
    ]
