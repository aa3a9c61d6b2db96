"""How long requests take, from their arrival to their answer, in plain integers.

Every request passes here, so it may cost no more than two fields where its answer goes, one look at
the clock and a few integers: well below a microsecond.

State: soft.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from operator import add

from kourou.errors import Code
from kourou.protocol.messages.pulling import PullMessage
from kourou.protocol.messages.transactions import EndTransaction
from kourou.protocol.request import Action, Resource, Rule
from kourou.protocol.table import REQUESTS
from kourou.runtime.effects import Reply
from kourou.runtime.inputs import ReplyTo
from kourou.service.carrier import TimedReplyTo, Watch
from kourou.telemetry.metric_table import RPC_BOUNDS_MS
from kourou.telemetry.metrics import NS_PER_MS, Histogram, Labels

PUT_BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
"""By these RocketMQ 4 counts how long sends take (`pmdt` in its exporter's names)."""

_BOUNDS_MS = sorted({*RPC_BOUNDS_MS, *PUT_BOUNDS_MS})
_BOUNDS_NS = [bound * NS_PER_MS for bound in _BOUNDS_MS]
_SUM = len(_BOUNDS_NS) + 1
"""A row has a count a bucket, one beyond the last, and then the sum in nanoseconds."""

SENDS = frozenset(
    spec.code
    for spec in REQUESTS.values()
    if spec.rule == Rule(Resource.TOPIC, Action.PUBLISH) and spec.code != EndTransaction.code
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
"""Answers to a send whose messages lie in the log."""

_UNKNOWN = 0
_PULL = PullMessage.code
PROTOCOLS = {"tcp": "remoting"}
"""RocketMQ's word for its own protocol; a carrier that it does not have keeps ours."""

_Key = tuple[str, int, int, bool]
"""Carrier, request code, response code, and whether it was held."""


class RpcLatency(Watch):
    """Counts answered requests. One thread; `now_ns` is monotonic."""

    __slots__ = ("_burst_ns", "_now_ns", "_rows")

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._burst_ns = 0
        self._rows: dict[_Key, list[int]] = {}

    def arrived(self) -> int:
        """A burst of requests is here: the time that goes with each of them."""
        self._burst_ns = self._now_ns()
        return self._burst_ns

    def handled(self) -> None:
        """What could be answered of the burst at once is answered: a pull that is not, is held."""
        self._burst_ns = 0

    def answered(self, to: ReplyTo, code: int) -> None:
        """A request was answered with this code; who wants no answer is not counted."""
        if not isinstance(to, TimedReplyTo) or to.oneway:
            return
        arrived_ns, request = to.arrived_ns, to.request_code
        key = (to.peer.carrier, request, code, request == _PULL and arrived_ns != self._burst_ns)
        row = self._rows.get(key) or self._new_row(key)
        elapsed_ns = self._now_ns() - arrived_ns
        row[bisect_left(_BOUNDS_NS, elapsed_ns)] += 1
        row[_SUM] += elapsed_ns

    def _new_row(self, key: _Key) -> list[int]:
        carrier, request, response, held = key
        if request not in REQUESTS:  # whatever people make up shares one row
            key = (carrier, _UNKNOWN, response, held)
        return self._rows.setdefault(key, [0] * (_SUM + 1))

    def watching(self, reply: Callable[[Reply], None]) -> Callable[[Reply], None]:
        """`reply`, and then the time it took to come to that."""
        answered = self.answered

        def watched(effect: Reply) -> None:
            reply(effect)
            answered(effect.to, effect.code)

        return watched

    def counts(self, requests: Collection[int]) -> list[int]:
        """Answers a bucket of RPC_BOUNDS_MS, and beyond the last, to these requests; no holds."""
        found = [0] * (len(RPC_BOUNDS_MS) + 1)
        for (_, request, _, held), row in self._rows.items():
            if request in requests and not held:
                found = list(map(add, found, _folded(row, RPC_BOUNDS_MS)))
        return found

    def samples(self, base: Mapping[str, str]) -> Iterator[tuple[Labels, Histogram]]:
        """Each row with its labels."""
        for (carrier, request, response, held), row in self._rows.items():
            labels = {
                "protocol_type": PROTOCOLS.get(carrier, carrier),
                "request_code": _request_name(request),
                "response_code": _response_name(response),
                "is_long_polling": "true" if held else "false",
                **base,
            }
            counts = _folded(row, RPC_BOUNDS_MS)
            yield labels, Histogram.counted(RPC_BOUNDS_MS, counts, row[_SUM] / NS_PER_MS)

    def stored(self) -> list[int]:
        """Sends since the start whose messages were stored, by PUT_BOUNDS_MS and beyond."""
        found = [0] * (len(PUT_BOUNDS_MS) + 1)
        for (_, request, response, _), row in self._rows.items():
            if request in SENDS and response in _STORED:
                found = list(map(add, found, _folded(row, PUT_BOUNDS_MS)))
        return found


def _folded(row: list[int], bounds_ms: Sequence[int]) -> list[int]:
    """The counts of a row in fewer buckets; `bounds_ms` are some of its own."""
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
