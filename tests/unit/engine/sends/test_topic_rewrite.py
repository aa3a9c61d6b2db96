"""Delayed messages wait elsewhere, whichever way they were sent."""

import pytest

from kourou.engine.sends.topic_rewrite import delay_level, is_transactional
from kourou.errors import Code, MessageIllegal
from kourou.model.message import SysFlag
from kourou.model.names import SCHEDULE_TOPIC
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.record.layout import encode_batch
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.engine import header_of
from kourou_rigs.records import delayed_draft as delayed

V6 = bytes(15) + b"\x01" + (40_001).to_bytes(4, "big")


def message(properties: dict[str, str], **fields: object) -> SendMessage:
    return SendMessage(
        **{
            "producer_group": "p",
            "topic": "orders",
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 2,
            "born_timestamp": 1,
            "properties": encode_properties(properties).decode(),
            **fields,
        }
    )


@pytest.mark.feature("F248", "F249")
def test_a_delayed_send_waits_at_its_level(engine) -> None:
    reply = engine.ask(message({"DELAY": "3", "WAIT": "true", "UNIQ_KEY": "U"}, flag=7), b"body")
    header = header_of(reply)
    assert (reply.code, header.queue_id, header.queue_offset) == (Code.SUCCESS, 2, 0)
    [found] = engine.stored(SCHEDULE_TOPIC, 2)
    assert decode_offset_id(header.msg_id)[1] == found.position
    assert (found.body, found.flag, found.born_timestamp) == (b"body", 7, 1)
    assert found.properties == {
        "DELAY": "3",
        "WAIT": "true",  # RocketMQ: only what it rewrites keeps it
        "UNIQ_KEY": "U",
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
    }
    assert ("orders", 2) not in engine.store.queues


@pytest.mark.feature("F247")
@pytest.mark.parametrize(("level", "stored", "queue"), [("19", "18", 17), ("2000000000", "18", 17)])
def test_a_level_above_the_highest_is_the_highest(engine, records, level, stored, queue) -> None:
    engine.ask(message({"DELAY": level}), b"x")
    engine.ask(*records([delayed(level)]))
    found = engine.stored(SCHEDULE_TOPIC, queue)
    assert [each.properties["DELAY"] for each in found] == [stored, stored]


def test_a_level_of_nothing_is_no_delay(engine, records) -> None:
    for level in ("0", "-1"):
        engine.ask(message({"DELAY": level, "WAIT": "true"}, queue_id=0), b"x")
        assert header_of(engine.ask(*records([delayed(level)]))).positions is not None
    assert [one.properties["DELAY"] for one in engine.stored("orders")] == ["0", "0", "-1", "-1"]
    assert "WAIT" not in engine.stored("orders")[0].properties


@pytest.mark.parametrize("level", ["soon", "1.5", "3x", "12345678901"])
def test_a_level_that_is_no_number_is_refused(engine, draft, records, level) -> None:
    reply = engine.ask(message({"DELAY": level}), b"x")
    assert (reply.code, "DELAY" in reply.remark) == (Code.MESSAGE_ILLEGAL, True)
    assert engine.ask(*records([delayed(level)])).code == Code.MESSAGE_ILLEGAL
    for others in (3, 20):
        drafts = [draft(topic="plain")] * others + [delayed(level)]
        targets = [("plain", 0), ("orders", 0)]
        header = header_of(engine.ask(*records(drafts, targets, [0] * others + [1])))
        assert header.target_codes[-1] == Code.MESSAGE_ILLEGAL
        assert "DELAY" in header.target_remarks[-1]
    assert len(engine.stored("plain")) == 23
    assert not engine.store.queue_ids(SCHEDULE_TOPIC)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_coalesced_send_keeps_each_message_s_place(engine, draft, records, count) -> None:
    drafts, target_of = [], []
    for number in range(count):
        drafts += [
            draft(body=b"plain %d" % number),
            delayed(1 + number % 2, f"L{number}", "late", 1),
        ]
        target_of += [0, 1]
    header = header_of(
        engine.ask(*records(drafts, targets=[("orders", 0), ("late", 1)], target_of=target_of))
    )
    assert header.target_codes == [0, 0]
    assert header.queue_ids == [0, 1] * count
    assert header.offsets[::2] == list(range(count))
    assert [one.body for one in engine.stored("orders")] == [b"plain %d" % n for n in range(count)]
    for number in range(count):
        stored = decode_record(engine.store.records[header.positions[2 * number + 1]])
        assert (stored.topic, stored.queue_id) == (SCHEDULE_TOPIC, number % 2)
        assert stored.offset == header.offsets[2 * number + 1] == number // 2
        assert stored.message_id == f"L{number}"
        assert (stored.properties["REAL_TOPIC"], stored.properties["REAL_QID"]) == ("late", "1")
    # One append for all of them.
    assert len({effect.end for effect in engine.effects[-3:] if hasattr(effect, "end")}) == 1


def test_sends_of_one_turn_with_delayed_ones_go_one_by_one(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    sends = [engine.received(*records([draft(body=b"%d" % n)] * 20)) for n in range(3)]
    sends.append(engine.received(*records([delayed(1, f"D{n}") for n in range(20)])))
    engine.handle(*(received for _, received in sends))
    for name, _ in sends:
        assert engine.replies[name].code == Code.SUCCESS
    assert len(engine.stored(SCHEDULE_TOPIC, 0)) == 20
    assert len(engine.stored("orders")) == 61


@pytest.mark.parametrize("count", [1, 3])
def test_a_repeated_delayed_send_is_stored_once(engine, records, count) -> None:
    drafts = [delayed(2, f"K{number}") for number in range(count)]
    first = header_of(engine.ask(*records(drafts)))
    again = header_of(engine.ask(*records(drafts, attempt=2)))
    assert again.offsets == first.offsets
    assert again.positions == first.positions
    assert again.queue_ids == [0] * count
    assert len(engine.stored(SCHEDULE_TOPIC, 1)) == count


def test_a_first_attempt_that_comes_after_its_repeat_is_known(engine, records) -> None:
    second = header_of(engine.ask(*records([delayed(2)], attempt=2)))
    first = header_of(engine.ask(*records([delayed(2)])))
    assert (first.positions, first.offsets) == (second.positions, second.offsets)


def test_hosts_of_every_width_and_failed_attempts_are_kept(engine, records) -> None:
    kinds = [
        {},
        {"store_host_v6": True},
        {"born_host": V6},
        {"born_host": V6, "store_host_v6": True},
    ]
    for kind in kinds:
        engine.ask(*records([delayed(1, reconsume_times=4, flag=9, **kind)]))
    for kind, found in zip(kinds, engine.stored(SCHEDULE_TOPIC, 0), strict=True):
        assert (found.reconsume_times, found.flag, found.body) == (4, 9, b"U")
        assert found.born_host == (("::1", 40_001) if "born_host" in kind else ("0.0.0.0", 0))
        assert bool(found.sys_flag & SysFlag.STORE_HOST_V6) == bool(kind.get("store_host_v6"))


def test_the_messages_of_a_batch_are_not_delayed(engine) -> None:
    """RocketMQ's broker would store them as if nobody had asked; its clients refuse."""
    for name in ("DELAY", "TRAN_MSG"):
        value = {"DELAY": "3", "TRAN_MSG": "true"}[name]
        for items in (1, 12):
            own = encode_properties({name: value})
            body = encode_batch([(0, b"x", b"")] * (items - 1) + [(0, b"x", own)])
            assert engine.ask(message({}, batch=True), body).code == Code.MESSAGE_ILLEGAL
        body = encode_batch([(0, b"x", b"")])
        reply = engine.ask(message({name: value}, batch=True), body)
        assert "separately" in reply.remark
    assert not engine.store.queue_ids("orders")


def test_properties_that_grow_too_long_are_refused(engine, records) -> None:
    reply = engine.ask(*records([delayed(1, properties={"k": "v" * 32_740})]))
    assert reply.code == Code.MESSAGE_ILLEGAL
    assert "32767" in reply.remark


def test_nothing_of_a_refused_lane_is_stored_even_of_repeats(engine, records) -> None:
    drafts = [delayed(1, "A"), delayed(2, "B"), delayed("x", "C")]
    for attempt in (1, 2):
        header = header_of(engine.ask(*records(drafts, attempt=attempt)))
        assert header.target_codes == [Code.MESSAGE_ILLEGAL]
    assert not engine.store.queue_ids(SCHEDULE_TOPIC)


def test_where_repeats_are_not_found_no_part_of_a_retried_send_is_stored(engine, records) -> None:
    engine.core.parts.apply("deduplicateRetriedSends", False)
    engine.ask(*records([delayed(1, "first")]))
    drafts = [delayed(1, f"K{number}") for number in range(4)]
    engine.core.parts.appends._allocated_end = engine.store.end + 3 * len(drafts[0])
    assert engine.ask(*records(drafts, attempt=2)).code == Code.SYSTEM_BUSY
    assert len(engine.stored(SCHEDULE_TOPIC)) == 1


def test_what_the_properties_say() -> None:
    assert delay_level(b"a\x01b") == 0
    assert delay_level(b"DELAY\x013\x02DELAY\x014") == 4
    assert delay_level(b"DELAY\x01+3") == 3
    with pytest.raises(MessageIllegal, match="DELAY is 'x'"):
        delay_level(b"DELAY\x01x")
    assert is_transactional(b"TRAN_MSG\x01TRUE")
    assert not is_transactional(b"TRAN_MSG\x01yes\x02a\x01TRAN_MSG")
