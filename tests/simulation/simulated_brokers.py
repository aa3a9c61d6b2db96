"""Real broker cores over stores in memory: by themselves, or as Raft groups of three."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

from kourou.engine.effects import Forward
from kourou.engine.inputs import Copied, Dispatched
from kourou.engine.policy import BrokerPolicy
from kourou.engine.roles.quorum import QuorumFollowerRole, QuorumLeaderRole
from kourou.engine.roles.role import STANDALONE, RoleSettings
from kourou.errors import Code
from kourou.model.message import StoredMessage
from kourou.model.topic import BrokerData, QueueData, TopicRoute
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.record.message_record import decode_record
from kourou.runtime import MEMBERS, Peer, Received, ReplyTo
from kourou_rigs.engine import Engine, MemoryStore
from kourou_rigs.quorum import GivenQuorum

TOPICS = {"T": 2, "U": 1}
LAG_BYTES = (0, 0, 300, 5_000)


class LazyStore(MemoryStore):
    """Queues are behind until the world lets them catch up; the index is further behind."""

    due = True

    def dispatch(self):
        return super().dispatch() if self.due else []

    def without(self, end: int) -> LazyStore:
        """What is left when the log is cut at `end`."""
        left = self.cut(end)
        left.__class__ = LazyStore
        return left


class Broker:
    """One process: a broker by itself, or a member of a group. `marks` are (begin, epoch)."""

    def __init__(self, world, group: Group, number: int) -> None:
        self.world, self.group, self.number = world, group, number
        self.address = f"{group.name}:{20_911 + 1_000 * number}"
        self.member = f"n{number}"
        self.store = LazyStore()
        self.marks: list[tuple[int, int]] = []
        self.quorum = GivenQuorum(group=group.name, member=self.member)
        self.engine: Engine | None = None
        self.frozen = False
        self.inbox: list = []
        self.turn_due = False
        self.passed_on: dict[tuple[int, int], Callable] = {}
        self.answers: dict[tuple[int, int], Callable] = {}

    @property
    def up(self) -> bool:
        return self.engine is not None

    @property
    def works(self) -> bool:
        return self.up and not self.frozen

    @property
    def leads(self) -> bool:
        return self.group.leader is self

    @property
    def log(self) -> tuple[int, int]:
        return (self.marks[-1][1] if self.marks else 0, self.store.end)

    def start(self) -> None:
        """Start as what this broker is now; whatever is in the log is in queues and index."""
        role: RoleSettings = STANDALONE
        self.store.due = True
        self.store.dispatch()
        self.store.indexed = self.store.end
        if self.group.raft:
            epoch = self.group.epoch
            self.quorum.sure = self.leads
            if self.leads:
                self.marks.append((self.store.end, epoch))
                role = QuorumLeaderRole(epoch, self.quorum)
            else:
                role = QuorumFollowerRole(self.quorum)
        loop = self.world.loop
        self.engine = Engine(
            policy=BrokerPolicy(
                "DefaultCluster",
                self.group.name,
                transaction_timeout_ms=3_600_000,
                deduplicate_retried_sends=not self.world.careless,
            ),
            now_ms=loop.monotonic_ms(),
            wall_ms=loop.now_ms(),
            left=self.store,
            role=role,
            sync_flush=False,
        )
        # What arrived while it was frozen is handled by its next core: names stay apart.
        self.engine._correlations = self.world.correlations
        self.store.due = False
        self.drain()

    def take(self, item) -> None:
        self.inbox.append(item)
        if not self.turn_due:
            self.turn_due = True
            self.world.later(0.0005, 0.01, self.turn)

    def turn(self) -> None:
        """One turn of the broker's loop: all that has arrived, in order."""
        self.turn_due = False
        if not self.works:
            return
        inbox, self.inbox = self.inbox, []
        engine = self.engine
        loop = self.world.loop
        engine.now_ms, engine.wall_ms = loop.monotonic_ms(), loop.now_ms()
        for one in inbox:
            if isinstance(one, Received):
                one.wall_ms = engine.wall_ms
        if inbox:
            engine.handle(*inbox)
        if self.world.chance.random() < 0.6:
            self.project()
        self.drain()

    def project(self) -> None:
        """Queues catch up, and the index some of the way."""
        store = self.store
        store.due = True
        grown = store.dispatch()
        store.due = False
        lag = self.world.chance.choice(LAG_BYTES)
        store.indexed = max(store.indexed if store.indexed < 1 << 60 else 0, store.end - lag)
        if grown:
            self.engine.handle(Dispatched(grown, store.indexed))
        if not self.group.raft:
            self.engine.flush()

    def tick(self) -> None:
        if self.works:
            self.engine.now_ms = self.world.loop.monotonic_ms()
            self.engine.wall_ms = self.world.loop.now_ms()
            self.engine.advance(0)
            self.project()
            self.drain()

    def drain(self) -> None:
        """Send what the core has said."""
        engine = self.engine
        for effect in engine.effects:
            if isinstance(effect, Forward):
                self.group.pass_on(self, effect)
        engine.effects.clear()
        for name, reply in engine.replies.items():
            answer = self.answers.pop(name, None)
            if answer is not None:
                answer(reply)
        engine.replies.clear()

    def ask(self, received: Received, answer) -> None:
        """A request arrives; `answer` gets its reply."""
        name = (received.to.peer.id, received.to.correlation)
        if answer is not None:
            self.answers[name] = answer
        self.take(received)

    def kill(self) -> None:
        """End the process; its log stays."""
        self.engine = None
        self.frozen = False
        self.inbox.clear()
        self.answers.clear()
        self.world.lost_process(self)


class Group:
    """One broker name."""

    def __init__(self, world, name: str, size: int) -> None:
        self.world, self.name, self.raft = world, name, size > 1
        self.epoch = 1
        self.members = [Broker(world, self, number) for number in range(size)]
        self.leader: Broker | None = None
        self.registered: Broker | None = None
        self.electing = False

    def open(self) -> None:
        if self.raft:
            self.elect()
            return
        self.leader = self.registered = self.members[0]
        self.leader.start()

    # -- who leads --------------------------------------------------------------------------------

    def elect(self) -> None:
        """The best log of those that a majority can choose; None if there is no majority."""
        self.electing = False
        able = [one for one in self.members if not one.frozen and (one.up or self.epoch == 1)]
        if len(able) * 2 <= len(self.members):
            self.call_election()
            return
        self.epoch += 1
        best = max(able, key=lambda one: (one.log, self.world.chance.random()))
        self.leader = best
        best.start()
        for one in self.members:
            if one is not best and not one.frozen and (one.up or self.epoch == 2):
                self.follow(one)
        self.world.events["elections"] += self.epoch > 2
        self.world.later(0.0, 0.3, partial(self.register, best))
        self.create_topics()

    def call_election(self) -> None:
        if self.raft and not self.electing:
            self.electing = True
            self.world.later(0.05, 1.5, self.elect)

    def register(self, broker: Broker | None) -> None:
        """Name servers hear of it, if it is still so."""
        if broker is self.leader:
            self.registered = broker

    def dethrone(self) -> None:
        self.leader = None
        self.world.later(0.0, 0.5, partial(self.register, None))
        self.call_election()

    def follow(self, one: Broker) -> None:
        """Cut what the leader does not have, and begin anew as a follower."""
        leader = self.leader
        if leader is not None:
            end = 0
            for position in sorted(one.store.records):
                record = one.store.records[position]
                if leader.store.records.get(position) != record:
                    break
                end = position + len(record)
            if end < one.store.end:
                self.world.events["cut logs"] += 1
                one.store = one.store.without(end)
                one.marks = [mark for mark in one.marks if mark[0] < end]
            one.quorum.leader = leader.member
            one.quorum.leader_address = leader.address
        else:
            one.quorum.leader = one.quorum.leader_address = ""
        one.start()

    def replicate(self) -> None:
        """Some bytes go to some followers, and what a majority has is confirmed."""
        leader = self.leader
        if not self.raft or leader is None or not leader.works:
            return
        chance = self.world.chance
        for one in self.members:
            if one is leader or not one.works or one.quorum.leader != leader.member:
                continue
            if chance.random() < 0.7 and one.store.end < leader.store.end:
                limit = chance.choice((200, 2_000, 1 << 20))
                chunk = leader.store.read_chunk(one.store.end, leader.store.end, limit)
                end = one.store.append_chunk(chunk.position, chunk.data)
                one.marks = [mark for mark in leader.marks if mark[0] < end]
                one.engine.handle(Copied(end))
                one.project()
        current = [
            one.store.end
            for one in self.members
            if one is leader or (one.log[0] == self.epoch and not one.leads)
        ]
        current.sort(reverse=True)
        need = len(self.members) // 2
        known = max(leader.marks[-1][0], leader.quorum.confirmed)
        if len(current) > need and current[need] > known:
            leader.quorum.confirm(leader.engine, current[need])
            leader.drain()

    def create_topics(self) -> None:
        for topic, queues in TOPICS.items():
            request = UpdateAndCreateTopic(
                topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
            )
            to = ReplyTo(Peer(next(self.world.peers), "local", ("127.0.0.1", 1)), 1)
            self.leader.ask(self.leader.engine.received(request, peer=to.peer.id)[1], None)

    def pass_on(self, source: Broker, effect: Forward) -> None:
        """A follower has a request done by the member that leads, as far as it knows."""
        target = next(one for one in self.members if one.member == effect.member)
        world = self.world
        answer = source.answers.pop((effect.to.peer.id, effect.to.correlation), None)
        world.events["passed on"] += 1
        peer = Peer(next(world.peers), "zmq", ("127.0.0.1", 1), MEMBERS)

        def back(reply) -> None:
            if answer is not None:
                world.later(0.001, 0.02, partial(answer, reply))

        def arrive() -> None:
            if not target.up:
                back(SimpleNamespace(code=Code.OUTCOME_UNKNOWN, remark="lost", header=None))
                return
            name, _ = target.engine.received(effect.request, *effect.body, peer=peer.id)
            to = ReplyTo(peer, name[1])
            target.ask(Received(to, effect.request, effect.body, 0, effect.deadline_ms), back)

        world.later(0.001, 0.05, arrive)

    def stored(self) -> dict[str, list[StoredMessage]]:
        """What each call of a producer has stored in the log, by the body."""
        found: dict[str, list[StoredMessage]] = defaultdict(list)
        for record in self.leader.store.records.values():
            message = decode_record(record)
            if message.message_id:
                found[message.body.decode("utf-8", "replace")].append(message)
        return found


def route(groups: list[Group], topic: str) -> TopicRoute:
    """What name servers say of a topic."""
    datas = []
    for group in groups:
        leader = group.registered
        addresses = {} if leader is None else {0: leader.address}
        for one in group.members:
            if one is not leader and one.works:
                addresses[one.number + 1] = one.address
        datas.append(BrokerData("DefaultCluster", group.name, addresses))
    queues = TOPICS[topic]
    return TopicRoute(tuple(datas), tuple(QueueData(one.name, queues, queues, 6) for one in groups))
