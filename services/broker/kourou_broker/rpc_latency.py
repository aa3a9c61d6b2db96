"""How long requests take, from their arrival to their answer, in plain integers.

Lives here: when a request arrived, and counting its answer by request, response and time.
May not live here: which buckets there are (kourou.telemetry.metric_table), the page
(kourou_broker.metrics).

Every request passes here, so it may cost no more than two fields where its answer goes, one look at
the clock and a few integers: well below a microsecond.

State: soft.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping

from kourou.engine.effects import Reply
from kourou.engine.inputs import ReplyTo
from kourou.errors import Code
from kourou.protocol.messages.pulling import PullMessage
from kourou.protocol.table import REQUESTS
from kourou.service.carrier import TimedReplyTo, Watch
from kourou.telemetry.metric_table import RPC_BOUNDS_MS
from kourou.telemetry.metrics import NS_PER_MS, Histogram, Labels

_BOUNDS_NS = [bound * NS_PER_MS for bound in RPC_BOUNDS_MS]
_SUM = len(_BOUNDS_NS) + 1
"""A row has a count a bucket, one beyond the last, and then the sum in nanoseconds."""

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
            yield labels, Histogram.counted(RPC_BOUNDS_MS, row[:_SUM], row[_SUM] / NS_PER_MS)


def _request_name(code: int) -> str:
    spec = REQUESTS.get(code)
    return "unknown" if spec is None else spec.name.lower()


def _response_name(code: int) -> str:
    try:
        return Code(code).name.lower()
    except ValueError:
        return str(code)
