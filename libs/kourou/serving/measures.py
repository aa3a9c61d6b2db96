"""What a broker measures of itself while it works; a metrics page reads it, nothing waits on it.

State: soft.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from kourou.serving.rpc_latency import RpcLatency
from kourou.telemetry.metric_table import DISK_BOUNDS_MS
from kourou.telemetry.metrics import Durations

Result = TypeVar("Result")


class Measures:
    """One broker's. `loop` tells the loop's statistics; `now_ns` is monotonic."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self.rpc = RpcLatency(now_ns)
        self.flushes = Durations(DISK_BOUNDS_MS)
        self.checkpoints = Durations(DISK_BOUNDS_MS)
        self.loop: Callable[[], Mapping[str, int]] = dict

    def flush(self, work: Callable[[], Result]) -> Result:
        """Do it and note how long it took; one that fails counts as none. In the flush thread."""
        return self._timed(work, self.flushes)

    def checkpoint(self, work: Callable[[], Result]) -> Result:
        """As `flush`, for queues and index."""
        return self._timed(work, self.checkpoints)

    def _timed(self, work: Callable[[], Result], durations: Durations) -> Result:
        began_ns = self._now_ns()
        result = work()
        durations.observe(self._now_ns() - began_ns)
        return result
