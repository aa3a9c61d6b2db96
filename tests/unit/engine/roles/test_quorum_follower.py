"""A member of a Raft group that does not lead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kourou.engine.admin.access_gate import USERS_UNCOPIED
from kourou.engine.effects import Append, CopyCompleted, DeleteLogBefore, Forward
from kourou.engine.inputs import Copied, Dispatched
from kourou.engine.policy import BrokerPolicy
from kourou.engine.roles.follower import REFUSED
from kourou.engine.roles.quorum import KEPT, QuorumFollowerRole, QuorumLeaderRole
from kourou.errors import Code
from kourou.events.control_events import Cause, LogDeleted, TopicPut
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.access import AuthCreateUser, AuthDeleteUser
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.groups import (
    LockBatchMq,
    UnlockBatchMq,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.replication import FetchLog, TransferLeader
from kourou.protocol.messages.sends import SendReplyMessage
from kourou.runtime import MEMBERS, Peer, Received, ReplyTo, Tick
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, curve_key, secret_box
from kourou_rigs.engine import Engine, pull
from kourou_rigs.quorum import GivenQuorum

TOPIC = UpdateAndCreateTopic(
    topic="t", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6
)
ANSWER = SendReplyMessage(
    producer_group="p", topic="DefaultCluster_REPLY_TOPIC", queue_id=0, born_timestamp=1
)

REPLICA = Sender(protocol="zmq", listener=MEMBERS)


class Group:
    """A leader and a follower; what one has is copied when the test says so."""

    def __init__(self, **settings: Any) -> None:
        """`settings` are those of both engines."""
        self.ours = GivenQuorum(member="n0", leader="n0", state="leader", epoch=3)
        self.leader = Engine(role=QuorumLeaderRole(3, self.ours), **settings)
        self.theirs = GivenQuorum(
            member="n1", leader="n0", leader_address="10.0.0.1:20911", epoch=3
        )
        policy = BrokerPolicy("DefaultCluster", "broker-a", 2)
        self.follower = Engine(policy=policy, role=QuorumFollowerRole(self.theirs), **settings)
        self.copy()

    def copy(self) -> None:
        """The follower's disk gets what it lacks."""
        ours, theirs = self.leader.store, self.follower.store
        while theirs.end < ours.end:
            chunk = ours.read_chunk(theirs.end, ours.end, 1 << 20)
            end = theirs.append_chunk(theirs.end, chunk.data)
            self.follower.handle(Copied(end), Dispatched(theirs.dispatch(), theirs.indexed))
        self.theirs.leader_end = ours.end

    def record(self, *events: object) -> None:
        """Let the leader decide, and the follower copy it."""
        parts = self.leader.core.parts
        parts.recorder.record(events, Cause("me"), self.leader.wall_ms)
        self.leader.perform(parts.appends.take_done())
        self.copy()


@pytest.fixture
def group() -> Group:
    return Group()


def forwards(engine: Engine) -> list[Forward]:
    return [effect for effect in engine.effects if isinstance(effect, Forward)]


# -- who asks the wrong one ------------------------------------------------------------------------


@pytest.mark.feature("F151")
@pytest.mark.parametrize("kind", [*REFUSED, TransferLeader], ids=lambda kind: kind.__name__)
def test_what_changes_the_log_is_a_leaders_to_do(group, kind) -> None:
    following = group.follower.core.role
    assert group.follower.core._handlers[kind] == following._forward


@pytest.mark.feature("F151")
@pytest.mark.parametrize(("attempt", "passed_on"), [(0, 0), (1, 0), (2, 2)])
def test_it_is_passed_on_to_the_leader_as_it_came(
    group, draft, records, attempt, passed_on
) -> None:
    """But a first attempt may have slept here while its sender repeated it elsewhere."""
    follower = group.follower
    request, body = records([draft()])
    request = msgspec.structs.replace(request, attempt=attempt)
    name, received = follower.received(request, body, deadline_ms=9_000)
    follower.handle(received)
    wanted = msgspec.structs.replace(request, attempt=passed_on)
    assert forwards(follower) == [
        Forward("n0", received.to, wanted, [body], 9_000, "//127.0.0.1/local")
    ]
    assert name not in follower.replies, "the answer is the leader's to give"


@pytest.mark.feature("F151")
@pytest.mark.parametrize("request_", [LockBatchMq(), UnlockBatchMq(), ANSWER])
def test_what_hangs_on_a_connection_is_not_passed_on(group, request_) -> None:
    assert type(request_) in KEPT <= set(REFUSED)
    reply = group.follower.ask(request_, b"{}")
    assert reply.code == Code.SERVICE_NOT_AVAILABLE
    assert (
        "the leader of broker-a is n0 at 10.0.0.1:20911; this replica, n1, is a follower"
        in reply.remark
    )
    assert forwards(group.follower) == []


def test_while_nobody_leads_the_asker_is_reported_so(group) -> None:
    group.theirs.leader = ""
    reply = group.follower.ask(TOPIC)
    assert reply.code == Code.SERVICE_NOT_AVAILABLE
    assert "broker broker-a has no leader; an election is in progress" in reply.remark
    group.theirs.leader = "n1"  # elected, and its new core is not there yet
    assert "broker-a has no leader" in group.follower.ask(TOPIC).remark
    assert forwards(group.follower) == []


def test_what_another_member_passed_on_goes_no_further(group) -> None:
    follower = group.follower
    to = ReplyTo(Peer(9, "zmq", ("10.0.0.3", 1), MEMBERS), 1)
    follower.handle(Received(to, TOPIC, [], follower.wall_ms))
    assert forwards(follower) == []
    assert follower.effects[-1].code == Code.SERVICE_NOT_AVAILABLE


def test_the_leader_decides_and_records_a_forwarded_request_as_that_of_its_user() -> None:
    group = Group(secrets=secret_box(), knows_replicas=True)
    ours, theirs = SecuredBroker(group.leader), SecuredBroker(group.follower)
    senders = created(group, ours)
    for name, by, named, address in (
        ("t-1", "root", "", "192.0.2.1"),
        ("t-2", "console-1", "ops", "192.0.2.2"),
    ):
        request = msgspec.structs.replace(TOPIC, topic=name)
        sender = replace(senders[by], secret="", source=address)
        theirs.give(theirs.received(sender, request, on_behalf_of=named))
        forward = forwards(group.follower)[-1]
        assert (forward.request, forward.origin) == (*(request, f"{by}/{named}/{address}/local"),)
        ours.give(ours.received(REPLICA, forward.request, on_behalf_of=forward.origin))
    actors = {one.event.aggregate: one.actor for one in ours.events()}
    assert actors["topic/t-1"] == "User:root"
    assert actors["topic/t-2"] == "User:ops through User:console-1"


def test_a_right_that_a_late_follower_does_not_know_to_be_revoked_is_revoked() -> None:
    group = Group(secrets=secret_box(), knows_replicas=True)
    ours, theirs = SecuredBroker(group.leader), SecuredBroker(group.follower)
    senders = created(group, ours)
    ours.give(ours.received(senders["root"], AuthDeleteUser(username="ops")))
    assert "ops" in theirs.access.users
    theirs.give(theirs.received(replace(senders["ops"], secret=""), TOPIC))
    [forward] = forwards(group.follower)
    [reply] = ours.give(ours.received(REPLICA, forward.request, on_behalf_of=forward.origin))
    assert reply is not None
    assert reply.code == Code.NO_PERMISSION
    assert ours.engine.control.topics.get("t") is None


def created(group: Group, leader: SecuredBroker) -> dict[str, Sender]:
    """Create users at the leader, which the follower copies; their replies wait for the group."""
    senders: dict[str, Sender] = {}
    for name, role in (("root", "administrator"), ("ops", "operator"), ("console-1", "console")):
        made = Sender(user=name, secret=f"secret-of-{name}", key=curve_key(name))
        body = {"password": made.secret, "roles": [role], "curveKeys": [made.key]}
        request = AuthCreateUser(username=name)
        by = senders.get("root", ANYBODY)
        leader.give(leader.received(by, request, msgspec.json.encode(body)))
        senders[name] = made
    group.copy()
    assert set(group.follower.control.access.users) == set(senders)
    return senders


# -- the copy --------------------------------------------------------------------------------------


@pytest.mark.feature("F160")
def test_readers_see_what_the_group_has_confirmed(group, draft, records) -> None:
    leader, follower = group.leader, group.follower
    leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    leader.send(*records([draft()]))
    group.copy()
    assert follower.store.records == leader.store.records
    assert follower.ask(pull()).code == Code.PULL_NOT_FOUND
    held = follower.send(pull(0, wait_ms=9_000))
    assert held not in follower.replies
    group.theirs.confirm(follower)
    assert follower.replies[held].code == Code.SUCCESS


def test_what_an_earlier_core_had_and_nobody_confirmed_is_not_read(group, draft, records) -> None:
    leader, follower = group.leader, group.follower
    leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    leader.send(*records([draft()]))
    group.copy()
    role = QuorumFollowerRole(group.theirs)
    new = Engine(policy=follower.policy, role=role, left=follower.store)
    assert new.ask(pull()).code == Code.PULL_NOT_FOUND
    group.theirs.confirm(new)
    assert new.ask(pull()).code == Code.SUCCESS


def test_a_reader_who_is_ahead_of_this_copy_waits_for_it(group, draft, records) -> None:
    """Its leader had more: that is no offset to go back from."""
    leader, follower = group.leader, group.follower
    leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    leader.send(*records([draft()]))
    group.copy()
    group.theirs.confirm(follower)
    reply = follower.ask(pull(3))
    assert (reply.code, reply.header.next_begin_offset) == (Code.PULL_NOT_FOUND, 3)
    held = follower.send(pull(2, wait_ms=9_000))
    leader.send(*records([draft(), draft()]))
    group.copy()
    group.theirs.confirm(follower)
    assert follower.replies[held].code == Code.SUCCESS


def test_decisions_take_effect_when_copied(group) -> None:
    group.record(TopicPut(TopicConfig("t", 2, 2)))
    assert group.follower.control == group.leader.control
    assert group.follower.control.topics.get("t") is not None


def test_nothing_is_deleted_before_that_is_confirmed(group) -> None:
    event = LogDeleted(0, 1 << 20, "old", ())
    group.record(event)
    follower = group.follower
    assert not [one for one in follower.effects if isinstance(one, DeleteLogBefore)]
    position = group.follower.events()[-1].position
    group.theirs.confirm(follower, position)
    assert not [one for one in follower.effects if isinstance(one, DeleteLogBefore)]
    group.theirs.confirm(follower)
    group.theirs.confirm(follower)
    deletions = [one for one in follower.effects if isinstance(one, DeleteLogBefore)]
    assert deletions == [DeleteLogBefore(1 << 20)]


def test_a_follower_writes_nothing_whatever_the_clock_says(group) -> None:
    follower = group.follower
    end = follower.store.end
    for _ in range(20):
        follower.now_ms += 60_000
        follower.handle(Tick(follower.wall_ms + follower.now_ms))
    assert follower.core.stop(0) == []
    assert not [one for one in follower.effects if isinstance(one, Append)]
    assert follower.store.end == end


def test_its_lag_is_reported_in_time(group, draft, records) -> None:
    follower = group.follower
    following = follower.core.role
    assert following.lag_ms(follower.now_ms) == 0
    follower.advance(100)
    group.theirs.leader_end += 500
    follower.advance(1_500)
    assert following.lag_ms(follower.now_ms) == 1_500
    group.theirs.leader = ""
    follower.advance(1_000)
    assert following.lag_ms(follower.now_ms) == 2_500


# -- before it knows who may do what ---------------------------------------------------------------


def test_a_replica_that_began_empty_serves_nobody_before_it_has_the_leaders_log() -> None:
    group = Group(uncopied=True)
    follower = group.follower
    assert not group.leader.control.access.uncopied, "a leader has its own users"
    hurried = follower.ask(pull())
    assert (hurried.code, USERS_UNCOPIED in hurried.remark) == (Code.SERVICE_NOT_AVAILABLE, True)
    assert not forwards(follower), "nor does it forward"
    group.theirs.leader_end = group.leader.store.end + 1
    follower.handle(Tick(follower.wall_ms))
    assert follower.ask(pull()).code == Code.SERVICE_NOT_AVAILABLE, "a byte is missing"
    group.record(TopicPut(TopicConfig("new")))
    follower.handle(Tick(follower.wall_ms))
    assert CopyCompleted() in follower.effects
    assert follower.ask(pull()).code != Code.SERVICE_NOT_AVAILABLE


def test_events_that_were_not_applied_yet_keep_it_closed() -> None:
    """The bytes are here and projected, and the user's event among them was not handled yet."""
    group = Group(uncopied=True)
    parts, ours, theirs = group.leader.core.parts, group.leader.store, group.follower.store
    parts.recorder.record([TopicPut(TopicConfig("new"))], Cause("me"), group.leader.wall_ms)
    group.leader.perform(parts.appends.take_done())
    group.theirs.leader_end = ours.end
    theirs.append_chunk(theirs.end, ours.read_chunk(theirs.end, ours.end, 1 << 20).data)
    advanced = Dispatched(theirs.dispatch(), theirs.indexed)
    follower = group.follower
    follower.handle(Copied(theirs.end), Tick(follower.wall_ms))
    assert follower.ask(pull()).code == Code.SERVICE_NOT_AVAILABLE
    follower.handle(advanced)
    assert "new" in follower.control.topics
    assert follower.ask(pull()).code != Code.SERVICE_NOT_AVAILABLE


def test_a_replica_that_began_empty_waits_for_no_bytes_that_only_a_former_leader_had() -> None:
    group = Group(uncopied=True)
    follower = group.follower
    group.theirs.leader_end = group.leader.store.end + 1_000
    follower.handle(Tick(follower.wall_ms))
    assert follower.ask(pull()).code == Code.SERVICE_NOT_AVAILABLE
    group.theirs.leader_end = group.leader.store.end
    follower.handle(Tick(follower.wall_ms))
    assert follower.ask(pull()).code != Code.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("knows", [True, False])
def test_what_replicas_send_each_other_reaches_a_replica_that_serves_nobody(knows) -> None:
    group = Group(uncopied=True, knows_replicas=knows)
    broker = SecuredBroker(group.follower)
    fetch = FetchLog(group="broker-a", position=0, max_bytes=1)
    assert USERS_UNCOPIED not in broker.ask(REPLICA, fetch).remark
    forwarded = broker.ask(REPLICA, TOPIC)
    assert USERS_UNCOPIED in forwarded.remark
