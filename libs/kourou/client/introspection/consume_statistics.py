"""Measurement of consumption: rates (RocketMQ's `ConsumeRates`), handler times, stuck handlers.

Sums are updated once a pull and once a burst of finished messages. Handler times are measured for
some messages only (`ConsumeLog`).

State: soft: samples, and the measured times that were not collected yet.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from kourou.clock import Clock

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
