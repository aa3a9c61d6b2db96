"""Where a queue begins and ends, where a group stands, and which offset a time means."""

import pytest

from kourou.errors import Code
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.offsets import (
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from kourou.protocol.messages.topics import DeleteTopicInBroker
from kourou.testing.engine import Engine, header_of

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
    unknown = commit(filled, 1, consumer_group="stranger")
    assert unknown.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
    assert commit(filled, 1, topic="nowhere").code == Code.TOPIC_NOT_EXIST
    assert filled.core.desks.commits.unrecorded_groups == 0


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
    assert filled.core.desks.commits.offset("g", "orders", 0) is None
