"""The page of RocketMQ 4's exporter: collects the values that require requests to consumers.

The exporter is a client that queries each consumer of each group through its broker. Here the
broker sends the same request (code 307) by itself, and only when this page is requested.

State: soft: open requests, and counter snapshots from recent page requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from operator import sub
from typing import Any

from kourou.clock import Clock
from kourou.engine.inputs import Input
from kourou.engine.parts import BrokerParts
from kourou.errors import Code, KourouError
from kourou.model.limits import EXPORTER_MEMBERS_MAX, EXPORTER_MEMBERS_MS_MAX
from kourou.protocol.all_bodies import decode_consumer_running_info
from kourou.protocol.messages.membership import GetConsumerRunningInfo
from kourou.protocol.request import Request
from kourou.runtime.core import AskClient, Notify, Peer, Received, Reply, ReplyTo
from kourou.serving.exporter_metrics import Asked, Member
from kourou.serving.measures import Measures
from kourou.telemetry.metrics import NS_PER_MS, Family
from kourou.transport.peer_ids import next_peer_id

MINUTE_MS = 60_000
SNAPSHOT_MS = 1_000
"""More frequent page requests share a counter snapshot."""


class PageQuestions:
    """A protocol server whose only peer is the page, so that its requests pass through the core.

    `post` gives an input to the loop. Used on the running loop.
    """

    name = "page"

    def __init__(self, post: Callable[[Input], None], clock: Clock) -> None:
        self._post = post
        self._clock = clock
        self._peer = Peer(next_peer_id(), self.name, ("127.0.0.1", 0), self.name)
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}

    async def question(self, request: Request, timeout_ms: int) -> Reply:
        """Return the core's reply. Raises TimeoutError if there is none in time."""
        number = next(self._numbers)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        to = ReplyTo(self._peer, number)
        self._post(Received(to, request, (), self._clock.now_ms(), deadline_ms))
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await future
        finally:
            del self._waiting[number]

    def reply(self, reply: Reply) -> None:
        """Deliver a reply to the page, if it still waits for it."""
        future = self._waiting.get(reply.to.correlation)
        if future is not None and not future.done():
            future.set_result(reply)

    def notify(self, notice: Notify) -> None:
        """Do nothing: the page receives no notifications."""

    def ask(self, question: AskClient) -> None:
        """Do nothing: the page receives no requests."""

    def pause(self) -> None:
        """Do nothing: pending requests still get their replies."""

    def close(self) -> None:
        """Do nothing: there is no listener."""

    def statistics(self) -> Mapping[str, Any]:
        """Return nothing: there are no connections."""
        return {}

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """Return nothing: there are no connections."""
        del base
        return []


class LastMinute:
    """The increase of counters in the last minute, or a little more, from snapshots.

    The counters were 0 at `began_ms` (monotonic).
    """

    def __init__(self, began_ms: int) -> None:
        self._looks: deque[tuple[int, Sequence[int]]] = deque([(began_ms, ())])

    def look(self, now_ms: int, counts: Sequence[int]) -> list[int] | None:
        """Take a snapshot and return the increase.

        None (unknown) if there is no snapshot that is one to two minutes old.
        """
        looks = self._looks
        while len(looks) > 1 and looks[1][0] <= now_ms - MINUTE_MS:
            looks.popleft()
        at_ms, before = looks[0]
        if now_ms - looks[-1][0] >= SNAPSHOT_MS:
            looks.append((now_ms, list(counts)))
        if now_ms - at_ms > 2 * MINUTE_MS:
            return None
        return list(map(sub, counts, before or [0] * len(counts)))


class ExporterPage:
    """Collects the values for a broker's page at each request."""

    def __init__(
        self,
        questions: PageQuestions,
        measures: Measures,
        clock: Clock,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._questions = questions
        self._measures = measures
        self._clock = clock
        self._now_ns = now_ns
        self._sends = LastMinute(clock.monotonic_ms())

    async def asked(self, parts: BrokerParts) -> Asked:
        """Collect the values; waits at most two seconds for consumers that do not reply."""
        wait_ms = await self._wait_ms()
        members = await self._members(parts)
        sends = self._sends.look(self._clock.monotonic_ms(), self._measures.rpc.stored())
        return Asked(members, wait_ms, sends)

    async def _wait_ms(self) -> float:
        """Measure the queueing delay: the time until the loop has polled its sockets once."""
        began_ns = self._now_ns()
        for _ in range(2):
            await asyncio.sleep(0)
        return (self._now_ns() - began_ns) / NS_PER_MS

    async def _members(self, parts: BrokerParts) -> list[Member]:
        membership = parts.membership
        everybody = (
            (group, client_id)
            for group in membership.consumer_groups()
            for client_id in membership.consumer_ids(group)
        )
        chosen = list(islice(everybody, EXPORTER_MEMBERS_MAX))
        found = await asyncio.gather(*(self._member(parts, *one) for one in chosen))
        return [member for member in found if member is not None]

    async def _member(self, parts: BrokerParts, group: str, client_id: str) -> Member | None:
        """Return a consumer's running info; None if it does not reply."""
        peer = parts.membership.consumer_peer(group, client_id)
        if peer is None:
            return None
        request = GetConsumerRunningInfo(consumer_group=group, client_id=client_id)
        try:
            reply = await self._questions.question(request, EXPORTER_MEMBERS_MS_MAX)
            if reply.code != Code.SUCCESS:
                return None
            info = decode_consumer_running_info(b"".join(reply.body) or b"{}")
        except (TimeoutError, KourouError):
            return None  # gone, slow, or an invalid reply: it has no samples
        host, port = peer.address
        return Member(group, client_id, f"{host}:{port}", info)
