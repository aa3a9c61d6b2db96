"""A real broker core behind a test's connections (see kourou_rigs.wire_cluster).

`kourou.engine.core.BrokerCore` over the store in memory that passes the contract tests of the real
store. Only sockets, files and the other threads of a broker are left out.

State: the engine's. Requests are handled on the loop of the connection that they came by, with the
machine's time; a lock keeps them, the ticks and a test's reads apart.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, cast

from kourou.client.filters.python_filter import Filter
from kourou.clock import SystemClock
from kourou.engine.policy import EffectivePolicy, TopicRules
from kourou.model.filter import FilterAction, FilterState
from kourou.model.message import StoredMessage
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.lists_body import LockBatch, encode_lock_batch
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.filter_server import ChangeFilter, PutFilter
from kourou.protocol.messages.groups import (
    HeartBeat,
    LockBatchMq,
    UnlockBatchMq,
    UnregisterClient,
)
from kourou.protocol.messages.pulls import UpdateConsumerOffset
from kourou.protocol.messages.sends import SendRecords
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.request import Request, Response
from kourou.runtime import AskClient, ClientAnswered, Disconnected, Notify, Peer, Reply
from kourou.service.secret_keys import SecretKeys, new_key_line
from kourou_rigs.engine import Engine
from kourou_rigs.wire_faults import Answer, Faults

CLUSTER = "c1"
SEGMENT_BYTES = 64 << 20
TICK_S = 0.005
SHORT_DELAYS_MS = (1,) * 18
"""The delays of all levels, so that a retry comes at once."""

ADMIN = 1_000_000
"""The connection of a test's own requests."""


R = TypeVar("R", bound=Request)


class Wire(Protocol):
    """The broker's end of a connection."""

    @property
    def closed(self) -> bool:
        """Whether the client closed it."""
        ...

    def reply(self, correlation: int, answer: Answer) -> None:
        """Reply to an earlier request."""
        ...

    def hear(self, request: Request, body: bytes = b"") -> None:
        """Send an unsolicited notification."""
        ...


class _ShortDelays(EffectivePolicy):
    """A policy whose delay levels are shorter than messageDelayLevel can say."""

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        return SHORT_DELAYS_MS


class CoreBroker:
    """A broker, or with `leader` another replica of that broker's log, with the same data always.

    `topics` are the cluster's, (read queues, write queues) by name, and `perms` those other than 6:
    the broker has the topics that a test declares there, and adds those that it creates. `seen` has
    all requests, `frames` the sends that reached the core, `faults` what goes wrong. `watchers` are
    called after every request and tick.
    """

    def __init__(
        self,
        name: str,
        address: str,
        number: int,
        topics: dict[str, tuple[int, int]],
        perms: dict[str, int],
        leader: CoreBroker | None = None,
    ) -> None:
        self.name, self.address, self.number = name, address, number
        self.topics, self.perms = topics, perms
        self.seen: list[Request] = []
        self.frames: list[SendRecords] = []
        self.faults = Faults()
        self.watchers: set[Callable[[], None]] = set()
        self._log = self if leader is None else leader
        self._clock = SystemClock()
        self._lock: AbstractContextManager[Any] = threading.RLock()
        self.engine: Engine = self._create_engine() if leader is None else leader.engine
        if leader is not None:
            self._lock, self.watchers = leader._lock, leader.watchers
        self._at_ms = self._clock.monotonic_ms()
        self._rules = TopicRules(CLUSTER, name)
        self._wires: list[Wire] = []
        self._gone: set[int] = set()
        self._declared: dict[str, tuple[int, int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: dict[tuple[int, int], tuple[Wire, int]] = {}

    def _create_engine(self) -> Engine:
        engine = Engine(
            policy=_ShortDelays(CLUSTER, self.name),
            segment_size=SEGMENT_BYTES,
            wall_ms=self._clock.now_ms(),
            store_host=(f"10.0.0.{self.number}", 10911),
        )
        engine.store.recent = False  # else new groups read short queues from the start
        return engine

    def answer(self, wire: Wire, correlation: int, request: Request, body: bytes) -> Answer | None:
        """A wrong reply; None if the core's follows, at once or later. Raises a fault."""
        self.seen.append(request)
        wrong = self.faults.answer(request)
        if wrong is None:
            if isinstance(request, SendRecords):
                self.frames.append(request)
            self.handle(wire, correlation, request, body)
        return wrong

    def handle(self, wire: Wire, correlation: int, request: Request, body: bytes) -> None:
        """Let the core handle a request; the reply goes to the connection."""
        log = self._log
        with self._lock:
            log._declare()
            if wire not in log._wires:
                log._wires.append(wire)
            name, received = self.engine.received(
                request, *([body] if body else []), peer=log._wires.index(wire)
            )
            log._pending[name] = wire, correlation
            self.engine.handle(received)
            log._after_turn()
        log._arm()

    # -- a test's requests ------------------------------------------------------------------------

    def ask(self, request: Request, body: bytes = b"") -> Reply:
        """The reply to a request of the test, which the core gives at once."""
        with self._lock:
            self._log._declare()
            reply = self.engine.ask(request, *([body] if body else []), peer=ADMIN)
            self._log._after_turn()
        assert reply.code == 0, reply.remark
        return reply

    def commit(self, topic: str, queue_id: int, offset: int, group: str = "g") -> None:
        """Commit an offset."""
        self.ask(
            UpdateConsumerOffset(
                consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
            )
        )

    def lock(self, client_id: str, *queues: MessageQueue, group: str = "g") -> None:
        """Lock queues for a client that the test made up, whichever client holds them."""
        with self._lock:
            for (of, queue), holder in self.locks.items():
                if of == group and queue in queues:
                    self.unlock(holder, queue, group=group)
            self.ask(LockBatchMq(), encode_lock_batch(LockBatch(group, client_id, queues)))

    def unlock(self, client_id: str, *queues: MessageQueue, group: str = "g") -> None:
        """Release a client's locks."""
        self.ask(UnlockBatchMq(), encode_lock_batch(LockBatch(group, client_id, queues)))

    def join(self, client_id: str, group: str = "g") -> None:
        """Add a consumer that the test made up."""
        beat = HeartbeatBody(client_id, (), (ConsumerData(group=group),))
        self.ask(HeartBeat(), encode_heartbeat(beat))

    def filter(self, name: str, group: str = "g") -> FilterState | None:
        """A filter of a group."""
        return self.engine.control.filters.get(group, name)

    def change_filter(self, name: str, action: FilterAction, group: str = "g", **how: Any) -> None:
        """Do to a filter what an operator or a filter server does."""
        self.ask(ChangeFilter(consumer_group=group, name=name, action=action, **how))

    def put_filter(self, one: Filter, group: str = "g") -> None:
        """Upload and enable a version of a filter."""
        assert one.source is not None
        put = PutFilter(consumer_group=group, name=one.name, sha256=one.sha256)
        self.ask(put, one.source.encode())

    def trim(self, topic: str, queue_id: int, low: int) -> None:
        """Delete the messages below an offset, as retention does."""
        with self._lock:
            store, target = self.engine.store, (topic, queue_id)
            store.queues[target] = store.queues[target][low - store.firsts[target] :]
            store.firsts[target] = low

    def disconnect(self) -> None:
        """Handle the loss of all connections; the clients' ends stay open."""
        log = self._log
        with self._lock:
            for number in range(len(log._wires)):
                self.engine.handle(Disconnected(self.engine.peer(number)))
            log._after_turn()

    # -- what the broker got and has ---------------------------------------------------------------

    def requests(self, kind: type[R]) -> list[R]:
        """The requests of a kind, in order."""
        return [request for request in list(self.seen) if isinstance(request, kind)]

    @property
    def queues(self) -> dict[tuple[str, int], list[bytes]]:
        """The records by topic and queue."""
        store = self.engine.store
        with self._lock:
            return {
                target: [store.records[position] for position in positions]
                for target, positions in store.queues.items()
            }

    def stored(self, topic: str, queue_id: int | None = None) -> list[StoredMessage]:
        """The messages of a topic, or of one of its queues, ordered by queue and offset."""
        store = self.engine.store
        with self._lock:
            return [
                decode_record(store.records[position])
                for (name, number), positions in sorted(store.queues.items())
                for position in positions
                if name == topic and queue_id in (None, number)
            ]

    @property
    def committed(self) -> dict[tuple[str, str, int], int]:
        """The committed offsets by group, topic and queue."""
        progress = self.engine.control.progress
        with self._lock:
            return {
                (group, topic, queue_id): offset
                for table in (progress.table, progress.unrecorded)
                for group, topics in table.items()
                for topic, queues in topics.items()
                for queue_id, offset in queues.items()
            }

    @property
    def members(self) -> dict[str, dict[str, Wire]]:
        """The connections of the consumers by group and client ID."""
        known, wires = self.engine.core.parts.membership, self._log._wires
        with self._lock:
            return {
                name: {
                    member.client_id: wires[member.peer.id]
                    for member in known.consumers(name)
                    if member.peer.id < len(wires)
                }
                for name in known.consumer_groups()
            }

    @property
    def producers(self) -> set[str]:
        """The groups that have producers."""
        with self._lock:
            return set(self.engine.core.parts.membership.producer_groups())

    @property
    def left(self) -> list[tuple[str, str]]:
        """The clients that unregistered, and their groups."""
        return [
            (request.client_id, request.consumer_group or request.producer_group or "")
            for request in self.requests(UnregisterClient)
        ]

    @property
    def locks(self) -> dict[tuple[str, MessageQueue], str]:
        """The client that holds each queue of a group."""
        with self._lock:
            return {
                (group, MessageQueue(topic, self.name, queue_id)): lock.client_id
                for (group, (topic, queue_id)), lock in self.engine.core.parts.locks._locks.items()
            }

    @property
    def parked(self) -> int:
        """The number of parked pulls."""
        with self._lock:
            return self.engine.core.parts.pulls.held

    # -- time -------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Advance the time on the loop of the last client, while a client is connected."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            passed_ms, self._at_ms = now_ms - self._at_ms, now_ms
            for number, wire in enumerate(self._wires):
                if wire.closed and number not in self._gone:
                    self._gone.add(number)
                    self.engine.handle(Disconnected(self.engine.peer(number)))
            self.pass_time(passed_ms)
        if len(self._gone) < len(self._wires):
            self._arm()

    def pass_time(self, ms: int) -> None:
        """Advance the broker's time."""
        with self._lock:
            self.engine.advance(ms)
            self._log._after_turn()

    def hold_flushes(self) -> None:
        """Switch to SYNC_FLUSH; data is flushed only by `flush`."""
        self._log._declare()
        self.engine.core.parts.confirmations.sync_flush = True

    def flush(self) -> None:
        """Report everything as flushed."""
        with self._lock:
            self.engine.flush()
            self._log._after_turn()

    # -- results of an iteration ------------------------------------------------------------------

    def _declare(self) -> None:
        """Create the topics that a test declared in the cluster; sends may create others."""
        for topic, (read, write) in list(self.topics.items()):
            wanted = read, write, self.perms.get(topic, 6)
            if self._rules.owns(topic) or self._declared.get(topic) == wanted:
                continue
            self._declared[topic] = wanted
            made = UpdateAndCreateTopic(
                topic=topic, read_queue_nums=read, write_queue_nums=write, perm=wanted[2]
            )
            assert self.engine.ask(made, peer=ADMIN).code == 0, topic

    def _after_turn(self) -> None:
        replies, self.engine.replies = self.engine.replies, {}
        notices, self.engine.notices = self.engine.notices, []
        effects, self.engine.effects = self.engine.effects, []
        self._show()
        for name, reply in replies.items():
            if name in self._pending:
                wire, correlation = self._pending.pop(name)
                header = cast("Response | None", reply.header)
                body = b"".join(map(bytes, reply.body))
                wire.reply(correlation, Answer(reply.code, header, body, reply.remark))
        for notice in notices:
            self._hear(notice)
        for asked in [effect for effect in effects if isinstance(effect, AskClient)]:
            self._hear(asked)
            self.engine.handle(ClientAnswered(asked.token, asked.peer))
            self._after_turn()
        for notify in list(self.watchers):
            notify()

    def _hear(self, said: Notify | AskClient) -> None:
        if said.peer.id == ADMIN:
            return
        self._wires[said.peer.id].hear(said.request, b"".join(map(bytes, said.body)))

    def _show(self) -> None:
        """Add the topics that the core created to the cluster's."""
        for topic in self.engine.control.topics.table.values():
            if topic.name not in self.topics and not self._rules.owns(topic.name):
                self.topics[topic.name] = topic.read_queue_nums, topic.write_queue_nums
                self._declared[topic.name] = (*self.topics[topic.name], topic.perm)


def connect_as(broker: Any, key: str, *, keeps_secrets: bool = True) -> None:
    """Let all connections of a broker have this CURVE key."""
    engine, parts = broker.engine, broker.engine.core.parts
    engine.peer = lambda number: Peer(number, "zmq", ("127.0.0.1", 40_000 + number), key=key)
    box = SecretKeys.parse(new_key_line("1")) if keeps_secrets else None
    parts.access_gate._box = parts.access_handler._box = box
