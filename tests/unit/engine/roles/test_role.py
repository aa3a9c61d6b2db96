"""What a broker tells of its copies, and a promotion by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.engine.admin.history import state_body
from kourou.engine.control import ControlState, decode_state, encode_state, evolve
from kourou.engine.effects import ChangeRole, Effect
from kourou.engine.inputs import Fenced
from kourou.engine.policy import BrokerPolicy
from kourou.engine.ports import ANYWHERE, QuorumMember
from kourou.engine.roles.leader import LeaderRole
from kourou.engine.roles.quorum import QuorumFollowerRole, QuorumLeaderRole
from kourou.engine.roles.replicas import ReplicaAggregate, check_promotion, leads
from kourou.errors import Code, Rejected
from kourou.events.control_events import EpochOpened, Event, InSyncChanged, Recorded
from kourou.protocol.bodies.broker_bodies import ReplicasView, decode_replicas
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.replication import (
    GetReplicas,
    PromoteReplica,
    PromoteReplicaResponse,
    TransferLeader,
    TransferLeaderResponse,
)
from kourou.replication.raft.inputs import TransferLeadership
from kourou_rigs.engine import Engine, MemoryStore
from kourou_rigs.pair import Pair
from kourou_rigs.quorum import GivenQuorum

PROMOTED = 2**32 + 64 + 1
LEADS = LeaderRole(MemoryStore(), epoch=PROMOTED)
TOPIC = UpdateAndCreateTopic(
    topic="t", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6
)


@pytest.fixture
def pair() -> Pair:
    found = Pair(sync=True)
    found.connect()
    found.settle()
    return found


def status(engine: Engine) -> ReplicasView:
    return decode_replicas(engine.ask(GetReplicas()).body[0])


def changes(engine: Engine) -> list[Effect]:
    return [effect for effect in engine.effects if isinstance(effect, ChangeRole)]


def promote(*, force: bool = False) -> PromoteReplica:
    return PromoteReplica(broker_name="broker-a", force=force)


# -- looking ---------------------------------------------------------------------------------------


def test_a_leader_tells_of_its_follower(pair) -> None:
    found = status(pair.leader)
    assert (found.leads, found.broker_role, found.leader) == (True, "SYNC_MASTER", "broker-a/0")
    assert (found.epoch, found.in_sync) == (64, (1,))
    (follower,) = found.followers
    assert (follower.broker_id, follower.state, follower.in_sync) == (1, "REPLICATE", True)
    assert (follower.lag_bytes, follower.lag_ms) == (0, 0)
    assert follower.written == found.end


def test_what_a_follower_lacks_is_reported_in_bytes_and_in_time(pair, draft, records) -> None:
    before = pair.leader.store.end
    pair.leader.send(*records([draft(body=b"x" * 1_000)]))
    pair.leader.advance(1_500)
    (follower,) = status(pair.leader).followers
    assert follower.lag_bytes == pair.leader.store.end - before > 1_000
    assert follower.lag_ms >= 1_500


def test_a_follower_tells_of_itself_and_of_a_silent_leader(pair, draft, records) -> None:
    found = status(pair.follower)
    assert (found.leads, found.broker_id, found.state) == (False, 1, "FOLLOWING")
    assert (found.lag_bytes, found.lag_ms, found.leader_address) == (0, 0, "10.0.0.1:10911")
    assert found.epochs == status(pair.leader).epochs
    pair.disconnect()
    pair.follower.advance(7_000)
    found = status(pair.follower)
    assert (found.state, found.lag_bytes) == ("DETACHED", 0)
    assert found.lag_ms >= 7_000


def test_a_broker_that_nobody_may_follow_leads_alone() -> None:
    found = status(Engine())
    assert (found.leads, found.epoch, found.followers, found.leader) == (True, 0, (), "")


# -- promotion -------------------------------------------------------------------------------------


@pytest.mark.feature("F137")
def test_a_follower_without_a_leader_is_promoted_and_its_answer_comes_first(pair) -> None:
    pair.disconnect()
    follower = pair.follower
    follower.effects = []
    reply = follower.ask(promote())
    assert reply.header == PromoteReplicaResponse(
        epoch=PROMOTED, position=follower.store.end, behind=0
    )
    assert changes(follower) == [ChangeRole(True, PROMOTED)]
    again = follower.ask(promote())
    assert "this broker is being promoted already" in again.remark
    assert len(changes(follower)) == 1


@pytest.mark.feature("F137")
def test_the_promoted_core_opens_that_epoch_and_every_later_start_a_higher_one(pair) -> None:
    pair.disconnect()
    pair.follower.ask(promote())
    end = pair.follower.store.end
    leader = promoted(pair)
    assert leader.control.replicas.epochs[-1] == (PROMOTED, end)
    assert leader.control.replicas.leader == "broker-a/1"
    assert leader.control.replicas.role == "SYNC_MASTER"
    assert leader.ask(TOPIC).code == Code.SUCCESS
    role = LeaderRole(leader.store, sync=True)
    again = Engine(policy=pair._policy(1), left=leader.store, role=role)
    assert again.control.replicas.epoch == PROMOTED + 64


@pytest.mark.feature("F137")
def test_a_promotion_outdoes_one_that_only_name_servers_know(pair) -> None:
    pair.disconnect()
    pair.follower.handle(Fenced(PROMOTED + 64))
    pair.follower.handle(Fenced(64))  # another name server knows less
    assert pair.follower.ask(promote()).header.epoch == 2 * 2**32 + 64 + 1


def test_a_copy_that_never_had_an_epoch_is_promoted_to_one() -> None:
    engine = Engine(policy=BrokerPolicy("DefaultCluster", "broker-a", 1), role=LEADS)
    assert [epoch for epoch, _ in engine.control.replicas.epochs] == [PROMOTED]


def promoted(pair: Pair) -> Engine:
    store = pair.follower.store
    role = LeaderRole(store, sync=True, epoch=PROMOTED, may_follow=True)
    return Engine(policy=pair._policy(1), left=store, role=role)


@pytest.mark.feature("F137")
def test_while_the_leader_is_heard_only_force_promotes(pair) -> None:
    reply = pair.follower.ask(promote())
    assert reply.code == Code.SYSTEM_ERROR
    assert "the leader at 10.0.0.1:10911 is online" in reply.remark
    assert changes(pair.follower) == []
    assert pair.follower.ask(promote(force=True)).code == Code.SUCCESS
    assert changes(pair.follower) == [ChangeRole(True, PROMOTED)]


def test_a_leader_that_is_reached_hears_first_that_it_is_outdone(pair) -> None:
    pair.follower.ask(promote(force=True))
    pair.take()
    pair.deliver()
    assert status(pair.leader).fenced == PROMOTED
    assert status(pair.leader).leads, "it has no other role"


def test_a_leader_that_stands_still_is_taken_for_dead(pair) -> None:
    """Its connection is there, and nothing comes: asking it again is no sign of life."""
    for _ in range(8):
        pair.follower.advance(1_000)
        pair.take()
    assert pair.follower.ask(promote()).code == Code.SUCCESS


def test_the_name_must_be_that_of_the_log(pair) -> None:
    reply = pair.follower.ask(PromoteReplica(broker_name="broker-b", force=True))
    assert "this is broker-a, not broker-b" in reply.remark
    assert changes(pair.follower) == []


# -- the old leader --------------------------------------------------------------------------------


@pytest.mark.feature("F137")
def test_a_leader_that_is_outdone_stores_nothing_more_and_says_so(pair) -> None:
    leader = pair.leader
    leader.handle(Fenced(PROMOTED))
    reply = leader.ask(TOPIC)
    assert reply.code != Code.SUCCESS
    assert f"it started epoch {PROMOTED}" in reply.remark
    assert status(leader).fenced == PROMOTED
    assert changes(leader) == [], "services/broker only leads"


def test_an_old_epoch_fences_nobody(pair) -> None:
    pair.leader.handle(Fenced(64))
    assert status(pair.leader).fenced == 0
    pair.follower.handle(Fenced(PROMOTED))
    assert status(pair.follower).fenced == 0, "a follower leads nothing"


def test_an_outdone_leader_that_may_follow_does(pair) -> None:
    pair.disconnect()
    pair.follower.ask(promote())
    leader = promoted(pair)
    leader.handle(Fenced(2 * PROMOTED))
    leader.handle(Fenced(2 * PROMOTED))
    assert changes(leader) == [ChangeRole(False, 2 * PROMOTED)], "once"


def test_a_leader_is_promoted_only_after_it_was_outdone_and_by_force(pair) -> None:
    leader = pair.leader
    assert (
        "this broker is the leader already, in epoch 64" in leader.ask(promote(force=True)).remark
    )
    leader.handle(Fenced(PROMOTED))
    assert (
        f"another broker is the leader of this log, in epoch {PROMOTED}"
        in leader.ask(promote()).remark
    )
    assert changes(leader) == []
    reply = leader.ask(promote(force=True))
    assert reply.header.epoch == 2 * 2**32 + 64
    assert changes(leader) == [ChangeRole(True, 2 * 2**32 + 64)]


def test_where_nobody_may_follow_nobody_is_promoted() -> None:
    assert "this broker cannot be promoted: it has no replicas" in Engine().ask(promote()).remark


# -- a Raft group ----------------------------------------------------------------------------------


def elected() -> Engine:
    quorum = GivenQuorum(member="n1", leader="n1", state="leader", epoch=7)
    policy = BrokerPolicy("DefaultCluster", "broker-a", 2)
    engine = Engine(policy=policy, role=QuorumLeaderRole(7, quorum))
    quorum.confirm(engine)
    quorum.others = [
        QuorumMember("n2", 3, "PROBE", 0, 0),
        QuorumMember("n0", 1, "REPLICATE", engine.store.end, 10, 4),
    ]
    return engine


def following(**given: object) -> Engine:
    quorum = GivenQuorum(member="n1", epoch=8, confirmed=0, **given)
    return Engine(
        policy=BrokerPolicy("DefaultCluster", "broker-a", 2), role=QuorumFollowerRole(quorum)
    )


def handed_over(engine: Engine) -> list[Effect]:
    return [one for one in engine.effects if isinstance(one, TransferLeadership)]


def transfer(target: str = "", name: str = "broker-a") -> TransferLeader:
    return TransferLeader(broker_name=name, target=target)


@pytest.mark.feature("F150")
def test_an_elected_leader_tells_of_the_other_members() -> None:
    engine = elected()
    engine.advance(500)
    found, end = status(engine), engine.store.end
    assert (found.leads, found.member, found.leader) == (True, "n1", "broker-a/n1")
    assert (found.epoch, found.epochs, found.broker_role) == (7, ((7, 0),), "SYNC_MASTER")
    assert [(one.member, one.broker_id, one.state) for one in found.followers] == [
        ("n0", 1, "REPLICATE"),
        ("n2", 3, "PROBE"),
    ]
    assert [(one.written, one.flushed, one.lag_bytes, one.lag_ms) for one in found.followers] == [
        (end, 10, 0, 0),
        (0, 0, end, None),
    ]


@pytest.mark.feature("F150")
def test_another_member_tells_who_leads_and_what_it_is() -> None:
    found = status(following(leader="n0", leader_address="10.0.0.1:20911", leader_end=500))
    assert (found.leads, found.member, found.state) == (False, "n1", "follower")
    assert (found.leader, found.leader_address) == ("broker-a/n0", "10.0.0.1:20911")
    assert (found.epoch, found.lag_bytes, found.lag_ms) == (8, 500, None)
    alone = status(following(state="candidate"))
    assert (alone.leader, alone.state) == ("", "candidate")


def test_a_leader_lets_another_one_lead_and_says_so_first() -> None:
    for wanted, meant in (("n2", "n2"), ("3", "n2"), ("1", "n0"), ("", "")):
        engine = elected()
        engine.effects = []
        reply = engine.ask(transfer(wanted))
        assert reply.header == TransferLeaderResponse(leader="n1", epoch=7, target=meant)
        assert (engine.effects[0], engine.effects[-1]) == (reply, TransferLeadership(meant))


def test_only_another_member_of_that_name_can_take_over() -> None:
    engine = elected()
    for wanted in ("n1", "2", "n9"):
        reply = engine.ask(transfer(wanted))
        assert f"{wanted} is not another replica of this group" in reply.remark
        assert "n0 (brokerId 1)" in reply.remark
    assert "this is broker-a, not b" in engine.ask(transfer(name="b")).remark
    assert not handed_over(engine)


def test_who_has_no_vote_yet_cannot_take_over() -> None:
    engine = elected()
    joining, voter = engine.role.quorum.others
    engine.role.quorum.others = [replace(joining, state="JOINING"), voter]
    assert "n2 has no vote yet: it is catching up" in engine.ask(transfer("n2")).remark
    assert not handed_over(engine)
    assert engine.ask(transfer("n0")).code == engine.ask(transfer()).code == Code.SUCCESS
    engine.role.quorum.others = [replace(one, state="JOINING") for one in (joining, voter)]
    engine.effects = []
    assert "no other replica has a vote" in engine.ask(transfer()).remark
    assert not handed_over(engine)


def test_one_hand_over_waits_for_the_end_of_another() -> None:
    engine = elected()
    engine.role.quorum.handing_over = True
    for wanted in ("n2", ""):
        assert (
            "replica n1 is transferring leadership already" in engine.ask(transfer(wanted)).remark
        )
    assert not handed_over(engine)


def test_nobody_is_promoted_in_a_group_and_nothing_handed_over_without_one(pair) -> None:
    for engine in (elected(), following(leader="n0")):
        reply = engine.ask(promote(force=True))
        assert (
            "which elects its leader (to transfer leadership: kourou admin transfer-leader"
            in reply.remark
        )
        assert changes(engine) == []
    for engine in (pair.leader, pair.follower, Engine()):
        assert "broker broker-a is not a Raft group" in engine.ask(transfer()).remark


# -- who has led a log, and whose copies count -----------------------------------------------------


def apply(state: ControlState, event: Event, position: int = 9_999) -> None:
    evolve(state, Recorded(state.next_offset, position, 1, "broker", "", "", event))


def state() -> ControlState:
    found = ControlState()
    apply(found, EpochOpened(1, 500, "a/0", "SYNC_MASTER"))
    apply(found, InSyncChanged((1, 2), (), "caught up"))
    return found


def test_a_new_epoch_forgets_whose_copies_counted() -> None:
    found = state()
    apply(found, EpochOpened(3, 900, "a/1", "ASYNC_MASTER"))
    left = {1: 900, 2: 900}
    assert found.replicas == ReplicaAggregate([(1, 500), (3, 900)], "a/1", "ASYNC_MASTER", (), left)


def test_what_was_promised_while_a_follower_counted_stays_promised() -> None:
    found = state()
    assert found.replicas.promised_to(1) == ANYWHERE
    apply(found, InSyncChanged((2,), (1, 2), "1 is gone"), 800)
    assert [found.replicas.promised_to(member) for member in (1, 2, 3)] == [800, ANYWHERE, 0]
    assert decode_state(encode_state(found)) == found


def test_a_snapshot_holds_it_and_one_without_it_is_read() -> None:
    found = state()
    assert decode_state(encode_state(found)) == found
    assert found.copy() == found
    older = encode_state(ControlState()).replace(b',"replicas":{', b',"older":{')
    assert decode_state(older).replicas == ReplicaAggregate()


def test_it_is_reported_as_one_aggregate() -> None:
    assert b'"leader":"a/0"' in state_body(state(), "replication/epoch")
    assert state_body(ControlState(), "replication/epoch") == b"null"


# -- which member may lead, and which one does after a restart -------------------------------------


def test_whoever_opened_the_newest_epoch_goes_on_leading() -> None:
    replicas = ReplicaAggregate([(64, 0), (2**32 + 65, 900)], leader="broker-a/1")
    assert leads(replicas, "broker-a", 1)
    assert not leads(replicas, "broker-a", 0)
    assert not leads(replicas, "broker-a", 11)
    assert not leads(ReplicaAggregate(), "broker-a", 1), "nobody ever followed"


def test_a_follower_whose_copy_counts_is_promoted_before_one_whose_does_not() -> None:
    replicas = ReplicaAggregate([(64, 0)], in_sync=(2, 3))
    with pytest.raises(Rejected, match=r"on the in-sync replicas 2, 3; 1 may lack some of them"):
        check_promotion(replicas, 1, leader="", silent_ms=None)
    check_promotion(replicas, 2, leader="", silent_ms=None)
    check_promotion(ReplicaAggregate([(64, 0)]), 1, leader="", silent_ms=None)
