"""A follower copies, and what its leader decided takes effect here."""

from __future__ import annotations

import pytest

from kourou.access.model import RoleGrant, User, UserRole
from kourou.engine.admin.access_gate import USERS_UNCOPIED
from kourou.engine.effects import (
    Announce,
    Append,
    ConfigChanged,
    CopyCompleted,
    DeleteLogBefore,
)
from kourou.engine.inputs import DiskMeasured, LeaderConnected, NotCopied
from kourou.engine.roles.follower import REFUSED
from kourou.errors import Code
from kourou.events.control_events import (
    Cause,
    LogDeleted,
    ProgressRecorded,
    TopicPut,
    UnknownEvent,
    UserPut,
)
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.pulls import (
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from kourou.protocol.messages.replication import GetReplicas
from kourou.protocol.messages.sends import (
    EndTransaction,
    SendMessage,
    SendRecords,
    SendReplyMessage,
)
from kourou.replication.epochs import TruncateLog
from kourou.runtime import LogWarning, Tick
from kourou_rigs.engine import Engine, pull
from kourou_rigs.pair import Pair

TOPIC = UpdateAndCreateTopic(
    topic="t", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6
)


@pytest.fixture
def pair() -> Pair:
    found = Pair()
    found.connect()
    found.settle()
    return found


def record(pair: Pair, *events) -> None:
    parts = pair.leader.core.parts
    parts.recorder.record(events, Cause("me"), pair.leader.wall_ms)
    pair.leader.perform(parts.appends.take_done())
    pair.take()
    pair.settle()


@pytest.mark.feature("F131", "F134")
def test_a_follower_serves_the_very_bytes_and_its_own_queues(pair, draft, records) -> None:
    request, body = records([draft(body=b"one"), draft(body=b"two")])
    pair.leader.send(request, body)
    pair.take()
    pair.settle()
    assert pair.follower.store.records == pair.leader.store.records
    assert pair.follower.store.queues == pair.leader.store.queues
    pair.leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    pair.take()
    pair.settle()
    assert pair.follower.control == pair.leader.control
    reply = pair.follower.ask(pull())
    assert reply.code == Code.SUCCESS
    assert b"".join(reply.body) == b"".join(pair.leader.ask(pull()).body)


def test_readers_of_a_follower_see_no_more_than_its_leader_lets_them(draft, records) -> None:
    pair = Pair(sync=True, ack_on_flush=True)
    pair.connect()
    pair.settle()
    request, body = records([draft()])
    pair.leader.send(request, body)
    pair.take()
    pair.settle()
    end = pair.leader.store.end
    pair.leader.send(request, body)
    pair.take()
    pair.deliver()
    follower = pair.follower
    assert follower.store.end > end, "the bytes are here"
    assert follower.core.parts.confirmations.confirmed == end, "and wait for both disks"
    pair.flush_follower()
    pair.deliver()
    assert follower.core.parts.confirmations.confirmed == follower.store.end


def test_a_held_pull_is_woken_by_what_is_copied(pair, draft, records) -> None:
    request, body = records([draft()])
    pair.leader.send(request, body)
    pair.leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    pair.take()
    pair.settle()
    name = pair.follower.send(pull(1, wait_ms=9_000))
    assert name not in pair.follower.replies
    pair.leader.send(request, body)
    pair.take()
    pair.settle()
    assert pair.follower.replies[name].code == Code.SUCCESS


@pytest.mark.feature("F134")
@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_what_changes_the_log_is_refused_with_the_leaders_address(pair, kind) -> None:
    follower = pair.follower
    handler = follower.core._handlers[kind]
    assert handler == follower.core.role._refuse
    reply = follower.ask(TOPIC)
    assert reply.code == Code.SERVICE_NOT_AVAILABLE
    assert "a follower of broker-a at 10.0.0.1:10911" in reply.remark


def test_every_request_that_publishes_is_among_them() -> None:
    publishing = {SendMessage, SendRecords, SendReplyMessage, EndTransaction}
    assert publishing <= set(REFUSED)


def test_a_follower_writes_nothing_whatever_the_clock_says(pair) -> None:
    follower = pair.follower
    end = follower.store.end
    follower.send(UpdateConsumerOffset(consumer_group="g", topic="orders", queue_id=0,
                                       commit_offset=5))  # fmt: skip
    for _ in range(50):
        follower.now_ms += 60_000
        follower.handle(Tick(follower.wall_ms + follower.now_ms))
    follower.handle(DiskMeasured(100, 1, 0, 4, full=True))
    assert follower.core.stop(0) == []
    assert not [one for one in follower.effects if isinstance(one, Append)]
    assert follower.store.end == end


def test_what_was_decided_at_the_leader_takes_effect_here(pair) -> None:
    pair.follower.effects = seen = []
    take, pair.take = pair.take, lambda: (seen.extend(pair.follower.effects), take())
    record(pair, TopicPut(TopicConfig("new")), LogDeleted(0, 0, "expired"))
    assert "new" in pair.follower.control.topics
    assert ConfigChanged("topics") in seen
    assert DeleteLogBefore(0) in seen


def test_users_that_a_follower_cannot_read_close_it_and_it_goes_on_copying(pair) -> None:
    """Its leader is newer; it must not serve, nor lead, by a table that lacks something."""
    unread = UnknownEvent("UserSuspended", "user/till", b'{"type":"UserSuspended"}')
    pair.follower.effects = seen = []
    take, pair.take = pair.take, lambda: (seen.extend(pair.follower.effects), take())
    record(pair, unread, TopicPut(TopicConfig("new")))
    told = [str(one) for one in seen if isinstance(one, LogWarning)]
    assert len(told) == 1, "once"
    assert "(UserSuspended of user/till) is about users, and cannot be read" in told[0]
    assert Announce() in seen
    assert pair.follower.ask(pull()).code == Code.NO_PERMISSION
    assert "new" in pair.follower.control.topics, "what follows is copied and applied"


def test_commits_at_a_follower_count_until_the_leader_speaks_of_that_queue(pair) -> None:
    record(pair, TopicPut(TopicConfig("orders")))
    pair.leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    pair.take()
    pair.settle()

    def committed() -> int:
        asked = QueryConsumerOffset(consumer_group="g", topic="orders", queue_id=0)
        return pair.follower.ask(asked).header.offset

    commit = UpdateConsumerOffset(consumer_group="g", topic="orders", queue_id=0, commit_offset=5)
    pair.follower.ask(commit)
    assert committed() == 5
    record(pair, ProgressRecorded("g", {"orders": {1: 7}}))
    assert committed() == 5
    record(pair, ProgressRecorded("g", {"orders": {0: 9}}))
    assert committed() == 9


def test_bytes_that_could_not_be_stored_are_asked_for_again(pair, draft, records) -> None:
    follower = pair.follower
    end = follower.store.end
    copying = follower.core.role.copying
    copying._epochs.extend(end + 500)
    follower.handle(NotCopied(end, "the disk is full"))
    assert copying.taken == end
    said = "replication-write-failed: data from the leader was not stored: the disk is full"
    assert said in map(str, follower.effects)
    request, body = records([draft()])
    pair.leader.send(request, body)
    pair.take()
    pair.settle()
    assert follower.store.end == pair.leader.store.end


@pytest.mark.feature("F137")
def test_a_follower_starts_as_a_leader_from_its_store(pair, draft, records) -> None:
    """A change of role is a start on the same store; nothing of what it copied is missing."""
    request, body = records([draft()])
    pair.leader.send(request, body)
    pair.take()
    pair.settle()
    old = pair.follower.control.replicas.epoch
    promoted = Engine(left=pair.follower.store, leads=True)
    assert promoted.control.topics == pair.leader.control.topics
    assert promoted.control.replicas.epoch > old
    assert promoted.ask(request, body).code == Code.SUCCESS


def test_what_the_leader_never_had_is_to_be_cut(pair, draft, records) -> None:
    request, body = records([draft()])
    pair.flush()
    end = pair.leader.store.end
    pair.leader.send(request, body)
    pair.take()
    pair.deliver()
    assert pair.follower.store.end > end
    pair.crash_leader(power=True)
    cuts = []
    cut, pair.cut_follower = pair.cut_follower, lambda at: (cuts.append(at), cut(at))
    pair.connect()
    pair.settle()
    assert cuts == [end]
    assert TruncateLog(end, 0)
    pair.connect()
    pair.settle()
    assert pair.follower.store.records == pair.leader.store.records


@pytest.mark.feature("F135")
def test_a_group_that_is_new_reads_from_a_follower_and_is_made_by_none(
    pair, draft, records
) -> None:
    """The leader may be gone for good, and somebody must be able to read what is left."""
    request, body = records([draft(body=b"one")])
    pair.leader.send(request, body)
    pair.take()
    pair.settle()
    before = pair.follower.store.end
    reply = pair.follower.ask(pull(group="never-seen"))
    assert reply.code == Code.SUCCESS
    assert pair.follower.store.end == before
    assert "never-seen" not in pair.follower.core.parts.control.groups


def test_writes_are_refused_with_the_address_that_came_with_the_connection(pair) -> None:
    pair.disconnect()
    pair.follower.handle(LeaderConnected(pair.peer, "10.0.0.9:10911"))
    reply = pair.follower.ask(TOPIC)
    assert reply.code == Code.SERVICE_NOT_AVAILABLE
    assert "10.0.0.9:10911" in reply.remark


def test_why_bytes_are_not_stored_is_reported_once(pair) -> None:
    following = pair.follower.core.role
    told = [
        str(effect)
        for reason in ("no space", "no space", "a bad disk")
        for effect in following.handle(1_000, NotCopied(pair.follower.store.end, reason))
    ]
    assert [text.rpartition(": ")[2] for text in told] == ["no space", "a bad disk"]


# -- before it knows who may do what ---------------------------------------------------------------


def beginning_empty() -> Pair:
    """A follower with an empty log, and a leader whose first user comes after many messages."""
    pair = Pair(uncopied=True)
    for _ in range(3):
        pair.leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    return pair


def step(pair: Pair) -> None:
    """One message arrives, disks flush, and time passes."""
    pair.deliver(1)
    pair.flush()
    pair.advance(100)


def test_a_follower_that_began_empty_serves_nobody_until_it_has_its_leaders_users() -> None:
    pair = beginning_empty()
    parts = pair.leader.core.parts
    admin = User(name="ann", roles=(RoleGrant(UserRole.ADMINISTRATOR),))
    parts.recorder.record([UserPut(admin)], Cause("me"), pair.leader.wall_ms)
    pair.leader.perform(parts.appends.take_done())
    follower = pair.follower

    def reply() -> tuple[int, bool]:
        answer = follower.ask(GetReplicas())
        return answer.code, USERS_UNCOPIED in (answer.remark or "")

    assert reply() == (Code.SERVICE_NOT_AVAILABLE, True)
    follower.advance(60_000)
    assert reply() == (Code.SERVICE_NOT_AVAILABLE, True), "time opens nothing"
    pair.connect()
    while "ann" not in follower.control.access.users:
        assert reply() == (Code.SERVICE_NOT_AVAILABLE, True)
        assert follower.control.access.open_because == ""
        step(pair)
    pair.settle()
    assert reply() == (Code.NO_PERMISSION, False)


def test_a_follower_of_an_open_leader_serves_once_its_copy_is_complete() -> None:
    pair = beginning_empty()
    seen: list[CopyCompleted] = []
    take = pair.take

    def taken() -> None:
        seen.extend(one for one in pair.follower.effects if isinstance(one, CopyCompleted))
        take()

    pair.take = taken  # type: ignore[method-assign]
    pair.connect()
    while pair.follower.control.access.uncopied:
        assert pair.follower.ask(GetReplicas()).code == Code.SERVICE_NOT_AVAILABLE
        assert not seen
        step(pair)
    assert pair.follower.store.end == pair.leader.store.end
    assert pair.follower.ask(GetReplicas()).code == Code.SUCCESS
    pair.settle()
    assert len(seen) == 1, "the store is told once"


def test_a_follower_that_had_everything_serves_without_its_leader() -> None:
    pair = beginning_empty()
    pair.connect()
    pair.settle()
    pair.uncopied = False  # its store was told
    pair.crash_follower()
    assert pair.follower.ask(GetReplicas()).code == Code.SUCCESS


def test_a_broker_that_leads_serves_whatever_its_store_says() -> None:
    engine = Engine(uncopied=True)
    assert engine.ask(GetReplicas()).code == Code.SUCCESS
