"""Consumer groups and their progress, as operators ask about and change them."""

import json

import pytest

from kourou.engine.effects import Append
from kourou.errors import Code
from kourou.model.subscription import Subscription
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.statistics_bodies import decode_offset_table
from kourou.protocol.messages.groups import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroupConfig,
    HeartBeat,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import (
    CloneGroupOffset,
    GetAllConsumerOffset,
    InvokeBrokerToResetOffset,
    QueryConsumerOffset,
    ResetConsumerClientOffset,
    UpdateConsumerOffset,
)
from kourou.protocol.wire.lenient_json import loads
from kourou.runtime.core import Notify
from kourou_rigs.engine import Engine, header_of


def make(engine: Engine, name: str = "g") -> None:
    engine.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"%s"}' % name.encode())
    engine.flush()


def commit(engine: Engine, offset: int, queue_id: int = 0, group: str = "g") -> None:
    reply = engine.ask(
        UpdateConsumerOffset(
            consumer_group=group, topic="orders", queue_id=queue_id, commit_offset=offset
        )
    )
    assert reply.code == Code.SUCCESS


def offset(engine: Engine, queue_id: int = 0, group: str = "g") -> int:
    request = QueryConsumerOffset(consumer_group=group, topic="orders", queue_id=queue_id)
    return header_of(engine.ask(request)).offset


def reset(timestamp: int, *, force: bool = True, group: str = "g", topic: str = "orders"):
    return InvokeBrokerToResetOffset(topic=topic, group=group, timestamp=timestamp, is_force=force)


@pytest.fixture
def filled(engine, draft, records) -> Engine:
    """Queue 0 has a message every second, 10 in all; queue 1 has one of the last second."""
    for _ in range(10):
        engine.send(*records([draft()]))
        engine.advance(1_000)
    engine.send(*records([draft(queue_id=1)], [("orders", 1)]))
    engine.flush()
    make(engine)
    return engine


START_MS = 1_700_000_000_000


@pytest.mark.feature("F267", "F268")
def test_a_reset_moves_a_live_group_on_both_sides(filled) -> None:
    subscription = Subscription("orders")
    for peer, client in ((5, "c1"), (6, "c2")):
        body = encode_heartbeat(
            HeartbeatBody(client, consumers=(ConsumerData("g", subscriptions=(subscription,)),))
        )
        filled.ask(HeartBeat(), body, peer=peer)
    filled.notices.clear()
    commit(filled, 9)
    reply = filled.ask(reset(START_MS + 3_500))
    told = decode_offset_table(b"".join(reply.body))
    assert {queue.queue_id: where for queue, where in told.items()} == {0: 4, 1: 0, 2: 0, 3: 0}
    assert [offset(filled, queue) for queue in (0, 1)] == [4, 0]
    assert {note.peer.id for note in filled.notices} == {5, 6}
    for note in filled.notices:
        assert isinstance(note.request, ResetConsumerClientOffset)
        assert (note.request.topic, note.request.group) == ("orders", "g")
        assert decode_offset_table(b"".join(note.body)) == told
    assert filled.events()[-1].tag == "OffsetsReset"


def test_each_member_gets_offsets_in_the_form_of_its_own_language(filled) -> None:
    for peer, client in ((5, "c1"), (6, "c2")):
        body = encode_heartbeat(HeartbeatBody(client, consumers=(ConsumerData("g"),)))
        filled.ask(HeartBeat(), body, peer=peer)
    members = {one.client_id: one for one in filled.core.parts.membership.consumers("g")}
    members["c2"].language = "CPP"
    filled.notices.clear()
    filled.ask(reset(START_MS))
    bodies = {note.peer.id: b"".join(note.body) for note in filled.notices}
    assert isinstance(loads(bodies[5])["offsetTable"], dict)
    assert isinstance(loads(bodies[6])["offsetTable"], list)
    assert decode_offset_table(bodies[5]) == decode_offset_table(bodies[6])


def test_members_are_notified_only_after_the_reset_is_in_the_log(filled) -> None:
    body = encode_heartbeat(HeartbeatBody("c1", consumers=(ConsumerData("g"),)))
    filled.ask(HeartBeat(), body, peer=5)
    commit(filled, 9)
    _, received = filled.received(reset(START_MS))
    kinds = [type(effect) for effect in filled.core.handle(filled.now_ms, [received])]
    assert kinds.index(Append) < kinds.index(Notify)


@pytest.mark.feature("F267")
@pytest.mark.parametrize(
    ("force", "timestamp", "expected"),
    [
        (True, START_MS + 8_000, 8),
        (False, START_MS + 8_000, 5),  # never forward without force
        (False, START_MS + 2_000, 2),
        (True, START_MS + 10**9, 10),
        (True, -1, 10),
        (False, -1, 5),
        (True, 0, 0),
    ],
)
def test_where_a_reset_leads(filled, force, timestamp, expected) -> None:
    commit(filled, 5)
    assert filled.ask(reset(timestamp, force=force)).code == Code.SUCCESS
    assert offset(filled) == expected


def test_a_reset_beats_commits_that_are_not_recorded_yet(filled) -> None:
    commit(filled, 9)
    filled.ask(reset(START_MS))
    filled.advance(1)
    filled.advance(5_000)
    assert filled.control.progress.offset("g", "orders", 0) == 0
    assert offset(filled) == 0


def test_a_reset_of_what_does_not_exist_says_so(filled) -> None:
    assert filled.ask(reset(0, group="x")).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
    assert filled.ask(reset(0, topic="x")).code == Code.TOPIC_NOT_EXIST


def test_groups_are_listed_changed_and_deleted(engine) -> None:
    make(engine)
    body = b"".join(engine.ask(GetAllSubscriptionGroupConfig()).body)
    table = json.loads(body)["subscriptionGroupTable"]
    assert table["g"]["retryMaxTimes"] == 16
    changed = b'{"groupName":"g","retryMaxTimes":3}'
    engine.ask(UpdateAndCreateSubscriptionGroup(), changed)
    assert engine.control.groups.get("g").retry_max_times == 3
    events = len(engine.events())
    engine.ask(UpdateAndCreateSubscriptionGroup(), changed)
    assert len(engine.events()) == events, "the same again changes nothing"
    engine.ask(DeleteSubscriptionGroup(group_name="g"))
    assert "g" not in engine.control.groups
    for bad in (b"{", b'{"groupName":"no group!"}', b'{"groupName":"G","retryQueueNums":-1}'):
        assert engine.ask(UpdateAndCreateSubscriptionGroup(), bad).code != Code.SUCCESS


def test_progress_outlives_its_group_unless_requested_otherwise(filled) -> None:
    commit(filled, 5)
    filled.ask(DeleteSubscriptionGroup(group_name="g", remove_offset=False))
    make(filled)
    assert offset(filled) == 5
    filled.ask(DeleteSubscriptionGroup(group_name="g", remove_offset=True))
    make(filled)
    assert offset(filled) == 0
    assert filled.core.parts.commits.offset("g", "orders", 0) is None


@pytest.mark.feature("F191")
def test_all_offsets_are_reported_recorded_or_not(filled) -> None:
    commit(filled, 5)
    body = b"".join(filled.ask(GetAllConsumerOffset()).body)
    assert loads(body)["offsetTable"]["orders@g"] == {"0": 5}


def test_one_group_begins_where_another_stands(filled) -> None:
    commit(filled, 7)
    clone = CloneGroupOffset(src_group="g", dest_group="h", topic="orders")
    assert filled.ask(clone).code == Code.SUCCESS  # h is made: its members need not come first
    assert offset(filled, group="h") == 7
    bad = CloneGroupOffset(src_group="x", dest_group="h", topic="orders")
    assert filled.ask(bad).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_group_that_may_not_be_made_gets_no_clone(filled) -> None:
    commit(filled, 7)
    filled.core.parts.policy.change(auto_create_group=False)
    bad = CloneGroupOffset(src_group="g", dest_group="x", topic="orders")
    assert filled.ask(bad).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
