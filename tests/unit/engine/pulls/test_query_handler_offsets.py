"""Where a queue begins and ends, where a group stands, and which offset a time means."""

import pytest

from kourou.engine.inputs import SpaceChanged
from kourou.errors import Code
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.pulls import (
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from kourou_rigs.engine import Engine, header_of

START_MS = 1_700_000_000_000


@pytest.fixture
def filled(engine, draft, records) -> Engine:
    for _ in range(5):
        engine.ask(*records([draft()]))
        engine.advance(1_000)
    engine.ask(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    return engine


def commit(engine: Engine, offset: int, **fields: object):
    request = {"consumer_group": "g", "topic": "orders", "queue_id": 0, **fields}
    return engine.ask(UpdateConsumerOffset(commit_offset=offset, **request))


def asked(engine: Engine, queue_id: int = 0, topic: str = "orders"):
    return engine.ask(QueryConsumerOffset(consumer_group="g", topic=topic, queue_id=queue_id))


def test_bounds_and_times_of_a_queue(filled) -> None:
    where = {"topic": "orders", "queue_id": 0}
    assert header_of(filled.ask(GetMaxOffset(**where))).offset == 5
    assert header_of(filled.ask(GetMinOffset(**where))).offset == 0
    assert header_of(filled.ask(GetEarliestMsgStoreTime(**where))).timestamp == START_MS


@pytest.mark.feature("F267")
@pytest.mark.parametrize(
    ("after_ms", "offset"), [(-1, 0), (0, 0), (1, 1), (1_000, 1), (3_999, 4), (4_001, 5)]
)
def test_a_time_means_the_first_message_stored_then_or_later(filled, after_ms, offset) -> None:
    request = SearchOffsetByTimestamp(topic="orders", queue_id=0, timestamp=START_MS + after_ms)
    assert header_of(filled.ask(request)).offset == offset


def test_a_queue_never_written_is_empty(filled) -> None:
    for topic, queue_id in (("orders", 1), ("nowhere", 0)):
        where = {"topic": topic, "queue_id": queue_id}
        assert header_of(filled.ask(GetMaxOffset(**where))).offset == 0
        assert header_of(filled.ask(GetMinOffset(**where))).offset == 0
        assert header_of(filled.ask(GetEarliestMsgStoreTime(**where))).timestamp == -1
        search = SearchOffsetByTimestamp(timestamp=START_MS, **where)
        assert header_of(filled.ask(search)).offset == 0


def test_a_negative_queue_is_refused(filled) -> None:
    for request in (
        GetMaxOffset(topic="orders", queue_id=-1),
        GetMinOffset(topic="orders", queue_id=-1),
        SearchOffsetByTimestamp(topic="orders", queue_id=-1, timestamp=0),
        GetEarliestMsgStoreTime(topic="orders", queue_id=-1),
    ):
        assert filled.ask(request).code == Code.SYSTEM_ERROR
    assert commit(filled, 1, queue_id=-1).code == Code.SYSTEM_ERROR


@pytest.mark.feature("F191", "F195")
def test_a_commit_is_in_force_at_once_and_may_go_back(filled) -> None:
    for offset in (3, 5, 2):
        assert commit(filled, offset).code == Code.SUCCESS
        assert header_of(asked(filled)).offset == offset
    assert commit(filled, -1).code == Code.SYSTEM_ERROR
    assert header_of(asked(filled)).offset == 2


def test_nobody_commits_for_what_does_not_exist(filled) -> None:
    filled.core.parts.apply("autoCreateSubscriptionGroup", False)
    for group, topic, code in (
        ("stranger", "orders", Code.SUBSCRIPTION_GROUP_NOT_EXIST),
        ("g", "nowhere", Code.TOPIC_NOT_EXIST),
        ("stranger", "nowhere", Code.TOPIC_NOT_EXIST),
    ):
        assert commit(filled, 1, consumer_group=group, topic=topic).code == code
    assert "stranger" not in filled.control.groups
    assert filled.core.parts.commits.unrecorded_groups == 0


@pytest.mark.feature("F332")
def test_a_commit_makes_its_group_as_a_heartbeat_does(filled) -> None:
    assert commit(filled, 1, consumer_group="new", topic="nowhere").code == Code.TOPIC_NOT_EXIST
    assert "new" not in filled.control.groups
    assert commit(filled, 3, consumer_group="new").code == Code.SUCCESS
    assert "new" in filled.control.groups
    assert "%RETRY%new" in filled.control.topics
    assert filled.core.parts.commits.offset("new", "orders", 0) == 3
    assert [event.tag for event in filled.events()[-2:]] == ["GroupPut", "TopicPut"]
    before = len(filled.events())
    assert commit(filled, 4, consumer_group="new").code == Code.SUCCESS
    assert len(filled.events()) == before, "once"


@pytest.mark.fault
def test_a_full_disk_makes_no_group_for_a_commit(filled) -> None:
    filled.core.parts.appends._allocated_end = filled.store.end
    filled.handle(SpaceChanged(0, full=True))
    reply = commit(filled, 3, consumer_group="new")
    assert reply.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "the disk is full" in reply.remark
    assert filled.core.parts.commits.offset("new", "orders", 0) is None
    assert commit(filled, 3).code == Code.SUCCESS, "who is known needs no room"


@pytest.mark.feature("F193", "F194")
def test_a_group_without_progress_in_an_old_queue_decides_for_itself(filled) -> None:
    assert header_of(asked(filled)).offset == 0, "young: from its start"
    assert header_of(asked(filled, queue_id=1)).offset == 0, "never written: young"
    filled.store.recent = False
    assert asked(filled).code == Code.QUERY_NOT_FOUND
    filled.store.recent = True
    del filled.store.queues["orders", 0][:2]
    filled.store.firsts["orders", 0] = 2
    assert asked(filled).code == Code.QUERY_NOT_FOUND, "it no longer begins at 0"
    commit(filled, 4)
    assert header_of(asked(filled)).offset == 4


def test_a_deleted_topic_takes_its_progress_along(filled) -> None:
    commit(filled, 3)
    filled.ask(DeleteTopicInBroker(topic="orders"))
    assert filled.core.parts.commits.offset("g", "orders", 0) is None
