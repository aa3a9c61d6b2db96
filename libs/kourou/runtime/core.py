"""The contract of a core: inputs go in, effects come out.

    effects = core.handle(now_ms, inputs)

An *input* is something that happened (requests received, disk flushed, clock ticked). An *effect*
is something to do (append, flush, send). The core has no asyncio, sockets, files, clock or
randomness; the loop (kourou.service.loop) has all of them and makes no decisions. One task calls
`handle` with everything that has arrived, then executes the effects in order. So there are no
locks, and a batch is the unit of work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

BUSY_POLL_US = 250
"""How long a loop looks for input before it sleeps: one round trip between processes of one
machine, including some work."""

Input = TypeVar("Input", contravariant=True)
Effect = TypeVar("Effect", covariant=True)


class Core(Protocol[Input, Effect]):
    """The decisions of a service, as a state machine without I/O."""

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> Sequence[Effect]:
        """Process everything that happened since the last call, in order; return the effects, in
        order.

        `now_ms` is monotonic milliseconds for every timeout; inputs contain wall time where it is
        needed.
        """
        ...
