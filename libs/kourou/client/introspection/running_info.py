"""A consumer's running info, for operators' requests (RocketMQ `ConsumerRunningInfo`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kourou.client.introspection.consume_statistics import ConsumeRates
from kourou.errors import KourouError
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.settings.declaration import Settings

WAITS_MAX = 16
"""The number of waiting queues that are listed; usually all wait for the same reason."""

ORDERED_WAITS = "PROP_ORDERED_WAITS"
STALLED = "PROP_STANDING_QUEUES"
STALLED_MS = 10_000
"""A queue is listed if its smallest unfinished message has been the smallest for this long."""

_STALLED = re.compile(r"(\S+)@[0-9]{1,19} since=([0-9]{1,19})")
_ORDERED_WAIT = re.compile(r"(\S+)@([0-9]{1,19}) attempts=([0-9]{1,9}) until=([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue of this consumer (`ProcessQueueInfo`).

    The `cached_` fields cover its unfinished cached messages; offsets are -1 if there are none.
    `stalled_since_ms` is since when the lowest of them has been the lowest. Times are ms since
    1970, 0 for never.
    """

    commit_offset: int
    cached_min_offset: int = -1
    cached_max_offset: int = -1
    cached_count: int = 0
    cached_size_bytes: int = 0
    locked: bool = False
    dropped: bool = False
    last_pull_ms: int = 0
    last_consume_ms: int = 0
    stalled_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """A consumer's current state. `properties` are its settings as text, by RocketMQ's names."""

    properties: Mapping[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: Mapping[MessageQueue, QueueInfo]
    rates: Mapping[str, ConsumeRates]
    started_ms: int


@dataclass(frozen=True, slots=True)
class OrderedWait:
    """A queue that an orderly consumer has paused.

    `offset` is the failed message, `attempts` its failed attempts, `until_ms` the end of the pause
    (ms since 1970).
    """

    offset: int
    attempts: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """The outcome of a handler for a message that an operator sent to it (request code 309).

    `result` is CR_SUCCESS, CR_LATER or CR_THROW_EXCEPTION, as RocketMQ spells them.
    """

    result: str
    remark: str
    spent_ms: int
    order: bool = False


def properties_of(settings: Settings) -> dict[str, str]:
    """Return settings as text, by their keys in properties files."""
    return {key: _as_text(getattr(settings, item.name)) for key, item in settings.by_key().items()}


def filter_properties(failures: int, waiting: Mapping[MessageQueue, KourouError]) -> dict[str, str]:
    """Return the number of filter failures and the queues that wait; {} without any failure."""
    if not failures:
        return {}
    waits = "; ".join(error.message for error in list(waiting.values())[:WAITS_MAX])
    return {
        "PROP_FILTER_FAILURES": str(failures),
        "PROP_FILTER_WAITING_QUEUES": str(len(waiting)),
        "PROP_FILTER_WAITS": waits,
    }


def ordered_properties(waits: Mapping[MessageQueue, OrderedWait]) -> dict[str, str]:
    """Return the ordered queues that are paused after a failure, with the end; {} if none."""
    if not waits:
        return {}
    texts = [
        f"{queue!s}@{one.offset} attempts={one.attempts} until={one.until_ms}"
        for queue, one in list(waits.items())[:WAITS_MAX]
    ]
    return {ORDERED_WAITS: "; ".join(texts)}


def ordered_waits(properties: Mapping[str, str]) -> dict[str, OrderedWait]:
    """Parse the result of `ordered_properties`, by the queue as text; invalid parts are skipped."""
    found: dict[str, OrderedWait] = {}
    for part in properties.get(ORDERED_WAITS, "").split("; "):
        match = _ORDERED_WAIT.fullmatch(part)
        if match is not None:
            found[match[1]] = OrderedWait(int(match[2]), int(match[3]), int(match[4]))
    return found


def stalled_properties(queues: Mapping[MessageQueue, QueueInfo], now_ms: int) -> dict[str, str]:
    """Return the queues without progress for STANDS_MS, the longest first; {} if there are none."""
    stalled = sorted(
        (one.stalled_since_ms, queue, one.cached_min_offset)
        for queue, one in queues.items()
        if one.stalled_since_ms and now_ms - one.stalled_since_ms >= STALLED_MS
    )
    texts = [f"{queue!s}@{offset} since={since_ms}" for since_ms, queue, offset in stalled]
    return {STALLED: "; ".join(texts[:WAITS_MAX])} if texts else {}


def stalled_since(properties: Mapping[str, str]) -> dict[str, int]:
    """Parse the result of `stalled_properties`: since when, in ms, by the queue as text."""
    found: dict[str, int] = {}
    for part in properties.get(STALLED, "").split("; "):
        match = _STALLED.fullmatch(part)
        if match is not None:
            found[match[1]] = int(match[2])
    return found


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Mapping):
        return ";".join(f"{name}={expression}" for name, expression in value.items())
    if value is None or isinstance(value, str | int | float):
        return "" if value is None else str(value)
    # The text of an application's strategy or function may be anything, even a secret.
    return str(getattr(value, "name", type(value).__name__))
