"""Finding stored messages: by position, by key, by unique key."""

import pytest

from kourou.errors import Code
from kourou.model.subscription import Subscription
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.status_bodies import decode_queue_look
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.pulls import QueryConsumeQueue, QueryMessage, ViewMessageById
from kourou.protocol.record.hashes import tags_code
from kourou.protocol.record.message_record import decode_record
from kourou_rigs.engine import Engine, header_of
from kourou_rigs.records import decode_many

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
    engine.core.parts.apply("defaultQueryMaxNum", 1)
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
    engine.core.parts.apply("defaultQueryMaxNum", 1_000)
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


def look(engine: Engine, index: int = 0, count: int = 10, group: str | None = None, queue: int = 0):
    request = QueryConsumeQueue(
        topic="orders", queue_id=queue, index=index, count=count, consumer_group=group
    )
    return engine.ask(request)


def test_units_of_a_queue_are_looked_at(engine, draft, records) -> None:
    sent = [draft(body=b"a", tag="paid"), draft(body=b"bb"), draft(body=b"ccc", tag="late")]
    engine.ask(*records(sent))
    reply = look(engine, 1)
    assert reply.code == Code.SUCCESS
    found = decode_queue_look(b"".join(reply.body))
    assert (found.min_index, found.max_index) == (0, 3)
    assert [unit.physic_offset for unit in found.units] == engine.store.queues["orders", 0][1:]
    assert [unit.physic_size for unit in found.units] == [len(sent[1]), len(sent[2])]
    assert [unit.tags_code for unit in found.units] == [0, tags_code("late")]
    assert all(unit.eval for unit in found.units)
    assert len(decode_queue_look(b"".join(look(engine, 0, 1).body)).units) == 1


def test_units_are_matched_against_what_a_group_wants(engine, draft, records) -> None:
    engine.ask(*records([draft(tag="paid"), draft(tag="late")]))
    away = decode_queue_look(b"".join(look(engine, group="g").body))
    assert away.filter_data == "g@orders is not online!"
    assert [unit.eval for unit in away.units] == [True, True]
    wanted = (Subscription("orders", "paid", tags=frozenset({"paid"}), version=1),)
    body = HeartbeatBody("c", consumers=(ConsumerData("g", subscriptions=wanted),))
    engine.ask(HeartBeat(), encode_heartbeat(body))
    found = decode_queue_look(b"".join(look(engine, group="g").body))
    assert [unit.eval for unit in found.units] == [True, False]
    assert found.subscription is not None
    assert found.subscription.expression == "paid"


def test_looking_past_the_end_or_at_no_queue(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    reply = look(engine, 7)
    assert reply.remark == "Index 7 of 0@orders is not exist!"
    assert decode_queue_look(b"".join(reply.body)).units == ()
    assert look(engine, queue=3).code == Code.SYSTEM_ERROR
