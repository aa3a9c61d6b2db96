"""What the log says of deliveries, wherever a crash cut it."""

import pytest

from kourou.engine.delays.progress import (
    PROGRESS_TARGET,
    DelayProgress,
    decode_progress,
    find_progress,
    progress_draft,
)
from kourou.errors import DecodeError
from kourou.model.names import SCHEDULE_TOPIC
from kourou_rigs.engine import Engine
from kourou_rigs.records import delayed_draft as delayed


def with_waiting(records, count: int, segment_size: int = 1 << 20) -> Engine:
    engine = Engine(segment_size=segment_size)
    for number in range(count):
        target = ("orders", number % 3)
        engine.ask(*records([delayed(1 + number % 2, f"M{number}", *target)], [target]))
    return engine


@pytest.mark.parametrize("segment_size", [1 << 20, 4_096])
def test_wherever_the_log_is_cut_each_message_is_delivered_or_waits(records, segment_size) -> None:
    engine = with_waiting(records, 12, segment_size)
    before = engine.store.end
    engine.advance(6_000)
    engine.advance(0)
    assert sum(len(engine.stored("orders", queue)) for queue in range(3)) == 12
    whole = sorted(engine.store.records)
    ends = [at + len(engine.store.records[at]) for at in whole]
    for cut in [at for at in ends if at >= before]:
        left = engine.store.cut(cut)
        found = find_progress(left, segment_size)
        delivered = sum(
            high - low for low, high in (left.queue_range("orders", q) or (0, 0) for q in range(3))
        )
        assert sum(found.offsets.values()) == delivered
        assert not found.problems


def test_other_records_behind_a_cut_are_no_deliveries(records) -> None:
    """RocketMQ may have gone on with the log where our append was cut."""
    engine = with_waiting(records, 4)
    before = engine.store.end
    engine.advance(6_000)
    announced = [at for at in sorted(engine.store.records) if at >= before]
    assert engine.stored(*PROGRESS_TARGET)[-1].position == announced[0]
    again = Engine(left=engine.store.cut(announced[2]))  # the announcement and one delivery
    for number in range(5):
        again.ask(*records([delayed(1, f"later {number}")]))
    assert sum(find_progress(again.store, 1 << 20).offsets.values()) == 1


def test_a_damaged_announcement_is_passed_over_and_reported(records) -> None:
    engine = with_waiting(records, 2)
    engine.advance(1_000)
    good = find_progress(engine.store, 1 << 20)
    engine.ask(*records([delayed(1, "third")]))
    engine.advance(1_000)
    newest = engine.stored(*PROGRESS_TARGET)[-1].position
    raw = bytearray(engine.store.records[newest])
    raw[100] ^= 1
    engine.store.records[newest] = bytes(raw)
    found = find_progress(engine.store, 1 << 20)
    assert found.offsets == good.offsets
    assert str(newest) in str(found.problems[0])


def test_a_log_without_announcements_says_nothing(records) -> None:
    found = find_progress(with_waiting(records, 2).store, 1 << 20)
    assert (found.offsets, found.position, found.problems) == ({}, -1, [])


def test_the_body() -> None:
    progress = DelayProgress({1: 5, 3: 7}, [(1, 5, 2)], [(100, -3)])
    draft = progress_draft(progress, 1, bytes(8))
    body = b'{"offsets":{"1":5,"3":7},"runs":[[1,5,2]],"steps":[[100,-3]]}'
    assert body in draft
    assert decode_progress(body) == progress
    for wrong in (b"", b"{", b'{"offsets":[]}', b"[" * 5_000, b'{"runs":[[1,2]]}', b"\xff"):
        with pytest.raises(DecodeError):
            decode_progress(wrong)


def test_nobody_sends_to_it(engine, draft, records) -> None:
    reply = engine.ask(*records([draft(topic=PROGRESS_TARGET[0])], [PROGRESS_TARGET]))
    assert reply.header.target_codes != [0]
    assert not engine.store.queue_ids(SCHEDULE_TOPIC)
