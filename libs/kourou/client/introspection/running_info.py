"""What a consumer reports to operators: its running info and its statistics.

They are RocketMQ's `ConsumerRunningInfo` and `ConsumeRates`. Measured are rates, handler times, and
handlers that are stuck. Sums are updated once a pull and once a burst of finished messages. Handler
times are measured for some messages only (`ConsumeLog`).

State: soft: samples, and the measured times that were not collected yet.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import Enum
from typing import Any

from kourou.clock import Clock
from kourou.errors import KourouError
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.settings.declaration import Settings

_log = logging.getLogger("kourou.client.consume")

SAMPLE_MS = 10_000
_MINUTE_SAMPLES = 60_000 // SAMPLE_MS
_HOUR_SAMPLES = 3_600_000 // SAMPLE_MS

NOT_MEASURED = -1
MEASURED_KEPT = 1_024
"""The number of times kept for the average; if they are not collected, older ones are dropped."""

SELDOM = 63
"""A busy worker measures one message in 64: those whose count has these bits 0."""


@dataclass(frozen=True, slots=True)
class ConsumeRates:
    """The last minute of one topic: rates are messages per second, `_rt` values are average ms.

    `consume_rt` covers all topics of the consumer. `consume_failed_msgs` counts the last hour. All
    values are 0 until two samples were taken.
    """

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


@dataclass(slots=True)
class TopicSums:
    """The totals of one topic."""

    pulls: int = 0
    pull_ms: int = 0
    pulled: int = 0
    consumed: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Topic:
    sums: TopicSums = field(default_factory=TopicSums)
    samples: deque[tuple[int, TopicSums]] = field(
        default_factory=lambda: deque(maxlen=_HOUR_SAMPLES + 1)
    )


class ConsumeStatistics:
    """The statistics of one consumer. Used on the I/O thread."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._handlers: deque[list[int]] = deque(maxlen=_MINUTE_SAMPLES)

    def of(self, topic: str) -> TopicSums:
        """Return the totals of a topic, for the caller to add to."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _Topic()
        return found.sums

    def sample(self, now_ms: int, handler_ms: Sequence[int] = ()) -> None:
        """Take a sample of the totals, with the handler times since the previous sample.

        `now_ms` is monotonic.
        """
        self._handlers.append(list(handler_ms))
        for topic in self._topics.values():
            topic.samples.append((now_ms, TopicSums(*astuple(topic.sums))))

    def rates(self) -> dict[str, ConsumeRates]:
        """Return the statistics of each topic, computed from the samples."""
        handlers = [one for look in self._handlers for one in look]
        consume_rt = sum(handlers) / len(handlers) if handlers else 0.0
        return {name: _rates_of(topic.samples, consume_rt) for name, topic in self._topics.items()}


def _rates_of(samples: deque[tuple[int, TopicSums]], consume_rt: float) -> ConsumeRates:
    if len(samples) < 2:
        return ConsumeRates()
    last_ms, last = samples[-1]
    first_ms, first = samples[max(0, len(samples) - 1 - _MINUTE_SAMPLES)]
    seconds = max(1, last_ms - first_ms) / 1_000
    pulls = last.pulls - first.pulls
    return ConsumeRates(
        pull_rt=(last.pull_ms - first.pull_ms) / pulls if pulls else 0.0,
        pull_tps=(last.pulled - first.pulled) / seconds,
        consume_rt=consume_rt,
        consume_ok_tps=(last.consumed - first.consumed) / seconds,
        consume_failed_tps=(last.failed - first.failed) / seconds,
        consume_failed_msgs=last.failed - samples[0][1].failed,
    )


class ConsumeLog:
    """Log lines and processing times of one consumer; callable from any thread.

    The line's level is DEBUG, or INFO with the setting `log_messages`. While that level is
    disabled, only the messages that a runner selects are measured, for the average.
    """

    __slots__ = ("_clock", "_level", "_times")

    def __init__(self, clock: Clock, level: int) -> None:
        self._clock = clock
        self._level = level
        self._times: deque[int] = deque(maxlen=MEASURED_KEPT)

    @property
    def writes(self) -> bool:
        """Whether it writes a line for every message now."""
        return _log.isEnabledFor(self._level)

    def begin(self, measured: bool = False) -> int:
        """Return the start in monotonic ms, or NOT_MEASURED if no log line is written.

        With `measured` the start is always returned.
        """
        if measured or _log.isEnabledFor(self._level):
            return self._clock.monotonic_ms()
        return NOT_MEASURED

    def consumed(self, item: Any, started_ms: int) -> None:
        """Record that `item`, a message or a list, was consumed; `started_ms` is from `begin`."""
        if started_ms == NOT_MEASURED:
            return
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        self._times.append(elapsed_ms)
        if _log.isEnabledFor(self._level):
            for message in item if isinstance(item, list) else (item,):
                _log.log(
                    self._level,
                    "message-consumed: consumed %(record)s in %(elapsed_ms)d ms",
                    {"record": message, "elapsed_ms": elapsed_ms},
                )

    def collect(self) -> list[int]:
        """Return the times in ms that were measured since the last call."""
        times, found = self._times, list[int]()
        while times:
            found.append(times.popleft())
        return found


class StuckWatch:
    """Detects items that have been in a handler for `timeout_ms`, each once.

    Nothing is recorded when a handler is called: each check compares the running items with those
    of earlier checks. So calls cost nothing, and an item is detected late by at most the time
    between two checks.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        # The items are kept, so that no other object can get the id of a monitored one.
        self._since: dict[tuple[int, int], tuple[Any, int, bool]] = {}

    def check(self, running: Iterable[Any], now_ms: int) -> list[Any]:
        """Return the items in `running` that exceed the time limit now; `now_ms` is monotonic."""
        seen: dict[tuple[int, int], tuple[Any, int, bool]] = {}
        late: list[Any] = []
        for item in running:
            first = item[0] if type(item) is list else item
            key = (id(item), first.attempt)  # a redelivered item counts as new
            _, since_ms, is_reported = self._since.get(key, (item, now_ms, False))
            if not is_reported and now_ms - since_ms >= self._timeout_ms:
                late.append(item)
                is_reported = True
            seen[key] = (item, since_ms, is_reported)
        self._since = seen
        return late


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
