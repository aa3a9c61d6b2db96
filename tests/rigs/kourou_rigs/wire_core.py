"""A real broker core behind a test's connections (see kourou_rigs.wire_cluster).

Tests that run against `WireBroker` also run against `kourou.engine.core.BrokerCore`, over the store
in memory that passes the contract tests of the real store.

State: the engine's. Everything runs on the client's I/O thread, with the machine's time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from kourou.clock import SystemClock
from kourou.engine.policy import EffectivePolicy, TopicRules
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.groups import UnregisterClient
from kourou.protocol.messages.sends import SendRecords
from kourou.protocol.request import Request, Response
from kourou.runtime.core import AskClient, ClientAnswered, Disconnected, Notify
from kourou_rigs.engine import Engine
from kourou_rigs.wire_broker import Answer, WireBroker

if TYPE_CHECKING:
    from kourou_rigs.wire_broker import Wire

CLUSTER = "c1"
SEGMENT_BYTES = 64 << 20
TICK_S = 0.005
SHORT_DELAYS_MS = (1,) * 18
"""The delays of all levels: a retry is immediate, as with a `WireBroker`."""

ADMIN = 1_000_000
"""The connection that creates the test's topics."""


class _ShortDelays(EffectivePolicy):
    """A policy whose delay levels are shorter than messageDelayLevel can say."""

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        return SHORT_DELAYS_MS


class CoreBroker(WireBroker):
    """A `WireBroker` whose replies come from the real core.

    Its attributes are updated after every loop iteration; changing them has no effect, except for
    `intercept`. `perms` are the cluster's.
    """

    def __init__(
        self,
        name: str,
        address: str,
        number: int,
        topics: dict[str, tuple[int, int]],
        perms: dict[str, int],
    ) -> None:
        super().__init__(name, address, number, topics, perms)
        clock = SystemClock()
        policy = _ShortDelays(CLUSTER, name)
        self.engine = Engine(policy=policy, segment_size=SEGMENT_BYTES, wall_ms=clock.now_ms())
        self.engine.store.recent = False  # else new groups read short queues from the start
        self._clock, self._at_ms = clock, clock.monotonic_ms()
        self._rules = TopicRules(CLUSTER, name)
        self._wires: list[Wire] = []
        self._gone: set[int] = set()
        self._declared: dict[str, tuple[int, int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: dict[tuple[int, int], tuple[Wire, int]] = {}

    def answer(self, wire: Wire, correlation: int, request: Request, body: bytes) -> Answer | None:
        """Let the core handle the request; replies follow from its effects."""
        self.seen.append(request)
        intercepted = None if self.intercept is None else self.intercept(request)
        if intercepted is not None:
            return intercepted
        self._declare()
        if isinstance(request, SendRecords):
            self.frames.append(request)
        elif isinstance(request, UnregisterClient):
            self.left.append(
                (request.client_id, request.consumer_group or request.producer_group or "")
            )
        if wire not in self._wires:
            self._wires.append(wire)
        name, received = self.engine.received(
            request, *([body] if body else []), peer=self._wires.index(wire)
        )
        self._pending[name] = wire, correlation
        self.engine.handle(received)
        self._after_turn()
        self._arm()
        return None

    # -- time -------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Advance the time on the loop of the last client, while a client is connected."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        passed_ms, self._at_ms = now_ms - self._at_ms, now_ms
        for number, wire in enumerate(self._wires):
            if getattr(wire, "closed", False) and number not in self._gone:
                self._gone.add(number)
                self.engine.handle(Disconnected(self.engine.peer(number)))
        self.pass_time(passed_ms)
        if len(self._gone) < len(self._wires):
            self._arm()

    def pass_time(self, ms: int) -> None:
        """Advance the broker's time."""
        self.engine.advance(ms)
        self._after_turn()

    def hold_flushes(self) -> None:
        """Switch to SYNC_FLUSH; data is flushed only by `flush`."""
        self._declare()
        self.engine.core.parts.confirmations.sync_flush = True

    def flush(self) -> None:
        """Report everything as flushed."""
        self.engine.flush()
        self._after_turn()

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
                body = b"".join(map(bytes, reply.body))
                wire.reply(
                    correlation,
                    Answer(reply.code, cast("Response | None", reply.header), body, reply.remark),
                )
        for notice in notices:
            self._hear(notice)
        for asked in [effect for effect in effects if isinstance(effect, AskClient)]:
            self._hear(asked)
            self.engine.handle(ClientAnswered(asked.token, asked.peer))
            self._after_turn()

    def _hear(self, said: Notify | AskClient) -> None:
        self._wires[said.peer.id].hear(said.request, b"".join(map(bytes, said.body)))

    def _show(self) -> None:
        store, control = self.engine.store, self.engine.control
        self.queues = {
            target: [store.records[position] for position in positions]
            for target, positions in store.queues.items()
        }
        for topic in control.topics.table.values():
            if topic.name not in self.topics and not self._rules.owns(topic.name):
                self.topics[topic.name] = topic.read_queue_nums, topic.write_queue_nums
                self._declared[topic.name] = (*self.topics[topic.name], topic.perm)
        self.committed = {
            (group, topic, queue_id): offset
            for table in (control.progress.table, control.progress.unrecorded)
            for group, topics in table.items()
            for topic, queues in topics.items()
            for queue_id, offset in queues.items()
        }
        known = self.engine.core.parts.membership
        self.producers = set(known.producer_groups())
        self.members = {
            name: {
                member.client_id: self._wires[member.peer.id]
                for member in known.consumers(name)
                if member.peer.id < len(self._wires)
            }
            for name in known.consumer_groups()
        }
