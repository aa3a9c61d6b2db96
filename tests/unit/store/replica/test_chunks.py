from __future__ import annotations

import pytest

from kourou.errors import Corrupt
from kourou.protocol.record.message_record import encode_blank
from kourou.store.replica.chunks import check_chunk, filler_end
from kourou_rigs.records import RecordRun

SIZE = 1024


def run_of(count: int, position: int = 0) -> RecordRun:
    run = RecordRun(position=position)
    for number in range(count):
        run.add("TopicA", number % 2, body=bytes(number))
    return run


def test_records_and_a_filler_end_where_the_segment_does() -> None:
    run = run_of(3, SIZE)
    assert check_chunk(run.data, SIZE, SIZE).end == run.end
    blank = encode_blank(2 * SIZE - run.end)
    checked = check_chunk(run.data + blank, SIZE, SIZE)
    assert (len(checked.records), checked.end) == (3, 2 * SIZE)
    alone = check_chunk(blank, run.end, SIZE)
    assert (len(alone.records), alone.end) == (0, 2 * SIZE)


def test_a_filler_of_another_size_or_with_something_behind_it_is_none() -> None:
    run = run_of(3, SIZE)
    room = 2 * SIZE - run.end
    for tail in (
        encode_blank(room - 1),
        encode_blank(room)[:7],
        encode_blank(room) + b"\0",
        encode_blank(room) + run.data,
    ):
        with pytest.raises(Corrupt, match=str(run.end)):
            check_chunk(run.data + tail, SIZE, SIZE)
    assert filler_end(encode_blank(room), run.end, SIZE) == 2 * SIZE
    assert filler_end(b"", run.end, SIZE) is None


def test_a_chunk_lies_in_one_segment() -> None:
    run = run_of(12, SIZE)
    assert run.end > 2 * SIZE
    with pytest.raises(Corrupt, match="exceed the end"):
        check_chunk(run.data, SIZE, SIZE)
    assert check_chunk(run.data, SIZE, 4 * SIZE).end == run.end
