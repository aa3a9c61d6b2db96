"""Two followers are promoted one after the other, the second without a word of the first.

The real cores of three members and of name servers, without a wire between them: a member registers
when a test says so, with whichever name server.
"""

from __future__ import annotations

from itertools import count

import pytest

from kourou.engine.effects import ChangeRole
from kourou.engine.inputs import Fenced
from kourou.engine.policy import BrokerPolicy
from kourou.engine.roles.follower import FollowerRole
from kourou.engine.roles.leader import LeaderRole
from kourou.engine.sends.recorder import Recorded
from kourou.errors import Code
from kourou.model.topic import DataVersion
from kourou.protocol.bodies.registration_body import BrokerRegistration, encode_registration
from kourou.protocol.messages.namesrv import RegisterBroker, RegisterBrokerResponse
from kourou.protocol.messages.replication import PromoteReplica
from kourou.replication.epochs import PROMOTION
from kourou.runtime import Disconnected, Peer, Received, ReplyTo
from kourou.settings.registry import SettingsRegistry
from kourou_namesrv.config import NamesrvSettings
from kourou_namesrv.core import NamesrvCore
from kourou_namesrv.key_values import KeyValues, KeyValuesWritten, RecordKeyValues
from kourou_rigs.engine import Engine, MemoryStore
from kourou_rigs.pair import Pair

NAME = "broker-a"
TOPICS = encode_registration(BrokerRegistration((), DataVersion(1, 1)))


class NameServer:
    """One of them; what it keeps is durable at once."""

    def __init__(self) -> None:
        self._core = NamesrvCore(NamesrvSettings(), KeyValues(), SettingsRegistry({}), "")
        self._numbers = count(1)

    def register(self, member: Member) -> bool:
        """True if it takes the member for what that takes itself for."""
        engine = member.engine
        replicas, leads = engine.control.replicas, engine.core.role.leads
        request = RegisterBroker(
            broker_name=NAME,
            broker_addr=f"10.0.0.{member.id}:10911",
            cluster_name="C",
            broker_id=0 if leads else member.id,
            epoch=replicas.epoch,
            promotion=replicas.promotion,
        )
        peer = Peer(member.id, "zmq", ("10.0.0.1", member.id))
        taken = False
        for effect in self._handle(
            Received(ReplyTo(peer, next(self._numbers)), request, [TOPICS], 0)
        ):
            taken = effect.code == Code.SUCCESS
            assert isinstance(effect.header, RegisterBrokerResponse)
            if effect.header.epoch is not None:
                engine.handle(Fenced(effect.header.epoch))
        return taken

    def lost(self, member: Member) -> None:
        self._handle(Disconnected(Peer(member.id, "zmq", ("10.0.0.1", member.id))))

    def _handle(self, item):
        replies = []
        for effect in self._core.handle(1_000, [item]):
            if isinstance(effect, RecordKeyValues):
                at = effect.expected_offset
                events = [Recorded(at, -1, 5, "t", "", "", event) for event in effect.events]
                replies += self._handle(KeyValuesWritten(events, None, effect.request))
            else:
                replies.append(effect)
        return replies


class Member:
    """One member of the log, on its own store."""

    def __init__(self, broker_id: int, store: MemoryStore) -> None:
        self.id = broker_id
        self._policy = BrokerPolicy("C", NAME, broker_id)
        self._run(store, FollowerRole())

    def _run(self, store: MemoryStore, role: FollowerRole | LeaderRole) -> None:
        self.engine = Engine(policy=self._policy, left=store, role=role)

    def promote(self) -> int:
        """An operator says so; the epoch that it opens."""
        assert self.engine.ask(PromoteReplica(broker_name=NAME)).code == Code.SUCCESS
        (change,) = [one for one in self.engine.effects if isinstance(one, ChangeRole)]
        store = self.engine.store
        self._run(store, LeaderRole(store, epoch=change.epoch, may_follow=True))
        assert self.engine.control.replicas.epoch == change.epoch
        return change.epoch

    def start_again(self) -> int:
        """Its log says that it leads; the epoch that it opens."""
        store = self.engine.store
        self._run(store.cut(store.end), LeaderRole(store, may_follow=True))
        return self.engine.control.replicas.epoch

    @property
    def steps_down(self) -> bool:
        return any(one for one in self.engine.effects if isinstance(one, ChangeRole))


@pytest.fixture
def followers() -> tuple[Member, Member]:
    """Both have all of the dead leader's log, whose epoch is 64."""
    pair = Pair()
    pair.connect()
    pair.settle()
    store = pair.follower.store
    first, second = (Member(number, store.cut(store.end)) for number in (1, 2))
    assert first.engine.control.replicas.epoch == 64
    return first, second


@pytest.mark.feature("F137")
def test_a_promotion_outdoes_one_that_the_follower_never_heard_of(followers) -> None:
    first, second = followers
    server = NameServer()
    opened = first.promote()
    assert server.register(first)
    server.lost(first)
    assert server.register(second), "the dead leader's follower is there again"
    promoted = second.promote()
    assert promoted // PROMOTION == 2
    assert server.register(second)

    again = first.start_again()
    assert opened < again < promoted
    assert not server.register(first)
    assert first.steps_down
    assert server.register(second)
    assert not second.steps_down


@pytest.mark.feature("F137")
@pytest.mark.parametrize("heard_first", [0, 1])
def test_of_two_that_no_name_server_told_one_stands_whoever_starts_again(
    followers, heard_first: int
) -> None:
    """Each was promoted while only the other's name server was away."""
    first, second = followers
    servers = NameServer(), NameServer()
    first.promote()
    servers[0].register(first)
    second.promote()
    servers[1].register(second)
    for _ in range(3):
        first.start_again()
    for server in servers[heard_first], servers[not heard_first]:
        server.register(first)
        assert server.register(second)
        assert not server.register(first)
        assert first.steps_down
        assert not second.steps_down
