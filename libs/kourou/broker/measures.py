"""Measurements that a broker makes while it works; a metrics page reads them without locks.

State: soft.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from kourou.broker.rpc_latency import RpcLatency
from kourou.telemetry.metric_table import DISK_BOUNDS_MS
from kourou.telemetry.metrics import Durations

Result = TypeVar("Result")


class Measures:
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
