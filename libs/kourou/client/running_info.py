"""What a consumer tells of itself when somebody asks (RocketMQ `ConsumerRunningInfo`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kourou.client.consume_statistics import ConsumeStatus
from kourou.client.setting import Settings
from kourou.errors import KourouError
from kourou.model.queue import MessageQueue
from kourou.model.subscription import Subscription

WAITS_MAX = 16
"""Of so many queues is told why they wait; as a rule all of them wait for the same."""

ORDERED_WAITS = "PROP_ORDERED_WAITS"
STANDING = "PROP_STANDING_QUEUES"
STANDS_MS = 10_000
"""A queue whose smallest unfinished message has been that for so long is told of."""

_STANDING = re.compile(r"(\S+)@[0-9]{1,19} since=([0-9]{1,19})")
_ORDERED_WAIT = re.compile(r"(\S+)@([0-9]{1,19}) attempts=([0-9]{1,9}) until=([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue of this member (`ProcessQueueInfo`).

    `cached_*` are of its messages that are here and not finished, -1 where there are none; since
    `stands_since_ms` the lowest of them is the lowest. Times are ms since 1970, 0 for never.
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
    stands_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """A consumer as it is now. `properties` are its settings as text, by RocketMQ's names."""

    properties: Mapping[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: Mapping[MessageQueue, QueueInfo]
    statuses: Mapping[str, ConsumeStatus]
    started_ms: int


@dataclass(frozen=True, slots=True)
class OrderedWait:
    """A queue consumed in order stands still: before which offset, after how many failed attempts,
    until when (ms since 1970)."""

    offset: int
    attempts: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class DirectResult:
    """What a handler said of a message that somebody else handed it (309).

    `result` is CR_SUCCESS, CR_LATER or CR_THROW_EXCEPTION, as RocketMQ spells them.
    """

    result: str
    remark: str
    spent_ms: int
    order: bool = False


def properties_of(settings: Settings) -> dict[str, str]:
    """Settings as text, by the keys they have in files."""
    return {key: _as_text(getattr(settings, item.name)) for key, item in settings.by_key().items()}


def filter_properties(failures: int, waiting: Mapping[MessageQueue, KourouError]) -> dict[str, str]:
    """How often a filter could not judge, and which queues wait for a better one; {} if never."""
    if not failures:
        return {}
    waits = "; ".join(error.message for error in list(waiting.values())[:WAITS_MAX])
    return {
        "PROP_FILTER_FAILURES": str(failures),
        "PROP_FILTER_WAITING_QUEUES": str(len(waiting)),
        "PROP_FILTER_WAITS": waits,
    }


def ordered_properties(waits: Mapping[MessageQueue, OrderedWait]) -> dict[str, str]:
    """Which ordered queues stand still after a failure, and until when; {} if none does."""
    if not waits:
        return {}
    told = [
        f"{queue!s}@{one.offset} attempts={one.attempts} until={one.until_ms}"
        for queue, one in list(waits.items())[:WAITS_MAX]
    ]
    return {ORDERED_WAITS: "; ".join(told)}


def ordered_waits(properties: Mapping[str, str]) -> dict[str, OrderedWait]:
    """The same read again, by the queue as text; what is something else is left out."""
    found: dict[str, OrderedWait] = {}
    for part in properties.get(ORDERED_WAITS, "").split("; "):
        match = _ORDERED_WAIT.fullmatch(part)
        if match is not None:
            found[match[1]] = OrderedWait(int(match[2]), int(match[3]), int(match[4]))
    return found


def standing_properties(queues: Mapping[MessageQueue, QueueInfo], now_ms: int) -> dict[str, str]:
    """Whose smallest unfinished message has stood for STANDS_MS, the longest first; {} if none."""
    standing = sorted(
        (one.stands_since_ms, queue, one.cached_min_offset)
        for queue, one in queues.items()
        if one.stands_since_ms and now_ms - one.stands_since_ms >= STANDS_MS
    )
    told = [f"{queue!s}@{offset} since={since_ms}" for since_ms, queue, offset in standing]
    return {STANDING: "; ".join(told[:WAITS_MAX])} if told else {}


def standing_since(properties: Mapping[str, str]) -> dict[str, int]:
    """The same read again: by the queue as text since when, in ms."""
    found: dict[str, int] = {}
    for part in properties.get(STANDING, "").split("; "):
        match = _STANDING.fullmatch(part)
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
    # A strategy or a function of the application's: its own text may be anything, even a secret.
    return str(getattr(value, "name", type(value).__name__))
