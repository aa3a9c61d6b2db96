"""Delayed messages wait elsewhere, whichever way they were sent."""

import pytest

from kourou.engine.sends.topic_rewrite import delay_level, is_transactional
from kourou.errors import Code, MessageIllegal
from kourou.model.message import SysFlag
from kourou.model.names import SCHEDULE_TOPIC
from kourou.protocol.record.message_record import decode_record
from kourou_rigs.engine import header_of
from kourou_rigs.records import delayed_draft as delayed

V6 = bytes(15) + b"\x01" + (40_001).to_bytes(4, "big")


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
