"""A send call stores its message once at most, whatever becomes of its answers.

Each seed is a life of producers and brokers: the client's real sending core (producer, routes,
retries, waits for a leader) speaks to real broker cores over simulated connections, in virtual
time. A broker name is one broker or a Raft group of three. Connections end under requests and under
answers, bytes that were sent before the end arrive after it or never, brokers are killed and come
back, freeze and thaw, members that no longer lead get sends and pass them on or refuse them, name
servers answer late and with stale routes, and the key index lags behind the log.

What holds at the end, in the log of each broker name:
  - a send call has stored its message at most once, and so has a name (`message_id`) that several
    calls share; between broker names this is not promised (docs/background.md)
  - SEND_OK means that it is there, at the place that the answer named
  - Rejected and Unavailable mean that it is nowhere

Bytes between members of a group are copied by the world itself, by Raft's rules: a majority
confirms, the longest log of the newest epoch leads. How Raft gets there is another simulation's
subject (test_raft).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
from tests.simulation.simulated_brokers import TOPICS, Broker, Group, route
from tests.simulation.simulated_wires import Ends, SimWire, VirtualLoop

from kourou import ClientSettings, ProducerSettings
from kourou.client.producer.batches import SomeNotSent
from kourou.client.producer.producer_core import ROUND_ROBIN, ProducerCore
from kourou.client.producer.sends import Sends
from kourou.client.session.client_session import Session
from kourou.client.session.discovery import parse_addresses
from kourou.errors import Code, KourouError, UnknownOutcome
from kourou.model.message import Message, Property, SendResult, SendStatus
from kourou.protocol.bodies.route_bodies import ClusterInfo, encode_cluster_info, encode_topic_route
from kourou.protocol.messages import namesrv
from kourou.protocol.messages.sends import SendRecords
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.wire.frames import FrameKind, decode_request, encode_reply
from kourou.runtime import Disconnected, Peer

FULL = 1_500
SOAK = 10_000
CARELESS = 12
SEND_MS = 6_000
NAME_SERVER = "ns:19876"
SETTLE_S = 30.0


class Violation(AssertionError):
    """A promise of `send` was broken."""


class Life:
    """One seed. `careless` brokers look for no earlier copies (deduplicateRetriedSends=false)."""

    def __init__(self, seed: int, *, careless: bool = False) -> None:
        self.chance = random.Random(seed)
        self.careless = careless
        self.events: Counter[str] = Counter()
        self.loop = VirtualLoop()
        self.peers, self.correlations = count(1), count(1)
        sizes = self.chance.choice([(1,), (1,), (3,), (3,), (1, 1), (3, 1)])
        self.groups = [Group(self, f"broker-{'ab'[n]}", size) for n, size in enumerate(sizes)]
        self.brokers = {one.address: one for group in self.groups for one in group.members}
        self.wires: list[SimWire] = []
        self.lost_answers = self.chance.choice((0.0, 0.05, 0.3))
        self.lost_requests = self.chance.choice((0.0, 0.05, 0.2))
        self.slow_s = self.chance.choice((0.005, 0.05, 0.4))
        self.faults = self.chance.sample(
            [self.cut_some, self.kill, self.kill, self.freeze, self.freeze, self.hand_over],
            self.chance.choice((1, 2, 3, 4)),
        )
        self.healed = False
        self.outcomes: list[tuple[str, object]] = []
        self.doubtful: set[str] = set()

    def live(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._failed)
        self.failure: BaseException | None = None
        try:
            self.loop.run_until_complete(self._live())
            if self.failure is not None:
                raise self.failure
            self.check()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(self.loop.passed(0))
            asyncio.set_event_loop(None)
            self.loop.close()

    def _failed(self, _loop, context) -> None:
        self.failure = self.failure or context.get("exception") or Violation(context["message"])

    async def _live(self) -> None:
        for group in self.groups:
            group.open()
            if not group.raft:
                group.create_topics()
        self.every(0.01, 0.05, lambda: [group.replicate() for group in self.groups])
        self.every(0.05, 0.2, lambda: [broker.tick() for broker in self.brokers.values()])
        await self.loop.passed(0.5)
        producers = [self.producer(number) for number in range(self.chance.choice((1, 1, 2)))]
        for session, _ in producers:
            await session.open()
        self.after_a_while(self.fault)
        calls = [
            asyncio.ensure_future(self.call(sends, f"{number}.{index}"))
            for number, (_, sends) in enumerate(producers)
            for index in range(self.chance.choice((4, 8, 16)))
        ]
        await asyncio.wait(calls)
        for call in calls:
            call.result()
        self.heal()
        until_s = self.loop.time() + SETTLE_S
        while not self.is_well() and self.failure is None:
            assert self.loop.time() < until_s, "all has healed, and brokers are not well"
            await self.loop.passed(0.1)
        await self.loop.passed(1.0)
        for session, _ in producers:
            await session.close()

    def producer(self, number: int) -> tuple[Session, Sends]:
        async def run(work):
            return await work

        io = SimpleNamespace(loop=self.loop, check=lambda: None, run=run, identities=set())
        session = Session(
            io,
            ClientSettings(request_timeout_ms=3_000),
            SimpleNamespace(addresses=parse_addresses(NAME_SERVER), list_url="", source="argument"),
            f"client-{number}",
            dial=self.dial,
            clock=self.loop,
            chance=random.Random(self.chance.getrandbits(32)),
        )
        settings = ProducerSettings(
            producer_group="p",
            send_timeout_ms=SEND_MS,
            send_latency_fault_enable=self.chance.random() < 0.2,
            retry_times_when_send_failed=self.chance.choice((2, 2, 5)),
        )
        sends = Sends()
        sends._core = ProducerCore(settings, session, "127.0.0.1")
        return session, sends

    def dial(self, address: str, on_notify) -> SimWire:
        wire = SimWire(self, address.removeprefix("tcp://"), on_notify)
        self.wires.append(wire)
        return wire

    # -- time -------------------------------------------------------------------------------------

    def later(self, low_s: float, high_s: float, does) -> None:
        self.loop.call_later(self.chance.uniform(low_s, high_s), does)

    def every(self, low_s: float, high_s: float, does) -> None:
        def again() -> None:
            does()
            self.later(low_s, high_s, again)

        self.later(low_s, high_s, again)

    def after_a_while(self, does) -> None:
        self.later(0.01, self.chance.choice((0.1, 0.5, 2.0)), does)

    # -- the network ------------------------------------------------------------------------------

    def listens(self, address: str) -> bool:
        broker = self.brokers.get(address)
        return broker is None or broker.works

    def delay_s(self) -> float:
        return self.chance.random() * self.slow_s

    def carry_in(self, ends: Ends, frame) -> None:
        is_send = frame.code == SendRecords.code
        if not self.healed and is_send and self.chance.random() < self.lost_requests:
            self.later(0.0, 0.01, partial(ends.wire.cut, "lost with a request"))
        ends.next_in = max(ends.next_in, self.loop.time() + self.delay_s())
        self.loop.call_at(ends.next_in, self._arrive, ends, frame)

    def _arrive(self, ends: Ends, frame) -> None:
        if not ends.open and not ends.zombies:
            return
        self.events["after the end"] += not ends.open
        address = ends.wire.address
        request = decode_request(frame)
        broker = self.brokers.get(address)
        if broker is None:
            self._asked_name_server(ends, frame, request)
            return
        if not broker.up:
            return
        deadline_ms = self.loop.monotonic_ms() + frame.deadline_ms if frame.deadline_ms else 0
        body = [bytes(part) for part in frame.body]
        name, received = broker.engine.received(
            request, *body, peer=ends.peer, deadline_ms=deadline_ms
        )
        broker.engine._asked[name] = request
        answer = None
        if frame.kind is FrameKind.REQUEST:
            answer = partial(self.carry_out, ends, frame.correlation, request)
        broker.ask(received, answer)

    def carry_out(self, ends: Ends, correlation: int, request, reply) -> None:
        if not ends.open:
            self.events["answers to nobody"] += 1
            return
        is_send = isinstance(request, SendRecords)
        if is_send:
            self.events["sends answered"] += 1
            self.events["attempts after the first"] += request.attempt > 1
        if not self.healed and is_send and self.chance.random() < self.lost_answers:
            self.events["lost answers"] += 1
            ends.wire.cut("lost with an answer")
            return
        body = list(getattr(reply, "body", None) or [])
        parts = [encode_reply(correlation, reply.code, reply.remark, reply.header), *body]
        ends.next_out = max(ends.next_out, self.loop.time() + self.delay_s())
        self.loop.call_at(ends.next_out, self._answer, ends, correlation, parts)

    def _answer(self, ends: Ends, correlation: int, parts: list) -> None:
        if ends.open:
            ends.wire.answer(correlation, parts)

    def gone(self, address: str, ends: Ends) -> None:
        broker = self.brokers.get(address)
        if broker is not None:
            peer = Peer(ends.peer, "local", ("127.0.0.1", 40_000 + ends.peer))
            notice = partial(self._gone, broker, Disconnected(peer))
            self.loop.call_at(max(ends.next_in, self.loop.time()) + 0.001, notice)

    @staticmethod
    def _gone(broker: Broker, notice: Disconnected) -> None:
        if broker.up:
            broker.take(notice)

    def lost_process(self, broker: Broker) -> None:
        for wire in self.wires:
            if wire.address == broker.address and wire.ends is not None:
                self.later(0.0, 0.05, partial(self._notice_end, wire, wire.ends))

    @staticmethod
    def _notice_end(wire: SimWire, ends: Ends) -> None:
        if wire.ends is ends:
            wire.cut("its process ended")

    def _asked_name_server(self, ends: Ends, frame, request) -> None:
        if not self.healed and self.chance.random() < 0.05:
            return
        body = b""
        if isinstance(request, namesrv.GetRouteInfoByTopic):
            code = Code.TOPIC_NOT_EXIST
            if request.topic in TOPICS:
                code, body = 0, encode_topic_route(route(self.groups, request.topic))
        else:
            code = 0
            found = route(self.groups, "T").broker_datas
            body = encode_cluster_info(
                ClusterInfo(
                    {one.broker_name: one for one in found},
                    {"DefaultCluster": tuple(one.broker_name for one in found)},
                )
            )
        parts = [encode_reply(frame.correlation, code, "", None), *([body] if body else [])]
        self.loop.call_later(self.delay_s(), self._answer, ends, frame.correlation, parts)

    # -- faults -----------------------------------------------------------------------------------

    def fault(self) -> None:
        if not self.healed:
            self.chance.choice(self.faults)()
            self.after_a_while(self.fault)

    def any_broker(self) -> Broker:
        leaders = [group.leader for group in self.groups if group.leader is not None]
        if leaders and self.chance.random() < 0.7:
            return self.chance.choice(leaders)
        return self.chance.choice(list(self.brokers.values()))

    def cut_some(self) -> None:
        for wire in self.wires:
            if wire.address in self.brokers and self.chance.random() < 0.5:
                self.events["connections cut"] += wire.connected
                wire.cut("cut by the world")

    def kill(self) -> None:
        broker = self.any_broker()
        if not broker.up:
            return
        self.events["killed"] += 1
        broker.kill()
        if broker.leads and broker.group.raft:
            broker.group.dethrone()
        self.later(0.02, 1.5, partial(self.restart, broker))

    def restart(self, broker: Broker) -> None:
        if broker.up:
            return
        if broker.group.raft:
            broker.group.follow(broker)
        else:
            broker.start()

    def freeze(self) -> None:
        """A process that is stopped keeps its connections, and what they bring waits for it."""
        broker = self.any_broker()
        if broker.works:
            self.events["frozen"] += 1
            broker.frozen = True
            self.later(0.05, 3.0, partial(self.thaw, broker))
            if broker.leads and broker.group.raft:
                self.later(0.3, 1.0, partial(self.given_up, broker))

    def given_up(self, broker: Broker) -> None:
        """The others have not heard of it for long."""
        if broker.frozen and broker.leads:
            broker.group.dethrone()

    def thaw(self, broker: Broker) -> None:
        if not broker.frozen:
            return
        broker.frozen = False
        group = broker.group
        if group.raft and not broker.leads:
            if self.chance.random() < 0.5:
                broker.quorum.sure = False  # its lease is over
                broker.turn()
            if broker.engine.core.role.leads:
                broker.engine.perform(broker.engine.core.lose_leadership("another member leads"))
                broker.drain()
            inbox = broker.inbox
            group.follow(broker)
            broker.inbox = inbox
        broker.turn()

    def hand_over(self) -> None:
        """The leader lets another member lead: it loses the lead while it lives."""
        group = self.chance.choice(self.groups)
        leader = group.leader
        if group.raft and leader is not None and leader.works:
            self.events["handed over"] += 1
            leader.quorum.sure = False
            leader.engine.perform(leader.engine.core.lose_leadership("another member is to lead"))
            leader.drain()
            group.dethrone()
            group.follow(leader)

    def heal(self) -> None:
        self.healed = True
        for broker in self.brokers.values():
            self.thaw(broker)
            self.restart(broker)

    def is_well(self) -> bool:
        return all(
            group.leader is not None
            and group.leader.works
            and all(one.works and one.store.end == group.leader.store.end for one in group.members)
            for group in self.groups
        )

    # -- producers --------------------------------------------------------------------------------

    async def call(self, sends: Sends, name: str) -> None:
        """One call of an application, at some time."""
        await self.loop.passed(self.chance.random() * self.chance.choice((0.05, 2.0, 4.0)))
        topic = self.chance.choice(list(TOPICS))
        kind = self.chance.choice((self.one, self.one, self.many, self.batch, self.half, self.name))
        self.events[kind.__name__] += 1
        await kind(sends, topic, name)

    async def one(self, sends: Sends, topic: str, name: str) -> None:
        more = self.chance.choice(({}, {"order_key": name}, {"delay_level": 18}, {"tag": "t"}))
        await self.note([name], sends.send(topic, name, **more))

    async def many(self, sends: Sends, _topic: str, name: str) -> None:
        names = [f"{name}.{index}" for index in range(self.chance.choice((2, 5, 30)))]
        some = [Message(self.chance.choice(list(TOPICS)), one.encode()) for one in names]
        await self.note(names, sends.send_many(some))

    async def batch(self, sends: Sends, topic: str, name: str) -> None:
        names = [f"{name}.{index}" for index in range(self.chance.choice((2, 4)))]
        await self.note(names, sends.send_batch(topic, names))

    async def half(self, sends: Sends, topic: str, name: str) -> None:
        """The first half of a transaction."""
        await self.note([name], self.send_half(sends, topic, name))

    async def send_half(self, sends: Sends, topic: str, name: str) -> SendResult:
        core, port, targets = await sends._ready(topic)
        own = {Property.TRAN_MSG.value: "true", Property.PGROUP.value: "p"}
        terms = core.terms(timeout_ms=SEND_MS, wait=True)
        waiter = self.loop.create_future()
        given = (targets, port, waiter, name, None, (), None, 0, terms, ROUND_ROBIN, own)
        port.add(core.pending_send(*given))
        return await waiter

    async def name(self, sends: Sends, topic: str, name: str) -> None:
        """An application names its message, and sends it again while it does not know."""
        given = f"{self.chance.getrandbits(128):032X}"
        for _ in range(3):
            found = await self.note([name], sends.send(topic, name, message_id=given))
            if not isinstance(found[0], UnknownOutcome):
                return
            self.doubtful.add(name)  # what is refused now may be there since the call before

    async def note(self, names: list[str], sending) -> list:
        try:
            found = await sending
        except SomeNotSent as error:
            found = error.outcomes
        except KourouError as error:
            found = [error] * len(names)
        outcomes = found if isinstance(found, list) else [found]
        self.outcomes += zip(names, outcomes, strict=True)
        return outcomes

    # -- the promises -----------------------------------------------------------------------------

    def check(self) -> None:
        logs = {group.name: group.stored() for group in self.groups}
        last = dict(self.outcomes)  # of a name that was sent again, the last call's
        for name, outcome in last.items():
            copies = {broker: found.get(name, []) for broker, found in logs.items()}
            for broker, messages in copies.items():
                if len(messages) > 1:
                    places = [(one.topic, one.queue_id, one.offset) for one in messages]
                    raise Violation(f"{name} is stored {len(messages)} times: {broker} {places}")
            total = sum(map(len, copies.values()))
            self.events["at two brokers"] += total > 1
            if isinstance(outcome, SendResult):
                self.events["acknowledged"] += 1
                messages = copies[outcome.queue.broker_name]
                if outcome.status is SendStatus.SEND_OK and not messages:
                    raise Violation(f"{name} was acknowledged and is lost: {outcome}")
                _, position = decode_offset_id(outcome.offset_message_id)
                if messages and messages[0].position != position:
                    raise Violation(f"{name} is at {messages[0].position}, not at {position}")
            elif isinstance(outcome, UnknownOutcome):
                self.events["unknown"] += 1
            elif total and name not in self.doubtful:
                raise Violation(f"{name} was refused and is stored: {outcome!r}")
            else:
                self.events["refused"] += 1


@pytest.mark.feature("F176", "F201", "F230")
@pytest.mark.fault
def test_a_send_call_stores_its_message_once(lived):
    seeds, events = lived(FULL, Life)
    if seeds >= 100:
        assert min(events[what] for what in MET) > 0, events


@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_ten_thousand_lives_more():
    for seed in range(FULL, FULL + SOAK):
        Life(seed).live()


@pytest.mark.feature("F176")
def test_without_deduplication_the_same_lives_store_twice():
    """So the lives above would show a duplicate."""
    twice = 0
    for seed in range(CARELESS):
        try:
            Life(seed, careless=True).live()
        except Violation as found:
            assert " times: " in str(found)  # noqa: PT017 - and others end well
            twice += 1
    assert twice


MET = (
    "lost answers",
    "attempts after the first",
    "after the end",
    "passed on",
    "elections",
    "cut logs",
    "killed",
    "frozen",
    "acknowledged",
    "unknown",
    "refused",
)
