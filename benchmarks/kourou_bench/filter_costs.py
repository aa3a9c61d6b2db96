"""Results of `kourou bench filter`: cost and savings of filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kourou_bench.figures import Figure

NS_IN_US = 1_000
NS_IN_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of reading a backlog of `messages` messages in one way.

    `handed` of them reached the consumer, in `sent_bytes` bytes of stored records. `cpu_ns` is the
    CPU time of each process in that time.
    """

    messages: int
    handed: int
    sent_bytes: int
    wall_ns: int
    cpu_ns: Mapping[str, int]

    @property
    def wall_us(self) -> float:
        """Wall time in microseconds per message of the backlog."""
        return self.wall_ns / NS_IN_US / self.messages

    @property
    def cpu_us(self) -> float:
        """CPU time of all processes in microseconds per message of the backlog."""
        return sum(self.cpu_ns.values()) / NS_IN_US / self.messages


def middle(costs: Sequence[Cost]) -> Cost:
    """The reading with the median CPU time."""
    ordered = sorted(costs, key=lambda cost: cost.cpu_us)
    return ordered[(len(ordered) - 1) // 2]


def cost_figures(costs: Mapping[str, Cost], plain: str) -> Iterator[Figure]:
    """The costs of every way, and the difference from the `plain` one."""
    base = costs[plain]
    for way, cost in costs.items():
        yield Figure(f"{way}, wall", "µs/msg", cost.wall_us)
        yield Figure(f"{way}, CPU", "µs/msg", cost.cpu_us)
        for part, spent_ns in cost.cpu_ns.items():
            if spent_ns:
                spent_us = spent_ns / NS_IN_US / cost.messages
                yield Figure(f"{way}, CPU of {part}", "µs/msg", spent_us)
        if way != plain:
            yield Figure(f"{way}, CPU over {plain}", "µs/msg", cost.cpu_us - base.cpu_us)
            yield Figure(
                f"{way}, bytes saved", "%", saved_percent(cost.sent_bytes, base.sent_bytes)
            )


def saved_percent(sent_bytes: int, in_all_bytes: int) -> float:
    """The percentage of bytes that were not sent."""
    return 100 * (1 - sent_bytes / in_all_bytes) if in_all_bytes else 0.0


def throughput_figures(seconds: Mapping[str, float], messages: int) -> Iterator[Figure]:
    """Messages of a backlog per second, filtered or delivered."""
    for way, took_s in seconds.items():
        yield Figure(f"{way}, rate", "msg/s", messages / took_s)


def beside_figures(
    where: str, alone_ms: Sequence[float], beside_ms: Sequence[float]
) -> Iterator[Figure]:
    """The p99 of another group without and with hostile filters: medians of rounds and of ratios.

    `where` names the number of filter servers that run the hostile filters, and their cores.
    """
    ratios = [beside / alone for alone, beside in zip(alone_ms, beside_ms, strict=True)]
    yield Figure(f"another group, p99 alone ({where})", "ms", median(alone_ms))
    yield Figure(f"… with hostile filters ({where})", "ms", median(beside_ms))
    yield Figure(f"… ratio ({where})", "×", median(ratios))
