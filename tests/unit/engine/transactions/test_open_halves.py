"""The table of open half messages, and how far the two queues are done."""

import random

import pytest

from kourou.engine.groups.progress import Commits, ConsumerProgress
from kourou.engine.transactions.half_messages import COMMIT, ROLLBACK, read_half, still_immune
from kourou.engine.transactions.open_halves import (
    TRANSACTION_GROUP,
    OpenHalf,
    OpenHalves,
    open_halves,
)
from kourou.model.names import HALF_TOPIC, OP_TOPIC
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.engine import Engine
from kourou_rigs.transacting import half, resolved, transacting


def table(*offsets: int) -> OpenHalves:
    halves = OpenHalves()
    for offset in offsets:
        halves.open(OpenHalf(offset, offset * 100, 0))
    return halves


def test_a_later_copy_takes_the_place_of_the_former() -> None:
    halves = table(0)
    for offset in (1, 2):
        halves.open_copy(OpenHalf(offset, offset * 100, 0), ("g", "k", 1))
    halves.open_copy(OpenHalf(3, 300, 0), ("g", "k", 2))
    assert [half.offset for half in halves] == [0, 2, 3]


def test_damaged_op_records_hold_up_nobody() -> None:
    halves = table(0, 1)
    halves.noted(4, 0)
    halves.close(halves.at(0), None)
    assert halves.done() == (1, 5)


def test_the_spans_that_a_deletion_would_take() -> None:
    halves = table(0, 1, 2, 5, 6)
    halves.close(halves.at(1), None)
    spans = [(span.first, span.end) for span in halves.spans_before(600, 0)]
    assert spans == [(0, 1), (2, 3), (5, 6)]
    assert [(span.first, span.end) for span in halves.spans_before(601, 2)] == [(2, 3), (5, 7)]
    assert {span.group for span in halves.spans_before(1, 0)} == {"CID_RMQ_SYS_TRANS"}
    assert halves.spans_before(0, 0) == []


@pytest.mark.parametrize("seed", range(20))
def test_progress_is_what_a_reader_of_both_queues_needs(seed: int) -> None:
    """RocketMQ's rule: at or above the half offset, what no op record behind the op offset ends is
    open, and nothing else is."""
    chance = random.Random(seed)
    halves, ops = OpenHalves(), []
    for _ in range(200):
        opened = list(halves)
        if opened and chance.random() < 0.5:
            half = chance.choice(opened)
            halves.close(half, None)
            halves.noted(len(ops), half.offset)
            ops.append(half.offset)
        elif opened and chance.random() < 0.3:
            # A round goes in the order of offsets.
            halves.move(opened[0], halves.half_end, 0, None)
        else:
            halves.open(OpenHalf(halves.half_end, 0, 0))
        half_offset, op_offset = halves.done()
        ended = set(ops[op_offset:])
        found = [n for n in range(half_offset, halves.half_end) if n not in ended]
        assert found == [half.offset for half in halves]
        assert all(one < half_offset for one in ops[:op_offset])


# -- the table of open half messages is made of the two queues again -------------------------------


HOST = encode_host(("127.0.0.1", 1))


def found(
    engine: Engine, half_offset: int | None = None, op_offset: int | None = None
) -> list[int]:
    table: dict[str, dict[int, int]] = {}
    if half_offset is not None:
        table[HALF_TOPIC] = {0: half_offset}
    if op_offset is not None:
        table[OP_TOPIC] = {0: op_offset}
    commits = Commits(ConsumerProgress({TRANSACTION_GROUP: table} if table else {}))
    return [one.offset for one in open_halves(engine.store, commits, 1_000, engine.wall_ms)]


def append(engine: Engine, topic: str, body: bytes, properties: dict[str, str]) -> None:
    draft = encode_draft(
        topic=topic.encode(),
        queue_id=0,
        body=body,
        properties=encode_properties(properties),
        born_timestamp=1,
        born_host=HOST,
    )
    engine.core.parts.appends.write_one(draft, (topic, 0), engine.wall_ms)
    engine.perform(engine.core.parts.appends.take_done())


@pytest.mark.parametrize("progress", [(None, None), (0, 0), (1, 0), (2, 1)])
def test_the_same_ones_are_open_from_wherever_reading_may_begin(
    progress: tuple[int | None, int | None],
) -> None:
    engine = transacting()
    places = [half(engine, key=f"U{n}") for n in range(6)]
    for n, how in ((0, COMMIT), (1, ROLLBACK), (4, COMMIT)):
        resolved(engine, places[n], how)
    assert found(engine, *progress) == [2, 3, 5]


@pytest.mark.parametrize("progress", [(99, 99), (-5, -5)])
def test_progress_outside_the_queues_is_another_logs(progress: tuple[int, int]) -> None:
    engine = transacting()
    half(engine)
    assert found(engine, *progress) == ([] if progress[0] > 0 else [0])


def test_a_list_of_offsets_ends_all_of_them() -> None:
    engine = transacting()
    for n in range(4):
        half(engine, key=f"U{n}")
    append(engine, OP_TOPIC, b"0,1,3", {"TAGS": "d"})
    assert found(engine) == [2]


def test_what_is_no_op_record_ends_nothing() -> None:
    engine = transacting()
    half(engine)
    append(engine, OP_TOPIC, b"all", {"TAGS": "d"})
    assert found(engine) == [0]


def test_a_copy_of_one_that_was_ended_later_is_ended_too() -> None:
    """RocketMQ ends the half message that a late producer names, and leaves its copy open."""
    engine = transacting()
    half(engine)
    engine.advance(60_000)
    append(engine, OP_TOPIC, b"0", {"TAGS": "d"})
    assert found(engine) == []


def test_an_immune_copy_is_ended_by_the_offset_it_had_at_first() -> None:
    engine = transacting()
    offset, position = half(engine, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1000"})
    again = still_immune(read_half(engine.store.record_at(position)))
    engine.core.parts.appends.write_one(again, (HALF_TOPIC, 0), engine.wall_ms)
    engine.perform(engine.core.parts.appends.take_done())
    assert found(engine) == [1]
    append(engine, OP_TOPIC, b"%d" % offset, {"TAGS": "d"})
    assert found(engine, 1) == []


def test_two_half_messages_of_one_key_are_two() -> None:
    """A producer that sent it again after an answer was lost: no copy of the broker's."""
    engine = transacting()
    half(engine, born_ms=1)
    half(engine, born_ms=2)
    assert found(engine) == [0, 1]


def test_age_goes_on_over_a_restart() -> None:
    engine = transacting()
    half(engine)
    engine.wall_ms += 5_000
    [one] = open_halves(engine.store, Commits(ConsumerProgress()), 100, engine.wall_ms)
    assert one.since_ms == 100 - 5_000
    assert not one.proven


def test_many_are_read_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.engine.transactions.open_halves.READ_MESSAGES", 3)
    engine = transacting()
    places = [half(engine, key=f"U{n}") for n in range(10)]
    for place in places[:7]:
        resolved(engine, place, COMMIT)
    assert found(engine) == [7, 8, 9]


def test_an_immune_copy_is_ended_by_its_own_offset() -> None:
    engine = transacting()
    offset, position = half(engine)
    again = still_immune(read_half(engine.store.record_at(position)))
    copy, _ = engine.core.parts.appends.write_one(again, (HALF_TOPIC, 0), engine.wall_ms)
    engine.perform(engine.core.parts.appends.take_done())
    append(engine, OP_TOPIC, b"%d" % copy, {"TAGS": "d"})
    assert found(engine, half_offset=offset + 1) == []
