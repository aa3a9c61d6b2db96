"""Messages sent one by one and waiting for one turn are stored as one, and nobody can tell."""

from __future__ import annotations

import random

import pytest

from kourou.engine.inputs import SpaceChanged
from kourou.engine.sends import single_sends as batched_single_sends
from kourou.errors import Code
from kourou.protocol.messages.pulls import GetMaxOffset
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.record.layout import encode_batch
from kourou_rigs.engine import Engine, header_of, one_by_one, together

Made = tuple[SendMessage, bytes]


def message(body: bytes, topic: str = "orders", queue_id: int = 0, **fields: object) -> Made:
    given = {
        "producer_group": "p",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "born_timestamp": 1,
        "properties": "KEYS\x01k\x02WAIT\x01true\x02",
        **fields,
    }
    return SendMessage(**given), body  # type: ignore[arg-type]  # a test's shorthand


def made_of(count: int) -> list[Made]:
    return [message(b"%d" % number, queue_id=number % 4) for number in range(count)]


def test_sends_of_a_turn_become_one_append_and_each_learns_its_own_place() -> None:
    joint, alone = Engine(), Engine()
    for engine in (joint, alone):
        engine.send(*message(b"first"))  # the topic is there
    before = len(joint.appends())
    answers = together(joint, made_of(40))
    assert len(joint.appends()) == before + 1
    assert answers == one_by_one(alone, made_of(40))
    assert joint.store.records == alone.store.records
    assert {code for code, _, _ in answers} == {Code.SUCCESS}
    assert joint.core.parts.traffic.messages_in == alone.core.parts.traffic.messages_in


def test_the_first_of_a_topic_creates_it_for_the_others() -> None:
    joint, alone = Engine(), Engine()
    assert together(joint, made_of(12)) == one_by_one(alone, made_of(12))
    assert joint.store.records.keys() == alone.store.records.keys()
    assert joint.control.topics.get("orders") == alone.control.topics.get("orders")


@pytest.mark.parametrize("seed", range(25))
def test_nobody_can_tell_whether_it_was_alone(seed: int) -> None:
    """Refused ones, batches, delayed ones and others between: places, bytes and answers are the
    same."""
    chance = random.Random(seed)
    made: list[Made] = []
    for number in range(chance.randrange(2, 60)):
        body = chance.randbytes(chance.randrange(300))
        topic, queue_id = chance.choice(["orders", "bills"]), chance.randrange(4)
        match chance.randrange(12):
            case 0:
                made.append(message(body, "not a topic"))
            case 1:
                made.append(message(body, topic, 99))
            case 2:
                made.append(message(body, topic, queue_id, batch=True))
            case 3:
                properties = f"DELAY\x01{chance.choice([0, 1, 3])}\x02"
                made.append(message(body, topic, queue_id, properties=properties))
            case 4:
                made.append(message(body, topic, -1))
            case 5:
                made.append(message(body, topic, queue_id, properties=f"KEYS\x01{number}\x02"))
            case 6 | 7:
                items = [
                    (chance.randrange(9), chance.randbytes(chance.randrange(60)), b"UNIQ_KEY\x01u")
                    for _ in range(chance.choice([0, 1, 2, 20]))
                ]
                made.append(message(encode_batch(items), topic, queue_id, batch=True))
            case _:
                made.append(message(body, topic, queue_id))
    options = {"segment_size": chance.choice([1 << 20, 1 << 12])}
    joint, alone = Engine(**options), Engine(**options)  # type: ignore[arg-type]  # see above
    for engine in (joint, alone):
        engine.send(*message(b"first", "orders"))
        engine.send(*message(b"first", "bills"))
    assert together(joint, made) == one_by_one(alone, made)
    assert joint.store.records == alone.store.records
    assert joint.core.parts.traffic.messages_in == alone.core.parts.traffic.messages_in
    assert joint.core.parts.traffic.refused == alone.core.parts.traffic.refused


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_batches_of_a_turn_become_one_append(count: int) -> None:
    joint, alone = Engine(), Engine()
    for engine in (joint, alone):
        engine.send(*message(b"first"))
    before = len(joint.appends())
    made = [
        message(
            encode_batch([(0, b"%d %d" % (n, m), b"") for m in range(5)]),
            queue_id=n % 4,
            batch=True,
        )
        for n in range(count)
    ] + [message(b"single")]
    answers = together(joint, made)
    assert answers == one_by_one(alone, made)
    places = [(header.queue_id, header.queue_offset) for _, _, header in answers[:-1]]
    assert places == [(n % 4, n // 4 * 5 + (n % 4 == 0)) for n in range(count)]
    assert len(joint.appends()) == before + 1
    assert joint.store.records == alone.store.records
    assert joint.core.parts.traffic.messages_in["orders"] == 5 * count + 2


@pytest.mark.parametrize(("messages", "size_bytes"), [(10, 1 << 20), (1 << 16, 4_000)])
def test_a_group_has_bounds(monkeypatch, messages: int, size_bytes: int) -> None:
    monkeypatch.setattr(batched_single_sends, "BATCH_MESSAGES_MAX", messages)
    monkeypatch.setattr(batched_single_sends, "FRAME_RECORD_BYTES_MAX", size_bytes)
    joint, alone = Engine(), Engine()
    for engine in (joint, alone):
        engine.send(*message(b"first"))
    before = len(joint.appends())
    items = encode_batch([(0, bytes(300), b"")] * 8)
    made = [message(items, batch=True)] * 4
    assert together(joint, made) == one_by_one(alone, made)
    assert len(joint.appends()) == before + 4


def test_what_stands_between_stays_between() -> None:
    engine = Engine()
    engine.send(*message(b"first"))
    turn = [engine.received(*message(b"x")) for _ in range(10)]
    turn.insert(5, engine.received(GetMaxOffset(topic="orders", queue_id=0)))
    engine.handle(*(received for _, received in turn))
    offsets = [engine.replies[name].header.queue_offset for name, _ in turn[:5] + turn[6:]]
    assert offsets == list(range(1, 11))


def test_when_the_log_is_full_each_is_reported_so() -> None:
    engine = Engine()
    engine.send(*message(b"first"))
    engine.core.parts.appends._allocated_end = engine.store.end  # white box: no further space
    engine.handle(SpaceChanged(engine.store.end, full=True))
    answers = together(engine, made_of(10))
    assert [code for code, _, _ in answers] == [Code.SERVICE_NOT_AVAILABLE] * 10


def test_with_sync_flush_all_wait_for_the_same_flush() -> None:
    engine = Engine(sync_flush=True)
    name = engine.send(*message(b"first"))
    engine.flush()
    assert header_of(engine.replies[name]).queue_offset == 0
    before = engine.flushes_wanted
    turn = [engine.received(*one) for one in made_of(20)]
    engine.handle(*(received for _, received in turn))
    assert all(name not in engine.replies for name, _ in turn)
    assert engine.flushes_wanted == before + 1
    engine.flush()
    assert all(engine.replies[name].code == Code.SUCCESS for name, _ in turn)
