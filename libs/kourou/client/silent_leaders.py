"""Sends that nobody answers although their connection stands: a leader may be frozen.

A process that is stopped, or a machine that swaps, keeps its connections; its group has another
leader long before the connection is given up. So a send that is out for longer than a second makes
its client look at the route, again and again while it is out. Once another member leads the broker,
what was sent to the old one is given up, as after a lost connection: its outcome is unknown, and it
is sent to the new leader with its key and the number of its attempt.

Nothing is looked at while every send is answered within a second; a frame costs one entry in a
table. A leader that is merely slow is asked for once in half a second, and keeps its sends.

State: soft. Used on the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kourou.client.background import background
from kourou.client.outbox import Outcome
from kourou.client.route_table import RouteTable
from kourou.client.send_frames import SendFrame
from kourou.clock import Clock
from kourou.errors import KourouError, UnknownOutcome

SILENT_MS = 1_000
"""A send that is out for so long makes its client look."""

LOOK_MS = 500
"""How often; and how long a look waits for a name server."""

Judge = Callable[[SendFrame, list[Outcome], int], None]

_log = logging.getLogger("kourou.client.send")


class SilentLeaders:
    """The frames of one producer that are out. `judge` gets those that are given up."""

    def __init__(self, routes: RouteTable, clock: Clock, judge: Judge) -> None:
        self._routes = routes
        self._clock = clock
        self._judge = judge
        self._out: dict[int, tuple[int, SendFrame]] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, frame: SendFrame, now_ms: int) -> None:
        """It leaves now, and is answered some time."""
        self._out[id(frame)] = now_ms, frame
        if self._task is None:
            self._task = background(self._look_now_and_then(), "looking for silent leaders")

    def ended(self, frame: SendFrame) -> bool:
        """Its answer has come, or never will; False if it was given up before."""
        return self._out.pop(id(frame), None) is not None

    def close(self) -> None:
        """Look no more."""
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
        """Ask who leads their brokers; each question is for one topic, as any other."""
        for topic in sorted({lane.queue.topic for frame in silent for lane in frame.lanes}):
            try:
                await asyncio.wait_for(self._routes.refresh(topic), LOOK_MS / 1000)
            except (KourouError, TimeoutError) as error:
                _log.info("route of %s not refreshed: %r", topic, error)
        for frame in silent:
            if id(frame) in self._out and self._has_another_leader(frame):
                self._give_up(frame)

    def _has_another_leader(self, frame: SendFrame) -> bool:
        queue = frame.lanes[0].queue
        known = self._routes.known(queue.topic)
        leader = None if known is None else known.leader_address(queue.broker_name)
        return leader not in (None, "", frame.address)

    def _give_up(self, frame: SendFrame) -> None:
        del self._out[id(frame)]
        broker = frame.lanes[0].broker_name
        _log.warning("%s does not respond; %s has a new leader", frame.address, broker)
        error = UnknownOutcome(
            f"{frame.address} did not respond for {SILENT_MS} ms and is no "
            f"longer the leader of {broker}"
        )
        outcomes: list[Outcome] = [error] * len(frame.messages)
        self._judge(frame, outcomes, self._clock.monotonic_ms())
