"""Clients come, speak and go."""

import json

import pytest

from kourou.engine.effects import Append
from kourou.engine.inputs import RegistrationDone, SpaceChanged
from kourou.errors import Code
from kourou.model.subscription import MessageModel, Subscription
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.lists_body import decode_producer_table
from kourou.protocol.messages.groups import (
    GetAllProducerInfo,
    GetConsumerConnectionList,
    GetConsumerListByGroup,
    GetProducerConnectionList,
    HeartBeat,
    NotifyConsumerIdsChanged,
    UnregisterClient,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import PullMessage
from kourou.runtime.core import Disconnected, LogWarning, Reply
from kourou_rigs.engine import Engine


def beat(
    client: str = "c1",
    *groups: str,
    topic: str = "orders",
    tags: str = "*",
    version: int = 1,
    **more,
) -> bytes:
    consumers = tuple(
        ConsumerData(group, subscriptions=(Subscription(topic, tags, version=version),), **more)
        for group in groups
    )
    return encode_heartbeat(HeartbeatBody(client, consumers=consumers))


def say(engine: Engine, body: bytes, peer: int = 1) -> Reply:
    return engine.ask(HeartBeat(), body, peer=peer)


def members(engine: Engine, group: str = "g") -> list[str]:
    reply = engine.ask(GetConsumerListByGroup(consumer_group=group), peer=99)
    if reply.code:
        return []
    return json.loads(b"".join(reply.body))["consumerIdList"]


def pull(engine: Engine, topic: str = "orders", version: int = 0, peer: int = 1) -> int:
    request = PullMessage(
        consumer_group="g",
        topic=topic,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        sub_version=version,
    )
    return engine.ask(request, peer=peer).code


@pytest.mark.feature("F215", "F332", "F007")
def test_a_first_heartbeat_makes_the_group_and_its_retry_topic(engine) -> None:
    before = len(engine.events())
    assert say(engine, beat("c1", "g")).code == Code.SUCCESS
    assert engine.control.groups.get("g").retry_max_times == 16
    retry = engine.control.topics.get("%RETRY%g")
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
    assert [each.tag for each in engine.events()[before:]] == ["GroupPut", "TopicPut"]
    say(engine, beat("c1", "g"))
    assert len(engine.events()) == before + 2, "once"
    assert members(engine) == ["c1"]


def test_the_retry_topic_has_the_queues_that_the_group_wants(engine) -> None:
    engine.ask(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g","retryQueueNums":3}')
    say(engine, beat("c1", "g"))
    assert engine.control.topics.get("%RETRY%g").read_queue_nums == 3


@pytest.mark.feature("F332")
def test_a_group_that_may_not_exist_does_not_take_the_others_with_it(engine) -> None:
    say(engine, beat("c1", "known"))
    engine.core.parts.apply("autoCreateSubscriptionGroup", False)
    reply = say(engine, beat("c2", "unknown", "known"), peer=2)
    assert reply.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "unknown" in reply.remark
    assert members(engine, "known") == ["c1", "c2"]
    assert members(engine, "unknown") == []
    assert "unknown" not in engine.control.groups


def test_a_full_disk_refuses_new_groups_and_keeps_the_old_ones_going(engine) -> None:
    say(engine, beat("c1", "g"))
    engine.core.parts.appends._allocated_end = engine.store.end
    engine.handle(SpaceChanged(0, full=True))
    engine.advance(100_000)
    assert say(engine, beat("c1", "new", "g")).code == Code.DISK_FULL
    engine.advance(100_000)
    assert members(engine) == ["c1"], "its heartbeat counted"


def test_a_heartbeat_that_is_refused_makes_nothing(engine) -> None:
    before = len(engine.events())
    assert say(engine, beat("", "g")).code != Code.SUCCESS
    assert say(engine, beat("c1", "g", topic="no topic!")).code != Code.SUCCESS
    assert say(engine, beat("c1", "g", "bad group!")).code != Code.SUCCESS
    assert say(engine, b"{").code != Code.SUCCESS
    assert len(engine.events()) == before
    assert members(engine) == []


@pytest.mark.feature("F094")
def test_an_answer_waits_for_the_groups_it_made() -> None:
    engine = Engine(sync_flush=True)
    first = engine.send(HeartBeat(), beat("c1", "g"))
    assert first not in engine.replies
    engine.flush()
    assert engine.replies[first].code == Code.SUCCESS
    assert say(engine, beat("c1", "g")).code == Code.SUCCESS, "nothing was made: at once"


def test_the_group_is_written_before_the_client_is_answered(engine) -> None:
    _, received = engine.received(HeartBeat(), beat("c1", "g"))
    kinds = [
        type(effect)
        for effect in engine.core.handle(engine.now_ms, [received, RegistrationDone(1)])
    ]
    assert kinds.index(Append) < kinds.index(Reply)


def test_members_are_notified_to_rebalance_when_one_comes_goes_or_falls_silent(engine) -> None:
    def notified() -> set[int]:
        peers = {note.peer.id for note in engine.notices}
        assert all(
            note.request == NotifyConsumerIdsChanged(consumer_group="g") for note in engine.notices
        )
        engine.notices.clear()
        return peers

    say(engine, beat("c1", "g"), peer=1)
    notified()
    say(engine, beat("c2", "g"), peer=2)
    assert notified() == {1, 2}
    say(engine, beat("c2", "g"), peer=2)
    assert notified() == set(), "nothing changed"
    say(engine, beat("c3", "g"), peer=3)
    notified()
    engine.handle(Disconnected(engine.peer(3)))
    assert notified() == {1, 2}
    engine.ask(UnregisterClient(client_id="c2", consumer_group="g"), peer=2)
    assert notified() == {1}
    say(engine, beat("c4", "g"), peer=4)
    notified()
    engine.advance(60_000)
    say(engine, beat("c1", "g"), peer=1)
    engine.advance(60_000)
    assert notified() == {1}
    assert members(engine) == ["c1"]


@pytest.mark.parametrize("by", ["group", "broker"])
def test_notices_can_be_switched_off(engine, by) -> None:
    if by == "group":
        body = b'{"groupName":"g","notifyConsumerIdsChangedEnable":false}'
        engine.ask(UpdateAndCreateSubscriptionGroup(), body)
    else:
        engine.core.parts.apply("notifyConsumerIdsChangedEnable", False)
    say(engine, beat("c1", "g"), peer=1)
    say(engine, beat("c2", "g"), peer=2)
    assert engine.notices == []


def test_pulls_by_heartbeat_are_reported_what_is_missing(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.ask(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    assert pull(engine) == Code.SUBSCRIPTION_NOT_EXIST, "nobody of the group is here"
    say(engine, beat("c1", "g", version=5))
    assert pull(engine, version=5) == Code.SUCCESS
    assert pull(engine, version=6) == Code.SUBSCRIPTION_NOT_LATEST
    engine.ask(*records([draft("paid")], [("paid", 0)]))
    assert pull(engine, topic="paid") == Code.SUBSCRIPTION_NOT_EXIST
    say(engine, beat("c1", "g", topic="paid", version=7))
    assert pull(engine, topic="paid", version=7) == Code.SUCCESS
    assert pull(engine, topic="orders") == Code.SUBSCRIPTION_NOT_EXIST, "taken back"


def test_the_own_retry_topic_is_read_by_an_older_heartbeat(engine) -> None:
    """A heartbeat that RocketMQ's client skipped in a rebalance would stop retries for 30 s."""
    say(engine, beat("c1", "g", topic="%RETRY%g", version=5))
    assert pull(engine, topic="%RETRY%g", version=6) == Code.PULL_NOT_FOUND


@pytest.mark.feature("F014")
def test_a_group_that_may_not_broadcast_is_reported_so(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    body = b'{"groupName":"g","consumeBroadcastEnable":false}'
    engine.ask(UpdateAndCreateSubscriptionGroup(), body)
    say(engine, beat("c1", "g", message_model=MessageModel.BROADCASTING))
    assert pull(engine) == Code.NO_PERMISSION


def test_differing_members_are_reported_or_refused(engine) -> None:
    say(engine, beat("c1", "g", tags="A"), peer=1)
    assert say(engine, beat("c2", "g", tags="B"), peer=2).code == Code.SUCCESS
    assert any(isinstance(effect, LogWarning) for effect in engine.effects)
    engine.core.parts.apply("groupSubscriptionPolicy", "refuse")
    refused = say(engine, beat("c3", "g", tags="C"), peer=3)
    assert refused.code == Code.SUBSCRIPTION_PARSE_FAILED
    assert "c3" in refused.remark
    assert members(engine) == ["c1", "c2"]


def test_each_heartbeat_of_differing_members_says_so_until_they_agree(engine) -> None:
    assert say(engine, beat("c1", "g", tags="A"), peer=1).remark == ""
    for _ in range(2):
        late = say(engine, beat("c2", "g", tags="B"), peer=2)
        assert late.code == Code.SUCCESS
        assert "consumer group g: clients c2 and c1 differ in topics, filters" in late.remark
    assert "clients c1 and c2 differ" in say(engine, beat("c1", "g", tags="A"), peer=1).remark
    assert say(engine, beat("c2", "g", tags="A"), peer=2).remark == ""


def test_silence_is_measured_by_the_dynamic_setting(engine) -> None:
    say(engine, beat("c1", "g"))
    engine.core.parts.apply("channelExpiredTimeout", 5_000)
    engine.advance(4_999)
    assert members(engine) == ["c1"]
    engine.advance(1)
    assert members(engine) == []


def test_connections_are_listed(engine) -> None:
    body = encode_heartbeat(HeartbeatBody("p1", producer_groups=("makers",)))
    say(engine, body, peer=3)
    say(engine, beat("c1", "g", tags="A || B"), peer=4)
    made = json.loads(b"".join(engine.ask(GetProducerConnectionList(producer_group="makers")).body))
    assert made["connectionSet"][0]["clientId"] == "p1"
    assert made["connectionSet"][0]["clientAddr"] == "127.0.0.1:40003"
    reply = engine.ask(GetConsumerConnectionList(consumer_group="g"))
    used = json.loads(b"".join(reply.body))
    assert used["connectionSet"][0]["clientId"] == "c1"
    assert used["subscriptionTable"]["orders"]["subString"] == "A || B"
    offline = engine.ask(GetConsumerConnectionList(consumer_group="x"))
    assert offline.code == Code.CONSUMER_NOT_ONLINE
    assert engine.ask(GetProducerConnectionList(producer_group="x")).code == Code.SYSTEM_ERROR
    assert engine.ask(GetConsumerListByGroup(consumer_group="x")).code == Code.SYSTEM_ERROR


def test_every_producer_and_when_it_was_heard(engine) -> None:
    body = encode_heartbeat(HeartbeatBody("c1", producer_groups=("p", "q")))
    say(engine, body)
    engine.advance(500)
    say(engine, encode_heartbeat(HeartbeatBody("c2", producer_groups=("p",))), peer=2)
    engine.advance(500)
    table = decode_producer_table(b"".join(engine.ask(GetAllProducerInfo(), peer=3).body))
    heard = {
        group: {one.client_id: engine.wall_ms - one.last_update_timestamp for one in producers}
        for group, producers in table.items()
    }
    assert heard == {"p": {"c1": 1_000, "c2": 500}, "q": {"c1": 1_000}}
    assert table["q"][0].remote_ip == "127.0.0.1"
