"""Measurements that a broker makes while it works; a metrics page reads them without locks.

Every request passes through the measurement of its latency, from arrival to reply. Therefore it
costs only two fields in the reply address, one clock read and a few integer operations: well below
a microsecond.

State: soft.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from operator import add
from typing import TypeVar

from kourou.errors import Code
from kourou.model.units import NS_PER_MS
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.messages.sends import SendMessage, SendRecords, SendReplyMessage
from kourou.protocol.table import REQUESTS
from kourou.runtime import Reply, ReplyTo
from kourou.service.protocol_server import RequestObserver, TimedReplyTo
from kourou.telemetry.metric_table import DISK_BOUNDS_MS, RPC_BOUNDS_MS
from kourou.telemetry.metrics import Durations, Histogram, Labels

PUT_BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
"""RocketMQ 4's buckets of send latency (`pmdt` in its exporter's names)."""

_BOUNDS_MS = sorted({*RPC_BOUNDS_MS, *PUT_BOUNDS_MS})
_BOUNDS_NS = [bound * NS_PER_MS for bound in _BOUNDS_MS]
_SUM = len(_BOUNDS_NS) + 1
"""A row has one count per bucket, one beyond the last, and then the sum in ns."""

SENDS = frozenset(
    spec.code
    for spec in REQUESTS.values()
    if spec.header in (SendMessage, SendRecords, SendReplyMessage)
)
PULLS = frozenset({PullMessage.code})

_STORED = frozenset(
    {
        Code.SUCCESS,
        Code.FLUSH_DISK_TIMEOUT,
        Code.FLUSH_SLAVE_TIMEOUT,
        Code.SLAVE_NOT_AVAILABLE,
    }
)
"""Replies to a send whose messages are in the log."""

_UNKNOWN = 0
_PULL = PullMessage.code
PROTOCOLS = {"tcp": "remoting"}
"""RocketMQ's name of its own protocol; other transports keep Kourou's name."""

_Key = tuple[str, int, int, bool]
"""Transport, request code, response code, and whether it was parked (long poll)."""


class RpcLatency(RequestObserver):
    """Counts answered requests. Single-threaded; `now_ns` is monotonic."""

    __slots__ = ("_burst_ns", "_now_ns", "_rows")

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._burst_ns = 0
        self._rows: dict[_Key, list[int]] = {}

    def arrived(self) -> int:
        """Record a burst of requests; returns the arrival time of each."""
        self._burst_ns = self._now_ns()
        return self._burst_ns

    def handled(self) -> None:
        """End the burst: a pull that has no reply yet is a long poll."""
        self._burst_ns = 0

    def answered(self, to: ReplyTo, code: int) -> None:
        """Record the reply to a request; oneway requests are not counted."""
        if not isinstance(to, TimedReplyTo) or to.oneway:
            return
        arrived_ns, request = to.arrived_ns, to.request_code
        key = (to.peer.protocol, request, code, request == _PULL and arrived_ns != self._burst_ns)
        row = self._rows.get(key) or self._new_row(key)
        elapsed_ns = self._now_ns() - arrived_ns
        row[bisect_left(_BOUNDS_NS, elapsed_ns)] += 1
        row[_SUM] += elapsed_ns

    def _new_row(self, key: _Key) -> list[int]:
        protocol, request, response, held = key
        if request not in REQUESTS:  # unknown request codes share one row
            key = (protocol, _UNKNOWN, response, held)
        return self._rows.setdefault(key, [0] * (_SUM + 1))

    def watching(self, reply: Callable[[Reply], None]) -> Callable[[Reply], None]:
        """Wrap `reply`, to record each reply after it is sent."""
        answered = self.answered

        def watched(effect: Reply) -> None:
            reply(effect)
            answered(effect.to, effect.code)

        return watched

    def counts(self, requests: Collection[int]) -> list[int]:
        """Return the replies to these requests per bucket of RPC_BOUNDS_MS and beyond.

        Long polls are not included.
        """
        found = [0] * (len(RPC_BOUNDS_MS) + 1)
        for (_, request, _, held), row in self._rows.items():
            if request in requests and not held:
                found = list(map(add, found, _folded(row, RPC_BOUNDS_MS)))
        return found

    def samples(self, base: Mapping[str, str]) -> Iterator[tuple[Labels, Histogram]]:
        """Return each row with its labels."""
        for (protocol, request, response, held), row in self._rows.items():
            labels = {
                "protocol_type": PROTOCOLS.get(protocol, protocol),
                "request_code": _request_name(request),
                "response_code": _response_name(response),
                "is_long_polling": "true" if held else "false",
                **base,
            }
            counts = _folded(row, RPC_BOUNDS_MS)
            yield labels, Histogram.counted(RPC_BOUNDS_MS, counts, row[_SUM] / NS_PER_MS)

    def stored(self) -> list[int]:
        """Return the stored sends since the start, by PUT_BOUNDS_MS and beyond."""
        found = [0] * (len(PUT_BOUNDS_MS) + 1)
        for (_, request, response, _), row in self._rows.items():
            if request in SENDS and response in _STORED:
                found = list(map(add, found, _folded(row, PUT_BOUNDS_MS)))
        return found


def _folded(row: list[int], bounds_ms: Sequence[int]) -> list[int]:
    """Return the counts of a row in fewer buckets; `bounds_ms` is a subset of its bounds."""
    counts = [0] * (len(bounds_ms) + 1)
    for bound_ms, count in zip((*_BOUNDS_MS, inf), row, strict=False):
        counts[bisect_left(bounds_ms, bound_ms)] += count
    return counts


def _request_name(code: int) -> str:
    spec = REQUESTS.get(code)
    return "unknown" if spec is None else spec.name.lower()


def _response_name(code: int) -> str:
    try:
        return Code(code).name.lower()
    except ValueError:
        return str(code)


# -- flushes and checkpoints -----------------------------------------------------------------------


Result = TypeVar("Result")


class Measurements:
    """The measurements of a broker. `loop` returns the loop's statistics; `now_ns` is monotonic."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self.rpc = RpcLatency(now_ns)
        self.flushes = Durations(DISK_BOUNDS_MS)
        self.checkpoints = Durations(DISK_BOUNDS_MS)
        self.loop: Callable[[], Mapping[str, int]] = dict

    def flush(self, work: Callable[[], Result]) -> Result:
        """Run and time a flush, on the flush thread; a failed one is not counted."""
        return self._timed(work, self.flushes)

    def checkpoint(self, work: Callable[[], Result]) -> Result:
        """Run and time a checkpoint of queues and index, likewise."""
        return self._timed(work, self.checkpoints)

    def _timed(self, work: Callable[[], Result], durations: Durations) -> Result:
        began_ns = self._now_ns()
        result = work()
        durations.observe(self._now_ns() - began_ns)
        return result
