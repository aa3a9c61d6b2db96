"""The traffic of this broker: counters, and their sums under RocketMQ's item names.

    sample     every 10 s: the increase of each counter that increased
    minute     the last 6 samples
    hour       the last 6 sums of ten minutes
    day        the last 24 sums of an hour

So idle topics cost nothing, and the hot path only increments counters: nothing is kept per message.

State: soft. Everything starts at 0 with the process, as RocketMQ's statistics do.

The counters are plain integers, which a metrics page reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kourou.engine.effects import Effect
from kourou.errors import Rejected
from kourou.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from kourou.protocol.bodies.statistics_bodies import BrokerStats, StatsItem, encode_broker_stats
from kourou.protocol.messages.broker_admin import ViewBrokerStatsData
from kourou.protocol.request import Request
from kourou.runtime import Received, Reply

SIZE_BOUNDS = (1_024, 4_096, 524_288, 1_048_576, 2_097_152, 4_194_304)
"""Upper bounds, in bytes, of RocketMQ's buckets of message sizes; one more bucket is above."""

_BUCKETS = len(SIZE_BOUNDS) + 1


_KINDS = {HALF_TOPIC: "transaction", SCHEDULE_TOPIC: "delay"}
"""RocketMQ 5's types of messages that are stored in another topic first, by that topic."""


@dataclass(slots=True)
class Tally:
    """Messages of one kind."""

    messages: int = 0
    size_bytes: int = 0
    sizes: list[int] = field(default_factory=lambda: _no_sizes())


class Traffic:
    """Counts by topic, and by topic and group."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "filter_failures",
        "filtered",
        "kinds_in",
        "messages_in",
        "messages_out",
        "pulls_empty",
        "pulls_out",
        "refused",
        "repeats_removed",
        "sent_back",
        "sizes_in",
    )

    def __init__(self) -> None:
        self.messages_in: defaultdict[str, int] = defaultdict(int)
        self.bytes_in: defaultdict[str, int] = defaultdict(int)
        self.sizes_in: defaultdict[str, list[int]] = defaultdict(_no_sizes)
        self.kinds_in: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
        self.messages_out: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.bytes_out: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.pulls_out: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.filtered: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.filter_failures: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.refused: defaultdict[int, int] = defaultdict(int)
        self.sent_back: defaultdict[tuple[str, str], int] = defaultdict(int)
        """Messages that a group could not process, for another attempt or as dead letters."""
        self.repeats_removed = 0
        self.pulls_empty = 0
        """Pulls whose reply has no message, whatever the reason."""

    def taken(self, topic: str, size_bytes: int) -> None:
        """Count a stored message."""
        self.messages_in[topic] += 1
        self.bytes_in[topic] += size_bytes
        self.sizes_in[topic][bisect_left(SIZE_BOUNDS, size_bytes)] += 1

    def taken_to(self, place: str, topic: str, size_bytes: int) -> None:
        """Count a message of `topic`, which `taken` counts too, that is stored in `place` first."""
        kind = _KINDS.get(place)
        if kind is not None:
            tally = self.kinds_in[topic, kind]
            tally.messages += 1
            tally.size_bytes += size_bytes
            tally.sizes[bisect_left(SIZE_BOUNDS, size_bytes)] += 1

    def taken_many_to(
        self,
        place: str,
        topics: Sequence[str],
        topic_of: Sequence[int] | None,
        sizes: Sequence[int],
    ) -> None:
        """Count messages, which `taken_many` counts too, that are stored in `place` first."""
        for topic, own in _by_topic(topics, topic_of, sizes):
            tally = self.kinds_in[topic, _KINDS[place]]
            tally.messages += len(own)
            tally.size_bytes += sum(own)
            _count(tally.sizes, own)

    def taken_many(
        self, topics: Sequence[str], topic_of: Sequence[int] | None, sizes: Sequence[int]
    ) -> None:
        """Count stored messages of these sizes, at least one.

        `topic_of[i]` is the index in `topics` for message i; None means that all went to the first
        one. `topics` may have repeats.
        """
        for topic, own in _by_topic(topics, topic_of, sizes):
            self.messages_in[topic] += len(own)
            self.bytes_in[topic] += sum(own)
            _count(self.sizes_in[topic], own)

    def out(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """Count a pull that returned messages to a consumer group."""
        self.pulls_out[topic, group] += 1
        self.messages_out[topic, group] += messages
        self.bytes_out[topic, group] += size_bytes

    def passed_over(self, topic: str, group: str, messages: int, failures: int) -> None:
        """Count messages that did not match; the filter failed for `failures` of them."""
        self.filtered[topic, group] += messages
        if failures:
            self.filter_failures[topic, group] += failures

    def refuse(self, code: int) -> None:
        """Count a request that was refused with this code."""
        self.refused[code] += 1


def _no_sizes() -> list[int]:
    return [0] * _BUCKETS


def _by_topic(
    topics: Sequence[str], topic_of: Sequence[int] | None, sizes: Sequence[int]
) -> Iterable[tuple[str, Sequence[int]]]:
    """Return the sizes of each topic's messages."""
    if topic_of is None or len(set(topics)) == 1:
        return [(topics[0], sizes)]
    found: dict[str, list[int]] = {}
    for number, size in zip(topic_of, sizes, strict=True):
        found.setdefault(topics[number], []).append(size)
    return found.items()


def _count(buckets: list[int], sizes: Sequence[int]) -> None:
    """Count messages by their sizes; the sizes in a batch are usually similar."""
    lowest = bisect_left(SIZE_BOUNDS, min(sizes))
    if lowest == bisect_left(SIZE_BOUNDS, max(sizes)):
        buckets[lowest] += len(sizes)
        return
    for size in sizes:
        buckets[bisect_left(SIZE_BOUNDS, size)] += 1


SAMPLE_MS = 10_000
SAMPLES_A_MINUTE = 6
SAMPLES_A_SUM = 60
SUMS_AN_HOUR = 6
HOURS_A_DAY = 24

Totals = Mapping[Any, int]
"""Counts since the process started, by any key."""


@dataclass(slots=True)
class _Span:
    """The increases of counters in a period. `ms` is its length."""

    ms: int
    increase: dict[Hashable, int]


class Counter:
    """One family of counters, sampled every 10 s."""

    __slots__ = ("_before", "_hour", "_hours", "_minute", "_samples", "_tens", "_totals")

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._before: dict[Hashable, int] = {}
        self._samples = 0
        self._minute: deque[_Span] = deque(maxlen=SAMPLES_A_MINUTE)
        self._tens: deque[_Span] = deque(maxlen=SUMS_AN_HOUR)
        self._hours: deque[_Span] = deque(maxlen=HOURS_A_DAY)
        self._hour: list[_Span] = []

    def sample(self, ms: int) -> None:
        """Note the increases in the last `ms`."""
        before = self._before
        increase = {
            key: total - before.get(key, 0)
            for key, total in self._totals.items()
            if total != before.get(key, 0)
        }
        before.update({key: self._totals[key] for key in increase})
        self._minute.append(_Span(ms, increase))
        self._hour.append(_Span(ms, increase))
        self._samples += 1
        if self._samples % SAMPLES_A_SUM == 0:
            self._tens.append(_joined(self._hour))
            self._hour = []
            if self._samples % (SAMPLES_A_SUM * SUMS_AN_HOUR) == 0:
                self._hours.append(_joined(list(self._tens)))

    def known(self, key: Hashable) -> bool:
        """Return whether anything was ever counted under this key."""
        return key in self._totals

    def minute(self, key: Hashable) -> tuple[int, int]:
        """Return the count of the last minute, and the length of the period in ms."""
        return _sum(self._minute, key)

    def sample_before(self, key: Hashable) -> tuple[int, int]:
        """Return the same for the last complete sample."""
        return _sum(list(self._minute)[-1:], key)

    def tens_of_minutes(self, key: Hashable) -> tuple[int, int]:
        """Return the same for the last ten to twenty minutes, or since the start."""
        return _sum([*list(self._tens)[-1:], *self._hour], key)

    def hour(self, key: Hashable) -> tuple[int, int]:
        """Return the same for the last hour, in steps of ten minutes, or since the start."""
        return _sum([*self._tens, *self._hour], key)

    def day(self, key: Hashable) -> tuple[int, int]:
        """Return the same for the last day, in steps of an hour, or since the start."""
        left = self._samples // SAMPLES_A_SUM % SUMS_AN_HOUR
        tens = list(self._tens)[len(self._tens) - left :] if left else []
        return _sum([*self._hours, *tens, *self._hour], key)


def _joined(spans: list[_Span]) -> _Span:
    increase: dict[Hashable, int] = {}
    for span in spans:
        for key, count in span.increase.items():
            increase[key] = increase.get(key, 0) + count
    return _Span(sum(span.ms for span in spans), increase)


def _sum(spans: Iterable[_Span], key: Hashable) -> tuple[int, int]:
    total = ms = 0
    for span in spans:
        total += span.increase.get(key, 0)
        ms += span.ms
    return total, ms


class Statistics:
    """Samples the traffic and serves its items. `cluster` names the broker's own items."""

    def __init__(self, traffic: Traffic, cluster: str) -> None:
        self._cluster = cluster
        self._sampled_ms: int | None = None
        self._stored = Counter(traffic.messages_in)
        self._stored_bytes = Counter(traffic.bytes_in)
        self._read = Counter(traffic.messages_out)
        self._read_bytes = Counter(traffic.bytes_out)
        self._pulls = Counter(traffic.pulls_out)
        self._sent_back = Counter(traffic.sent_back)
        self._all: dict[Hashable, int] = dict.fromkeys((_STORED, _READ, _FOUND, _MISSED, _ASKED), 0)
        self._broker = Counter(self._all)
        self._traffic = traffic
        self._hour = -1
        self._this_morning = self._last_morning = (0, 0)

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {ViewBrokerStatsData: self.view}

    def tick(self, now_ms: int) -> None:
        """Take a sample if 10 s have passed."""
        if self._sampled_ms is None:
            self._sampled_ms = now_ms
            return
        passed_ms = now_ms - self._sampled_ms
        if passed_ms < SAMPLE_MS:
            return
        self._sampled_ms = now_ms
        self._all[_STORED] = sum(self._traffic.messages_in.values())
        self._all[_READ] = sum(self._traffic.messages_out.values())
        self._all[_FOUND] = sum(self._traffic.pulls_out.values())
        self._all[_MISSED] = self._traffic.pulls_empty
        self._all[_ASKED] = self._all[_FOUND] + self._all[_MISSED]
        for counter in (
            self._stored,
            self._stored_bytes,
            self._read,
            self._read_bytes,
            self._pulls,
            self._sent_back,
            self._broker,
        ):
            counter.sample(passed_ms)

    def note_hour(self, hour: int) -> None:
        """Note the local hour of the wall clock; when it becomes 0, a new day begins."""
        if hour == 0 and self._hour > 0:
            self._last_morning = self._this_morning
            self._this_morning = self._passed()
        self._hour = hour

    def _passed(self) -> tuple[int, int]:
        traffic = self._traffic
        return sum(traffic.messages_in.values()), sum(traffic.messages_out.values())

    def broker_totals(self) -> dict[str, str]:
        """Return totals since the start and up to the last two midnights, by RocketMQ's names.

        They are part of the runtime table (28). Tools subtract them to get today's and yesterday's
        traffic.
        """
        now = self._passed()
        size = sum(self._traffic.bytes_in.values())
        return {
            **{
                f"msg{what}Total{day}": str(totals[place])
                for place, what in enumerate(("Put", "Get"))
                for day, totals in (
                    ("YesterdayMorning", self._last_morning),
                    ("TodayMorning", self._this_morning),
                    ("TodayNow", now),
                )
            },
            "putMessageTimesTotal": str(now[0]),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": f"{size / now[0] if now[0] else 0.0:g}",
        }

    def broker_rates(self) -> dict[str, str]:
        """Return rates per second of the last 10 s, minute, and ten to twenty minutes.

        They cover all topics and have the names and form of RocketMQ's runtime table (28): messages
        stored and read, pulls with messages, without any, and both.
        """
        return {
            name: " ".join(
                f"{count * 1000 / ms if ms else 0.0:g}"
                for count, ms in (
                    self._broker.sample_before(key),
                    self._broker.minute(key),
                    self._broker.tens_of_minutes(key),
                )
            )
            for name, key in _RATES
        }

    def consume_tps(self, topic: str, group: str) -> float:
        """Return how many messages per second a group pulled from a topic in the last minute."""
        count, ms = self._read.minute((topic, group))
        return count * 1000 / ms if ms else 0.0

    def view(self, _now_ms: int, received: Received, request: ViewBrokerStatsData) -> list[Effect]:
        """Reply with one item over the last minute, hour and day (315)."""
        stats = self.item(request.stats_name, request.stats_key)
        if stats is None:
            raise Rejected(
                f"The stats <{request.stats_name}> <{request.stats_key}> not exist",
                hint=f"items: {', '.join(ITEMS)}; keys: topic, topic@group, or the cluster's name",
            )
        return [Reply(received.to, body=(encode_broker_stats(stats),))]

    def item(self, name: str, key: str) -> BrokerStats | None:
        """Return the values of one item; None if nothing was ever counted under that key."""
        topic, _, group = key.rpartition("@")
        pair: Hashable = (topic, group)
        match name:
            case "TOPIC_PUT_NUMS":
                return _stats(self._stored, self._stored, key)
            case "TOPIC_PUT_SIZE":
                return _stats(self._stored_bytes, self._stored, key)
            case "GROUP_GET_NUMS":
                return _stats(self._read, self._pulls, pair)
            case "GROUP_GET_SIZE":
                return _stats(self._read_bytes, self._pulls, pair)
            case "SNDBCK_PUT_NUMS":
                return _stats(self._sent_back, self._sent_back, pair)
            case "BROKER_PUT_NUMS" | "BROKER_GET_NUMS" if key == self._cluster:
                of_all = _STORED if name == "BROKER_PUT_NUMS" else _READ
                return _stats(self._broker, self._broker, of_all)
            case _:
                return None


_STORED, _READ, _FOUND, _MISSED, _ASKED = "stored", "read", "found", "missed", "asked"
_RATES = (
    ("putTps", _STORED),
    ("getTransferedTps", _READ),
    ("getFoundTps", _FOUND),
    ("getMissTps", _MISSED),
    ("getTotalTps", _ASKED),
)

ITEMS = (
    "TOPIC_PUT_NUMS",
    "TOPIC_PUT_SIZE",
    "GROUP_GET_NUMS",
    "GROUP_GET_SIZE",
    "SNDBCK_PUT_NUMS",
    "BROKER_PUT_NUMS",
    "BROKER_GET_NUMS",
)
"""RocketMQ's names of the items that can be queried."""


def _stats(counted: Counter, times: Counter, key: Hashable) -> BrokerStats | None:
    """Return the values of one item; `times` counts additions, for the average per addition."""
    if not counted.known(key):
        return None
    return BrokerStats(
        stats_minute=_item(counted.minute(key), times.minute(key)),
        stats_hour=_item(counted.hour(key), times.hour(key)),
        stats_day=_item(counted.day(key), times.day(key)),
    )


def _item(counted: tuple[int, int], times: tuple[int, int]) -> StatsItem:
    total, ms = counted
    return StatsItem(
        sum=total,
        tps=total * 1000 / ms if ms else 0.0,
        avgpt=total / times[0] if times[0] else 0.0,
    )
