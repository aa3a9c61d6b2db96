"""Messages that wait until their broker has a leader again.

A message waits here if it was refused by a follower or by a starting broker, or if the connection
was lost. The route is refreshed repeatedly with growing pauses, and the message is sent to the new
leader. A message that may go to any queue is sent to another broker as soon as there is one. When
its timeout is over, the sender gets the last failure, with the time and the number of attempts; it
is an UnknownOutcome if one of the attempts may have succeeded.

Invariants:

- the unique key stays the same and the attempt number grows, so a broker that already has the
  message replies with its first offset
- a pinned message stays in its queue, and messages of one queue are sent in their original order
- an address that just refused is used again only if its connection is established

`SilentLeaders` detects leaders that do not reply although their connection is established.

State: soft. Used on the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kourou.client.producer.pending_sends import Outcome, Outcomes, PendingSend, SendTarget
from kourou.client.producer.send_frames import SendFrame
from kourou.client.session.connections import Connections, Pauses
from kourou.client.session.io_thread import background
from kourou.client.session.route_table import QueueMap, RouteTable
from kourou.clock import Clock
from kourou.errors import KourouError, Throttled, Unavailable, UnknownOutcome
from kourou.time_limit import within

SILENT_MS = 1_000
"""After this time without a reply the client starts to refresh the route."""

REFRESH_MS = 500
"""The interval of the refreshes, and their timeout."""

Abandon = Callable[[SendFrame, list[Outcome], int], None]

ROUTE_WAIT_MS = 1_000
"""How long a refresh waits for a name server; without a reply the route stays the same."""

SAME_DEADLINE_MS = 250
"""Messages whose deadlines differ by at most this may share a frame, which has one deadline."""

Choose = Callable[[QueueMap, SendTarget, Callable[[str], bool]], SendTarget | None]
"""(route, target, may this address be used?) -> the target to send by now; None: keep waiting."""

Resend = Callable[[list[PendingSend], int, int], None]
"""(messages with their targets, attempt number, attempts that do not count)."""

Complete = Callable[[Outcomes], None]
_log = logging.getLogger("kourou.client.send")


class SilentLeaders:
    """The unanswered frames of one producer. `abandon` receives those that are abandoned.

    A stopped process, or a machine that is swapping, keeps its connections; its group has a new
    leader long before the connection is lost. So if a send has no reply after a second, its client
    refreshes the route repeatedly until the reply arrives. When the broker has a new leader, the
    send to the old one is abandoned as after a lost connection: its outcome is unknown, and it is
    sent to the new leader with the same key and the next attempt number.

    While all replies arrive within a second, nothing is refreshed; a frame costs one entry in a
    table. If the leader is only slow, the route is refreshed every half second and the send
    continues.
    """

    def __init__(self, routes: RouteTable, clock: Clock, abandon: Abandon) -> None:
        self._routes = routes
        self._clock = clock
        self._abandon = abandon
        self._out: dict[int, tuple[int, SendFrame]] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, frame: SendFrame, now_ms: int) -> None:
        """Start monitoring a frame that is sent now."""
        self._out[id(frame)] = now_ms, frame
        if self._task is None:
            self._task = background(self._refresh_periodically(), "looking for silent leaders")

    def ended(self, frame: SendFrame) -> bool:
        """Stop monitoring a frame; returns False if it was abandoned before."""
        return self._out.pop(id(frame), None) is not None

    def close(self) -> None:
        """Stop all monitoring."""
        if self._task is not None:
            self._task.cancel()

    async def _refresh_periodically(self) -> None:
        try:
            while self._out:
                await asyncio.sleep(REFRESH_MS / 1000)
                since_ms = self._clock.monotonic_ms() - SILENT_MS
                silent = [frame for sent_ms, frame in self._out.values() if sent_ms <= since_ms]
                if silent:
                    await self._check(silent)
        finally:
            self._task = None

    async def _check(self, silent: list[SendFrame]) -> None:
        """Refresh the routes of these frames' topics, and abandon frames whose leader changed."""
        for topic in sorted({target.queue.topic for frame in silent for target in frame.targets}):
            try:
                await within(self._routes.refresh(topic), REFRESH_MS / 1000)
            except (KourouError, TimeoutError) as error:
                _log.info(
                    "route-refresh-failed: route of %(topic)s not refreshed: %(error)r",
                    {"topic": topic, "error": error},
                )
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
        _log.warning(
            "leader-replaced: %(address)s does not respond; %(broker)s has a new leader",
            {"address": frame.address, "broker": broker},
        )
        error = UnknownOutcome(
            f"{frame.address} did not respond for {SILENT_MS} ms and is no "
            f"longer the leader of {broker}"
        )
        outcomes: list[Outcome] = [error] * len(frame.messages)
        self._abandon(frame, outcomes, self._clock.monotonic_ms())


@dataclass(slots=True)
class _WaitingBatch:
    """Messages that arrived together. They were sent `sent` times; `address` refused them."""

    messages: list[PendingSend]
    sent: int
    spared: int
    address: str


class LeaderWait:
    """The messages of one producer whose brokers have no leader now."""

    def __init__(
        self,
        routes: RouteTable,
        connections: Connections,
        clock: Clock,
        chance: random.Random,
        *,
        choose: Choose,
        resend: Resend,
        settle: Complete,
    ) -> None:
        self._routes = routes
        self._connections = connections
        self._clock = clock
        self._chance = chance
        self._choose = choose
        self._resend = resend
        self._settle = settle
        self._batches: dict[str, list[_WaitingBatch]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.awaited: Counter[str] = Counter()
        """The number of waiting messages by broker name; empty if none wait."""

    def enter(self, messages: list[PendingSend], *, sent: int, spared: int, address: str) -> None:
        """Add messages behind those that are waiting already.

        `sent` is how often they were sent, `spared` is how many of these attempts are not counted.
        `address` received them last; it is empty if the route contained no address.
        """
        by_topic: dict[str, list[PendingSend]] = {}
        for message in messages:
            by_topic.setdefault(message.target.queue.topic, []).append(message)
            self.awaited[message.target.broker_name] += 1
        for topic, some in by_topic.items():
            self._batches.setdefault(topic, []).append(_WaitingBatch(some, sent, spared, address))
            if topic not in self._tasks:
                names = ", ".join(sorted({message.target.broker_name for message in some}))
                _log.info(
                    "leader-awaited: messages for %(topic)s wait for a leader of broker "
                    "%(brokers)s",
                    {"topic": topic, "brokers": names},
                )
                self._tasks[topic] = background(
                    self._wait(topic, spared), f"looking for a leader for {topic}"
                )

    async def _wait(self, topic: str, spared: int) -> None:
        pauses = Pauses(self._chance)
        pauses.grow(spared)
        try:
            while batches := self._batches.get(topic):
                left_ms = _first_deadline(batches) - self._clock.monotonic_ms()
                await asyncio.sleep(max(min(pauses.next_ms(), left_ms), 0) / 1000)
                await self._refresh_route(topic)
                self._send_ready(topic)
        finally:
            del self._tasks[topic]

    async def _refresh_route(self, topic: str) -> None:
        left_ms = _first_deadline(self._batches[topic]) - self._clock.monotonic_ms()
        wait_ms = max(min(ROUTE_WAIT_MS, left_ms), 0)
        try:
            await within(self._routes.refresh(topic), wait_ms / 1000)
        except (KourouError, TimeoutError) as error:
            _log.info(
                "route-refresh-failed: route of %(topic)s not refreshed: %(error)r",
                {"topic": topic, "error": error},
            )

    def _send_ready(self, topic: str) -> None:
        """Send the messages that can be sent now, complete the late ones, keep the rest."""
        known = self._routes.known(topic)
        now_ms = self._clock.monotonic_ms()
        late: Outcomes = []
        going: list[_WaitingBatch] = []
        staying: list[_WaitingBatch] = []
        ways: dict[tuple[SendTarget, str], SendTarget | None] = {}
        for batch in self._batches.pop(topic):
            go: list[PendingSend] = []
            stay: list[PendingSend] = []
            for message in batch.messages:
                if message.deadline_ms <= now_ms:
                    self._leave(message)
                    late.append((message, message.stored or too_late(message, batch.sent)))
                    continue
                way = (message.target, batch.address)
                if way not in ways:
                    ways[way] = None if known is None else self._target_now(known, *way)
                target = ways[way]
                if target is None:
                    stay.append(message)
                else:
                    self._leave(message)
                    message.move(target)
                    go.append(message)
            if go:
                _add(going, _WaitingBatch(go, batch.sent, batch.spared, batch.address))
            if stay:
                batch.messages = stay
                staying.append(batch)
        if staying:
            self._batches[topic] = staying
        for batch in going:
            self._resend(batch.messages, batch.sent + 1, batch.spared)
        if late:
            self._settle(late)

    def _target_now(
        self, known: QueueMap, target: SendTarget, refused_by: str
    ) -> SendTarget | None:
        def may_be_asked(address: str) -> bool:
            if address == refused_by:
                return self._connections.try_connect(address)
            return not self._connections.lost(address)

        return self._choose(known, target, may_be_asked)

    def _leave(self, message: PendingSend) -> None:
        name = message.target.broker_name
        self.awaited[name] -= 1
        if not self.awaited[name]:
            del self.awaited[name]

    async def close(self) -> None:
        """Stop waiting; remaining messages get the failure of their last attempt."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        left = [batch for batches in self._batches.values() for batch in batches]
        self._batches.clear()
        self.awaited.clear()
        self._settle(
            [
                (message, message.stored or given_up(message, "the client was closed"))
                for batch in left
                for message in batch.messages
            ]
        )


def too_late(message: PendingSend, sent: int) -> KourouError:
    """Return the error of a message whose deadline passed while its broker had no leader."""
    seconds = message.target.terms.timeout_ms / 1000
    return given_up(
        message,
        f"broker {message.target.broker_name} is offline: no leader within "
        f"{seconds:g} s, {sent} attempts",
    )


def given_up(message: PendingSend, why: str) -> KourouError:
    """Return the error of a message that is not retried.

    It is an UnknownOutcome if an attempt had no reply, because the message may be stored, and
    Throttled if the last one was over a quota.
    """
    failure = message.failure
    if isinstance(failure, UnknownOutcome):
        text = f"{why}; the message may be stored; last error: {failure.message}"
        return UnknownOutcome(text, hint=failure.hint)
    if failure is None:
        return Unavailable(f"{why}; the message was not sent", hint="retry")
    text = f"{why}; the message was not stored; last error: {failure.message}"
    if isinstance(failure, Throttled):
        return Throttled(text, hint=failure.hint, retry_after_ms=failure.retry_after_ms)
    return Unavailable(text, hint=failure.hint)


def _first_deadline(batches: Iterable[_WaitingBatch]) -> int:
    return min(message.deadline_ms for batch in batches for message in batch.messages)


def _add(batches: list[_WaitingBatch], batch: _WaitingBatch) -> None:
    """Append the messages, or merge them with the last ones if they may share frames."""
    if batches:
        last = batches[-1]
        apart_ms = batch.messages[0].deadline_ms - last.messages[0].deadline_ms
        alike = (last.sent, last.spared) == (batch.sent, batch.spared)
        if alike and abs(apart_ms) <= SAME_DEADLINE_MS:
            last.messages += batch.messages
            return
    batches.append(batch)
