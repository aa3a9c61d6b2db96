"""Stored messages are found, and progress of groups; the rest is in the transcripts."""

import pytest

from kourou.errors import Code
from kourou.protocol.messages.pulls import QueryConsumerOffset, QueryMessage, UpdateConsumerOffset
from kourou_rigs.engine import header_of
from kourou_rigs.records import decode_many


def query(key: str, topic: str = "orders", **fields: object) -> QueryMessage:
    wanted = {"max_num": 32, "begin_timestamp": 0, "end_timestamp": 2**62, **fields}
    return QueryMessage(topic=topic, key=key, **wanted)


def bodies(reply) -> list[bytes]:
    assert reply.code == Code.SUCCESS, reply.remark
    return [message.body for part in reply.body for message in decode_many(part)]


@pytest.mark.feature("F262")
def test_what_only_has_the_same_hash_does_not_count(engine, draft, records) -> None:
    """ "Aa" and "BB" have one hash: so have Aa#k and BB#k."""
    engine.ask(*records([draft("Aa", keys="k", body=b"Aa")], [("Aa", 0)]))
    engine.ask(*records([draft("BB", keys="k") for _ in range(32)], [("BB", 0)]))
    assert bodies(engine.ask(query("k", topic="Aa"))) == [b"Aa"]
    assert len(bodies(engine.ask(query("k", topic="BB")))) == 32


def test_an_answer_has_no_more_messages_than_rocketmq_gives(engine, draft, records) -> None:
    engine.ask(*records([draft(keys="k") for _ in range(65)]))
    assert len(bodies(engine.ask(query("k", max_num=1_000)))) == 64
    engine.core.parts.apply("defaultQueryMaxNum", 1_000)
    assert len(bodies(engine.ask(query("k", unique_key_query=True)))) == 64


@pytest.mark.feature("F193", "F194")
def test_a_group_without_progress_in_an_old_queue_decides_for_itself(
    engine, draft, records
) -> None:
    engine.ask(*records([draft() for _ in range(5)]))
    where = {"consumer_group": "g", "topic": "orders", "queue_id": 0}
    assert header_of(engine.ask(QueryConsumerOffset(**where))).offset == 0, "young: from its start"
    del engine.store.queues["orders", 0][:2]
    engine.store.firsts["orders", 0] = 2
    assert engine.ask(QueryConsumerOffset(**where)).code == Code.QUERY_NOT_FOUND
    assert engine.ask(UpdateConsumerOffset(commit_offset=4, **where)).code == Code.SUCCESS
    assert header_of(engine.ask(QueryConsumerOffset(**where))).offset == 4
