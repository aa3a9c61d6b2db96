"""Sends that carry fields instead of records."""

import pytest

from kourou.engine.sends.recorder import Cause
from kourou.errors import Code
from kourou.events.control_events import TopicPut
from kourou.model.message import SysFlag
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.record.layout import encode_batch
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.record.message_record import check_record, decode_record
from kourou_rigs.engine import Engine, header_of


def bodies(engine: Engine, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in engine.stored(topic, queue_id)]


def message(**fields: object) -> SendMessage:
    return SendMessage(
        **{
            "producer_group": "p",
            "topic": "orders",
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "born_timestamp": 1,
            **fields,
        }
    )


@pytest.mark.feature("F175")
def test_an_encoded_batch_is_stored_message_by_message(engine) -> None:
    body = encode_batch([(7, b"a", b"UNIQ_KEY\x01U1"), (0, b"b", b"UNIQ_KEY\x01U2\x02")])
    header = header_of(engine.ask(message(batch=True, properties="WAIT\x01true"), body))
    assert len(header.msg_id.split(",")) == 2
    assert bodies(engine, "orders", 0) == [b"a", b"b"]
    found = [decode_record(engine.store.records[at]) for at in engine.store.queues["orders", 0]]
    assert [each.message_id for each in found] == ["U1", "U2"]
    assert [each.flag for each in found] == [7, 0]


def test_a_batch_of_too_many_is_refused_as_a_whole(engine, monkeypatch) -> None:
    monkeypatch.setattr("kourou.engine.sends.single_sends.BATCH_MESSAGES_MAX", 3)
    for count, code in ((3, Code.SUCCESS), (4, Code.MESSAGE_ILLEGAL)):
        items = [(0, b"%d" % number, b"") for number in range(count)]
        assert engine.ask(message(batch=True), encode_batch(items)).code == code
    assert bodies(engine, "orders", 0) == [b"0", b"1", b"2"]


def test_what_the_messages_of_a_batch_share_is_bounded(engine, monkeypatch) -> None:
    """A few megabytes of tiny messages may not become gigabytes of records."""
    monkeypatch.setattr("kourou.engine.sends.single_sends.BATCH_RECORD_BYTES_MAX", 100_000)
    request = message(batch=True, properties="k\x01" + "v" * 30_000)
    reply = engine.ask(request, encode_batch([(0, b"x", b"")] * 4))
    assert reply.code == Code.MESSAGE_ILLEGAL
    assert "100000 bytes" in reply.remark
    assert bodies(engine, "orders", 0) == []
    assert engine.ask(request, encode_batch([(0, b"x", b"")] * 3)).code == Code.SUCCESS


@pytest.mark.parametrize("count", [1, 2, 6, 7, 40])
def test_a_batch_is_stored_as_if_its_messages_were_sent_one_by_one(count) -> None:
    together, alone = Engine(segment_size=4_096), Engine(segment_size=4_096)
    made = [bytes([n]) * (n * 53 % 400) for n in range(count)]
    for engine in (together, alone):
        engine.ask(message(), b"first")
    together.ask(message(batch=True), encode_batch([(0, each, b"") for each in made]))
    for each in made:
        alone.ask(message(), each)
    assert together.store.records == alone.store.records


def test_the_ids_of_a_batch_hold_across_segments() -> None:
    engine = Engine(segment_size=16_384)
    items = [(0, bytes([n]) * 900, b"") for n in range(40)]
    header = header_of(engine.ask(message(batch=True), encode_batch(items)))
    ids = header.msg_id.split(",")
    positions = [decode_offset_id(each)[1] for each in ids]
    assert positions == engine.store.queues["orders", 0]
    assert len({position // 16_384 for position in positions}) > 1


def test_a_topic_without_write_queues_refuses_and_the_broker_lives(engine) -> None:
    """RocketMQ's tool allows -w 0, and an imported table may say so."""
    event = TopicPut(TopicConfig("orders", 4, 0))
    engine.core.parts.recorder.record([event], Cause("t"), engine.wall_ms)
    engine._perform(engine.core.parts.appends.take_done())
    assert engine.ask(message(queue_id=-1), b"x").code == Code.NO_PERMISSION


def test_the_properties_of_a_sender_cannot_break_the_record(engine) -> None:
    tricks = ["__CRC32#\x010000000000\x02", "CLUSTER\x01other", "UNIQ_KEY\x01" + "k" * 10_000]
    for trick in tricks:
        engine.ask(message(properties=trick), b"x")
    for position in engine.store.queues["orders", 0]:
        raw = engine.store.records[position]
        assert check_record(raw, 0, len(raw), position).size == len(raw)
    assert {each.properties["CLUSTER"] for each in engine.stored("orders")} == {"DefaultCluster"}


def test_flags_of_host_widths_are_the_brokers_own_word(engine) -> None:
    flag = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    engine.ask(message(sys_flag=flag), b"x")
    (found,) = engine.stored("orders")
    assert found.sys_flag & flag == 0
    assert found.born_host == ("127.0.0.1", 40_001)
