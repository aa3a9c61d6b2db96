"""Finding stored messages: by position, by key, by unique key."""

import pytest

from kourou.errors import Code
from kourou.protocol.messages.queries import QueryMessage, ViewMessageById
from kourou.protocol.record import decode_record
from kourou.protocol.record_batch import decode_many
from kourou.testing.engine import Engine, header_of

START_MS = 1_700_000_000_000


def query(key: str, topic: str = "orders", **fields: object) -> QueryMessage:
    wanted = {"max_num": 32, "begin_timestamp": 0, "end_timestamp": 2**62, **fields}
    return QueryMessage(topic=topic, key=key, **wanted)


def bodies(reply) -> list[bytes]:
    assert reply.code == Code.SUCCESS, reply.remark
    return [message.body for part in reply.body for message in decode_many(part)]


@pytest.mark.feature("F260")
def test_a_position_gives_the_record(engine, draft, records) -> None:
    engine.ask(*records([draft(body=b"a"), draft(body=b"b")]))
    position = engine.store.queues["orders", 0][1]
    reply = engine.ask(ViewMessageById(offset=position))
    assert decode_record(bytes(reply.body[0])).body == b"b"
    for wrong in (position + 1, -1, engine.store.end, 2**62):
        assert engine.ask(ViewMessageById(offset=wrong)).code == Code.SYSTEM_ERROR


@pytest.mark.feature("F013", "F233", "F261")
def test_a_business_key_or_the_unique_key_finds_messages_newest_first(
    engine, draft, records
) -> None:
    engine.ask(
        *records(
            [
                draft(body=b"1", key="U1", keys="k other"),
                draft(body=b"2", key="U2", keys="other"),
                draft(body=b"3", key="U3", keys="k"),
            ]
        )
    )
    assert bodies(engine.ask(query("k"))) == [b"3", b"1"]
    assert bodies(engine.ask(query("U2", unique_key_query=True))) == [b"2"]
    assert engine.ask(query("nothing")).code == Code.QUERY_NOT_FOUND
    assert engine.ask(query("k", topic="paid")).code == Code.QUERY_NOT_FOUND


@pytest.mark.feature("F261", "F263")
def test_time_and_number_bound_what_is_found(engine, draft, records) -> None:
    for _ in range(5):
        engine.ask(*records([draft(keys="k")]))
        engine.advance(1_000)
    assert len(bodies(engine.ask(query("k", max_num=3)))) == 3
    middle = query("k", begin_timestamp=START_MS + 1_000, end_timestamp=START_MS + 3_000)
    reply = engine.ask(middle)
    assert len(bodies(reply)) == 3
    assert header_of(reply).index_last_update_timestamp == START_MS + 3_000
    assert engine.ask(query("k", max_num=0)).code == Code.SYSTEM_ERROR
    engine.core.desks.apply("defaultQueryMaxNum", 1)
    assert len(bodies(engine.ask(query("k", max_num=0, unique_key_query=True)))) == 1


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
    engine.core.desks.apply("defaultQueryMaxNum", 1_000)
    assert len(bodies(engine.ask(query("k", unique_key_query=True)))) == 64


@pytest.mark.feature("F094")
def test_what_is_not_confirmed_is_not_found(draft, records) -> None:
    engine = Engine(sync_flush=True)
    engine.send(*records([draft(keys="k")]))
    position = engine.store.queues["orders", 0][0]
    assert engine.ask(query("k")).code == Code.QUERY_NOT_FOUND
    assert engine.ask(ViewMessageById(offset=position)).code == Code.SYSTEM_ERROR
    engine.flush()
    engine.send(*records([draft(keys="k", body=b"not yet")]))
    assert bodies(engine.ask(query("k", max_num=1))) == [b"hello"]
    assert engine.ask(ViewMessageById(offset=position)).code == Code.SUCCESS
