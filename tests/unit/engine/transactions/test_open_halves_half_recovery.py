"""The table of open half messages is made of the two queues again."""

import pytest

from kourou.engine.groups.progress import Commits, ConsumerProgress
from kourou.engine.transactions.half_messages import COMMIT, ROLLBACK, read_half, still_immune
from kourou.engine.transactions.open_halves import TRANSACTION_GROUP, open_halves
from kourou.model.names import HALF_TOPIC, OP_TOPIC
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.engine import Engine
from kourou_rigs.transacting import half, resolved, transacting

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


def test_an_empty_store_has_none() -> None:
    assert found(transacting()) == []


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
