"""The routes that a client knows, and how they are refreshed.

In addition to the refresh every 30 s, with growing, randomized pauses:

    a route is reported stale      now, and several more times until it has changed
    a broker has lost its leader   until it has a new one, for about a minute; for each broker one
                                   topic is refreshed, and the others when the leader is known

A client keeps the last known route without a time limit: brokers keep working while name servers
are down, and so does the client. `known` may be read from any thread, because maps are replaced and
never changed.

State: soft. A projection of what the name servers know.

The queues that a client may write or read follow from a topic's route:

- writable queues are those of brokers whose leader (broker ID 0) is registered and whose `perm` has
  the write bit; readable queues need the read bit and any registered replica
- a strictly ordered topic (name server's ORDER_TOPIC_CONFIG, `broker-a:4;broker-b:4`) is written to
  exactly the queues listed there, whether or not their brokers are registered: while a broker is
  offline its keys cannot be sent, instead of moving to other queues
- a broker with replicas but no leader keeps its writable queues in `sendable`: it will have a
  leader, and until then messages for it wait
- queues are sorted by broker name and queue ID, so every client has the same order
- an unknown topic borrows the route of TBW102, with at most `default_topic_queue_nums` queues: the
  first send then creates the topic at the broker
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kourou.client.session.connections import Pauses
from kourou.client.session.io_thread import background
from kourou.client.session.name_servers import NameServerChoice
from kourou.errors import Code, DecodeError, KourouError, TopicNotFound
from kourou.model.limits import TOPIC_QUEUES_MAX
from kourou.model.topic import BrokerData, MessageQueue, Permission, TopicRoute
from kourou.protocol.bodies.route_bodies import decode_topic_route
from kourou.protocol.messages.namesrv import GetRouteInfoByTopic


@dataclass(frozen=True, slots=True)
class QueueMap:
    """A route, ready to use; a `borrowed` one is TBW102's, for a topic that does not exist yet."""

    topic: str
    route: TopicRoute
    writable: tuple[MessageQueue, ...] = ()
    readable: tuple[MessageQueue, ...] = ()
    sendable: tuple[MessageQueue, ...] = ()
    brokers: Mapping[str, BrokerData] = field(default_factory=dict)
    borrowed: bool = False

    def leader_address(self, broker_name: str) -> str | None:
        """Return the address of the leader, or None."""
        broker = self.brokers.get(broker_name)
        return None if broker is None else broker.master_addr()

    def member_address(self, broker_name: str, broker_id: int) -> str | None:
        """Return the address to read from: this replica, or else any.

        If a follower is not registered, the replica with the next ID is preferred.
        """
        broker = self.brokers.get(broker_name)
        if broker is None:
            return None
        addresses = broker.broker_addrs
        exact = addresses.get(broker_id)
        if exact is None and broker_id != 0:
            exact = addresses.get(broker_id + 1)
        return exact if exact is not None else broker.any_addr()

    def addresses(self) -> list[str]:
        """Return every address in the route, leaders first, each once."""
        found: dict[str, None] = {}
        for broker in self.brokers.values():
            leader = broker.master_addr()
            if leader is not None:
                found[leader] = None
        for broker in self.brokers.values():
            for member in sorted(broker.broker_addrs):
                found[broker.broker_addrs[member]] = None
        return list(found)


def queue_map(topic: str, route: TopicRoute) -> QueueMap:
    """Return the queues of `topic` as its own route defines them.

    `writable` are those whose broker has a leader, `sendable` also those whose broker awaits one.
    """
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    writable: list[MessageQueue] = []
    readable: list[MessageQueue] = []
    awaited: list[MessageQueue] = []
    strict = strict_queues(topic, route.order_topic_conf) if route.order_topic_conf else None
    for data in route.queue_datas:
        broker = brokers.get(data.broker_name)
        if broker is None:
            continue
        if data.perm & Permission.WRITE and broker.broker_addrs:
            led = broker.master_addr() is not None
            (writable if led else awaited).extend(
                _queues(topic, data.broker_name, data.write_queue_nums)
            )
        if data.perm & Permission.READ and broker.broker_addrs:
            readable.extend(_queues(topic, data.broker_name, data.read_queue_nums))
    leading = tuple(sorted(writable if strict is None else strict))
    return QueueMap(
        topic=topic,
        route=route,
        writable=leading,
        readable=tuple(sorted(readable)),
        sendable=tuple(sorted(writable + awaited)) if strict is None and awaited else leading,
        brokers=brokers,
    )


def borrowed_queue_map(
    topic: str, default_route: TopicRoute, default_topic_queue_nums: int
) -> QueueMap:
    """Return the queues that `topic` will have when the first send has created it."""
    capped = tuple(
        replace(
            data,
            write_queue_nums=min(default_topic_queue_nums, data.read_queue_nums),
            read_queue_nums=min(default_topic_queue_nums, data.read_queue_nums),
        )
        for data in default_route.queue_datas
    )
    own = queue_map(topic, replace(default_route, queue_datas=capped, order_topic_conf=None))
    return replace(own, borrowed=True)


def strict_queues(topic: str, conf: str) -> list[MessageQueue]:
    """Return the queues of a strictly ordered topic. Raises DecodeError if `conf` is invalid."""
    queues: list[MessageQueue] = []
    for part in filter(None, conf.strip().split(";")):
        name, _, count = part.strip().partition(":")
        if not (name and count.isascii() and count.isdigit() and len(count) < 6):
            raise DecodeError(
                f"the order configuration of topic {topic} is {conf!r}, which "
                "is not a list of brokers",
                hint="use the form broker-a:4;broker-b:4 in ORDER_TOPIC_CONFIG of the name servers",
            )
        if int(count) > TOPIC_QUEUES_MAX:
            raise DecodeError(
                f"the order configuration of topic {topic} has {count} queues for broker {name}"
            )
        queues.extend(_queues(topic, name, int(count)))
    return queues


def _queues(topic: str, broker_name: str, count: int) -> list[MessageQueue]:
    return [MessageQueue(topic, broker_name, queue_id) for queue_id in range(count)]


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
