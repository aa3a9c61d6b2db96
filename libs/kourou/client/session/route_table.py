"""The routes that a client knows, and how they are refreshed.

In addition to the refresh every 30 s, with growing, randomized pauses:

    a route is reported stale      now, and several more times until it has changed
    a broker has lost its leader   until it has a new one, for about a minute; for each broker one
                                   topic is refreshed, and the others when the leader is known

A client keeps the last known route without a time limit: brokers keep working while name servers
are down, and so does the client. `known` may be read from any thread, because maps are replaced and
never changed.

State: soft. A projection of what the name servers know.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from kourou.client.session.connections import Pauses
from kourou.client.session.io_thread import background
from kourou.client.session.name_servers import NameServerChoice
from kourou.client.session.routes import QueueMap, borrowed_queue_map, queue_map
from kourou.errors import Code, KourouError, TopicNotFound
from kourou.model.topic import TopicRoute
from kourou.protocol.bodies.route_bodies import decode_topic_route
from kourou.protocol.messages.namesrv import GetRouteInfoByTopic

STALE_PAUSE_MS = 200
STALE_LONGEST_MS = 2_000
STALE_LOOKS = 6
"""How a stale route is refreshed; further reports in that time cause no additional requests."""

AWAIT_PAUSE_MS = 100
AWAIT_LONGEST_MS = 1_000
AWAIT_POLLS = 80
"""How a broker's next leader is looked for; a later one is found by the regular refresh."""

_TOPIC_UNKNOWN = frozenset({int(Code.TOPIC_NOT_EXIST)})
_log = logging.getLogger("kourou.client")


class RouteTable:
    """Routes by topic. Listeners are called on the I/O thread after a route changed."""

    def __init__(
        self,
        name_servers: NameServerChoice,
        *,
        interval_ms: int,
        chance: random.Random,
    ) -> None:
        self._name_servers = name_servers
        self._interval_ms = interval_ms
        self._chance = chance
        self._maps: dict[str, QueueMap] = {}
        self.known: Callable[[str], QueueMap | None] = self._maps.get
        """Returns the last known map of a topic; callable from any thread."""

        self._borrowing: dict[str, tuple[str, int]] = {}
        self._watched: set[str] = set()
        self._finding: dict[str, asyncio.Task[QueueMap]] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._awaiting: dict[str, asyncio.Task[None]] = {}
        self._leaders: dict[str, str] = {}
        self._renewing_others: set[asyncio.Task[None]] = set()
        self._listeners: list[Callable[[str], None]] = []
        self._on_leader: list[Callable[[str, str], None]] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Start the periodic refresh."""
        self._refreshing = background(self._keep_fresh(), "refreshing routes")

    def close(self) -> None:
        """Stop all refreshing."""
        for task in (
            self._refreshing,
            *self._finding.values(),
            *self._looking.values(),
            *self._awaiting.values(),
            *self._renewing_others,
        ):
            if task is not None:
                task.cancel()
        self._closed = True

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Call `on_change(topic)` after a topic's queues or addresses changed."""
        self._listeners.append(on_change)

    def unlisten(self, on_change: Callable[[str], None]) -> None:
        """Remove this listener."""
        if on_change in self._listeners:
            self._listeners.remove(on_change)

    def listen_leaders(self, on_leader: Callable[[str, str], None]) -> None:
        """Call `on_leader(broker name, address)` when a broker has a new leader."""
        self._on_leader.append(on_leader)

    def unlisten_leaders(self, on_leader: Callable[[str, str], None]) -> None:
        """Remove this listener."""
        if on_leader in self._on_leader:
            self._on_leader.remove(on_leader)

    def addresses(self) -> set[str]:
        """Return every broker address in any known route."""
        return {address for known in self._maps.values() for address in known.addresses()}

    def filter_servers(self) -> set[str]:
        """Return every filter server's address in any known route."""
        return {
            address
            for known in self._maps.values()
            for servers in known.route.filter_server_table.values()
            for address in servers
        }

    def watch(self, topic: str) -> None:
        """Refresh this topic periodically even while no name server knows it."""
        self._watched.add(topic)

    async def find(
        self, topic: str, *, default_topic: str = "", default_queue_nums: int = 0
    ) -> QueueMap:
        """Return the topic's map, requested if unknown; concurrent callers share one request.

        With a `default_topic` an unknown topic borrows that topic's route. Raises TopicNotFound if
        neither is known, and Unavailable or UnknownOutcome if no name server replies.
        """
        if default_topic:
            self._borrowing.setdefault(topic, (default_topic, default_queue_nums))
        known = self._maps.get(topic)
        if known is not None and (default_topic or not known.borrowed):
            return known
        fresh = await self._ask_once(topic)
        if fresh.borrowed and not default_topic:
            raise _unknown(topic)
        return fresh

    async def find_existing(self, topic: str) -> QueueMap | None:
        """Return the topic's own map, or None while no name server knows the topic."""
        try:
            return await self.find(topic)
        except TopicNotFound:
            return None

    async def refresh(self, topic: str) -> QueueMap:
        """Request the topic's route now."""
        return await self._ask_once(topic)

    def forget(self, topic: str) -> None:
        """Drop a deleted topic's route: the next use requests it again."""
        self._maps.pop(topic, None)
        self._borrowing.pop(topic, None)

    def stale(self, topic: str) -> None:
        """Refresh a route that a broker's reply contradicts, now and again until it has changed."""
        if topic not in self._looking and not self._closed:
            self._looking[topic] = background(self._look_again(topic), f"renewing {topic}")

    async def _look_again(self, topic: str) -> None:
        former = self._maps.get(topic)
        pauses = Pauses(self._chance, first_ms=STALE_PAUSE_MS, longest_ms=STALE_LONGEST_MS)
        try:
            for _ in range(STALE_LOOKS):
                fresh = await self._ask_quietly(topic)
                if fresh is not None and fresh is not former:
                    return
                await asyncio.sleep(pauses.next_ms() / 1000)
        finally:
            del self._looking[topic]

    async def _ask_quietly(self, topic: str) -> QueueMap | None:
        try:
            return await self._ask_once(topic)
        except KourouError as error:
            _log.info(
                "route-refresh-failed: route of %(topic)s not refreshed: %(error)r",
                {"topic": topic, "error": error},
            )
            return None

    def _ask_task(self, topic: str) -> asyncio.Task[QueueMap]:
        task = self._finding.get(topic)
        if task is None or task.done():  # a finished task's route may be older than this request
            task = self._finding[topic] = asyncio.ensure_future(self._ask(topic))
            task.add_done_callback(lambda done: self._asked(topic, done))
        return task

    def _asked(self, topic: str, task: asyncio.Task[QueueMap]) -> None:
        if self._finding.get(topic) is task:
            del self._finding[topic]
        if not task.cancelled():
            task.exception()  # retrieved, even if all callers that waited for it were cancelled

    async def _ask_once(self, topic: str) -> QueueMap:
        # Shielded, because another caller may wait for the same reply.
        return await asyncio.shield(self._ask_task(topic))

    async def _ask(self, topic: str) -> QueueMap:
        route = await self._route_of(topic)
        if route is not None:
            return self._learn(queue_map(topic, route))
        if topic not in self._borrowing:
            raise _unknown(topic)
        default_topic, queue_nums = self._borrowing[topic]
        default_route = await self._route_of(default_topic)
        if default_route is None:
            raise TopicNotFound(
                f"topic {topic!r} not found: no registered broker has it or "
                "creates topics automatically",
                hint="check that its brokers are online and that the name is right, "
                "or create the topic",
            )
        # A broker that registered between the two requests may have the topic.
        route = await self._route_of(topic)
        if route is not None:
            return self._learn(queue_map(topic, route))
        return self._learn(borrowed_queue_map(topic, default_route, queue_nums))

    async def _route_of(self, topic: str) -> TopicRoute | None:
        reply = await self._name_servers.ask(GetRouteInfoByTopic(topic=topic), also=_TOPIC_UNKNOWN)
        if reply.code == Code.TOPIC_NOT_EXIST:
            return None
        return decode_topic_route(reply.body[0] if reply.body else b"")

    def _learn(self, fresh: QueueMap) -> QueueMap:
        known = self._maps.get(fresh.topic)
        if known == fresh:
            return known
        self._maps[fresh.topic] = fresh
        for on_change in list(self._listeners):
            on_change(fresh.topic)
        self._learn_leaders(fresh)
        return fresh

    # -- leaders ----------------------------------------------------------------------------------

    def _learn_leaders(self, fresh: QueueMap) -> None:
        for name, broker in fresh.brokers.items():
            address = broker.master_addr()
            if address is None:
                self._leaders.setdefault(name, "")
                if broker.broker_addrs and name not in self._awaiting and not self._closed:
                    self._awaiting[name] = background(
                        self._await_leader(name, fresh.topic), f"looking for a leader of {name}"
                    )
                continue
            former = self._leaders.get(name)
            self._leaders[name] = address
            if former is not None and former != address:
                self._leader_changed(name, address)

    def _leader_changed(self, name: str, address: str) -> None:
        _log.info(
            "leader-changed: broker %(broker)s: the leader is now %(address)s",
            {"broker": name, "address": address},
        )
        for on_leader in list(self._on_leader):
            on_leader(name, address)
        others = [
            topic
            for topic, known in self._maps.items()
            if name in known.brokers and known.leader_address(name) != address
        ]
        if others and not self._closed:
            task = background(self._renew(others), f"renewing the routes of {name}")
            self._renewing_others.add(task)
            task.add_done_callback(self._renewing_others.discard)

    async def _renew(self, topics: list[str]) -> None:
        for topic in topics:
            await self._ask_quietly(topic)

    async def _await_leader(self, name: str, topic: str) -> None:
        pauses = Pauses(self._chance, first_ms=AWAIT_PAUSE_MS, longest_ms=AWAIT_LONGEST_MS)
        try:
            for _ in range(AWAIT_POLLS):
                await asyncio.sleep(pauses.next_ms() / 1000)
                fresh = await self._ask_quietly(topic)
                if fresh is None:
                    continue
                if name not in fresh.brokers or fresh.leader_address(name) is not None:
                    return
        finally:
            del self._awaiting[name]

    async def _keep_fresh(self) -> None:
        while True:
            # A jitter of 10 % keeps many clients from sending requests at the same moment.
            jitter = 0.9 + 0.2 * self._chance.random()
            await asyncio.sleep(self._interval_ms * jitter / 1000)
            for topic in [*self._maps, *(self._watched - self._maps.keys())]:
                try:
                    await self._ask_once(topic)
                except TopicNotFound:
                    continue  # keep the last route; a deleted topic's brokers will reject requests
                except KourouError as error:
                    _log.info(
                        "route-refresh-failed: route of %(topic)s not refreshed: %(error)r",
                        {"topic": topic, "error": error},
                    )
                    break


def _unknown(topic: str) -> TopicNotFound:
    return TopicNotFound(f"topic {topic!r} not found", hint="create it, or check its name")
