"""Detection of leaders that do not reply although their connection is established.

A stopped process, or a machine that is swapping, keeps its connections; its group has a new leader
long before the connection is lost. So if a send has no reply after a second, its client refreshes
the route repeatedly until the reply arrives. When the broker has a new leader, the send to the old
one is abandoned as after a lost connection: its outcome is unknown, and it is sent to the new
leader with the same key and the next attempt number.

While all replies arrive within a second, nothing is refreshed; a frame costs one entry in a table.
If the leader is only slow, the route is refreshed every half second and the send continues.

State: soft. Used on the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kourou.client.producer.pending_sends import Outcome
from kourou.client.producer.send_frames import SendFrame
from kourou.client.session.background import background
from kourou.client.session.route_table import RouteTable
from kourou.clock import Clock
from kourou.errors import KourouError, UnknownOutcome

SILENT_MS = 1_000
"""After this time without a reply the client starts to refresh the route."""

LOOK_MS = 500
"""The interval of the refreshes, and their timeout."""

Judge = Callable[[SendFrame, list[Outcome], int], None]

_log = logging.getLogger("kourou.client.send")


class SilentLeaders:
    """The unanswered frames of one producer. `judge` receives those that are abandoned."""

    def __init__(self, routes: RouteTable, clock: Clock, judge: Judge) -> None:
        self._routes = routes
        self._clock = clock
        self._judge = judge
        self._out: dict[int, tuple[int, SendFrame]] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, frame: SendFrame, now_ms: int) -> None:
        """Start monitoring a frame that is sent now."""
        self._out[id(frame)] = now_ms, frame
        if self._task is None:
            self._task = background(self._look_now_and_then(), "looking for silent leaders")

    def ended(self, frame: SendFrame) -> bool:
        """Stop monitoring a frame; returns False if it was abandoned before."""
        return self._out.pop(id(frame), None) is not None

    def close(self) -> None:
        """Stop all monitoring."""
        if self._task is not None:
            self._task.cancel()

    async def _look_now_and_then(self) -> None:
        try:
            while self._out:
                await asyncio.sleep(LOOK_MS / 1000)
                since_ms = self._clock.monotonic_ms() - SILENT_MS
                silent = [frame for sent_ms, frame in self._out.values() if sent_ms <= since_ms]
                if silent:
                    await self._look(silent)
        finally:
            self._task = None

    async def _look(self, silent: list[SendFrame]) -> None:
        """Refresh the routes of these frames' topics, and abandon frames whose leader changed."""
        for topic in sorted({target.queue.topic for frame in silent for target in frame.targets}):
            try:
                await asyncio.wait_for(self._routes.refresh(topic), LOOK_MS / 1000)
            except (KourouError, TimeoutError) as error:
                _log.info("route of %s not refreshed: %r", topic, error)
        for frame in silent:
            if id(frame) in self._out and self._has_another_leader(frame):
                self._give_up(frame)

    def _has_another_leader(self, frame: SendFrame) -> bool:
        queue = frame.targets[0].queue
        known = self._routes.known(queue.topic)
        leader = None if known is None else known.leader_address(queue.broker_name)
        return leader not in (None, "", frame.address)

    def _give_up(self, frame: SendFrame) -> None:
        del self._out[id(frame)]
        broker = frame.targets[0].broker_name
        _log.warning("%s does not respond; %s has a new leader", frame.address, broker)
        error = UnknownOutcome(
            f"{frame.address} did not respond for {SILENT_MS} ms and is no "
            f"longer the leader of {broker}"
        )
        outcomes: list[Outcome] = [error] * len(frame.messages)
        self._judge(frame, outcomes, self._clock.monotonic_ms())
