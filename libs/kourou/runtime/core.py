"""How services think: what happened goes in, what to do comes out.

    effects = core.handle(now_ms, inputs)

An *input* is something that happened (requests received, disk flushed, clock ticked). An *effect*
is something to do (append, flush, send). The core has no asyncio, socket, file, clock or chance;
the loop (kourou.service.loop) has nothing else. One task calls `handle` with everything that has
arrived, then performs the effects in their order, so there are no locks and a batch is the unit of
work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

Input = TypeVar("Input", contravariant=True)
Effect = TypeVar("Effect", covariant=True)


class Core(Protocol[Input, Effect]):
    """A service's decisions, as a state machine without hands."""

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> Sequence[Effect]:
        """Take what happened since the last call, in order; return what to do, in order.

        `now_ms` is monotonic milliseconds for every timeout; wall time travels inside inputs that
        need it.
        """
        ...
