"""Pull and consume rates of a consumer (RocketMQ's `ConsumeStatus`).

Sums are updated once a pull and once a burst of finished messages. Handler times are measured for
some messages only (kourou.client.introspection.consume_log).

State: soft.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field

LOOK_MS = 10_000
_MINUTE_LOOKS = 60_000 // LOOK_MS
_HOUR_LOOKS = 3_600_000 // LOOK_MS


@dataclass(frozen=True, slots=True)
class ConsumeStatus:
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
    looks: deque[tuple[int, TopicSums]] = field(
        default_factory=lambda: deque(maxlen=_HOUR_LOOKS + 1)
    )


class ConsumeStatistics:
    """The statistics of one consumer. Used on the I/O thread."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._handlers: deque[list[int]] = deque(maxlen=_MINUTE_LOOKS)

    def of(self, topic: str) -> TopicSums:
        """Return the totals of a topic, for the caller to add to."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _Topic()
        return found.sums

    def look(self, now_ms: int, handler_ms: Sequence[int] = ()) -> None:
        """Take a sample of the totals, with the handler times since the previous sample.

        `now_ms` is monotonic.
        """
        self._handlers.append(list(handler_ms))
        for topic in self._topics.values():
            topic.looks.append((now_ms, TopicSums(*astuple(topic.sums))))

    def statuses(self) -> dict[str, ConsumeStatus]:
        """Return the statistics of each topic, computed from the samples."""
        handlers = [one for look in self._handlers for one in look]
        consume_rt = sum(handlers) / len(handlers) if handlers else 0.0
        return {name: _status(topic.looks, consume_rt) for name, topic in self._topics.items()}


def _status(looks: deque[tuple[int, TopicSums]], consume_rt: float) -> ConsumeStatus:
    if len(looks) < 2:
        return ConsumeStatus()
    last_ms, last = looks[-1]
    first_ms, first = looks[max(0, len(looks) - 1 - _MINUTE_LOOKS)]
    seconds = max(1, last_ms - first_ms) / 1_000
    pulls = last.pulls - first.pulls
    return ConsumeStatus(
        pull_rt=(last.pull_ms - first.pull_ms) / pulls if pulls else 0.0,
        pull_tps=(last.pulled - first.pulled) / seconds,
        consume_rt=consume_rt,
        consume_ok_tps=(last.consumed - first.consumed) / seconds,
        consume_failed_tps=(last.failed - first.failed) / seconds,
        consume_failed_msgs=last.failed - looks[0][1].failed,
    )
