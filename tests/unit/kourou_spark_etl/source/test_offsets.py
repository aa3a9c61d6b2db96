"""Offsets as Spark keeps them, and how much a batch takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest
from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.offsets import OffsetSpan, QueueOffsets, next_end, shared_out
from kourou_spark_etl.source.progress import offsets_in

A = [MessageQueue("orders", "broker-a", number) for number in range(12)]


def nothing_lost(queue: MessageQueue, begin: int, span: OffsetSpan) -> None:
    raise AssertionError(f"{queue} {begin} {span}")


def test_one_order_whatever_came_first() -> None:
    offsets = {A[10]: 1, A[2]: 2, MessageQueue("orders", "a", 0): 3, MessageQueue("all", "z", 0): 4}
    text = '{"all":{"z":{"0":4}},"orders":{"a":{"0":3},"broker-a":{"2":2,"10":1}}}'
    for given_ in (offsets, dict(reversed(offsets.items()))):
        assert QueueOffsets(given_).text() == text
    assert QueueOffsets.of_text(text) == QueueOffsets(offsets)
    assert QueueOffsets.of_text(text).text() == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be parsed"),
        ("[]", "a topic is expected"),
        ('{"a b":{}}', "character outside"),
        ('{"a":1}', "a broker of a is expected instead of 1"),
        ('{"a":{"b":[0]}}', "a queue of a/b is expected"),
        ('{"a":{"b":{"x":0}}}', "a/b has an invalid queue 'x'"),
        ('{"a":{"b":{"0":"1"}}}', "the offset of a/b/0 is '1'"),
        ('{"a":{"b":{"0":true}}}', "the offset of a/b/0 is True"),
        ('{"a":{"b":{"0":1.5}}}', "the offset of a/b/0 is 1.5"),
        ('{"a":{"b":{"0":-3}}}', "the offset of a/b/0 is -3; it must be at least -2"),
    ],
)
def test_texts_that_are_no_offsets(text: str, why: str) -> None:
    with pytest.raises(BadRequest, match=r"startingOffsets.* cannot be parsed") as error:
        QueueOffsets.of_text(text, what="the option 'startingOffsets'", lowest=-2)
    assert why in str(error.value)


@given(st.lists(st.integers(0, 10**12), max_size=12), st.integers(1, 10**12))
def test_a_batch_is_shared_out_in_proportion(counts: list[int], limit: int) -> None:
    backlog = dict(zip(A, counts, strict=False))
    shares = shared_out(backlog, limit)
    total = sum(counts)
    assert sum(shares.values()) == min(limit, total)
    for queue, count in backlog.items():
        assert 0 <= shares[queue] <= count
        if total > limit:
            assert abs(shares[queue] - count * limit / total) <= 1 + total * 1e-12


def test_rounding_goes_to_the_largest_remainder_then_to_the_first() -> None:
    assert shared_out({A[0]: 1, A[1]: 1, A[2]: 1}, 2) == {A[0]: 1, A[1]: 1, A[2]: 0}
    assert shared_out({A[0]: 10, A[1]: 29, A[2]: 61}, 10) == {A[0]: 1, A[1]: 3, A[2]: 6}


def test_batches_reach_the_end_and_then_stay() -> None:
    spans = {A[0]: OffsetSpan(0, 1_000), A[1]: OffsetSpan(0, 10), A[2]: OffsetSpan(5, 5)}
    offsets = QueueOffsets({A[0]: 0, A[1]: 0, A[2]: 5})
    batches = 0
    while (after := next_end(offsets, spans, 100, nothing_lost)) != offsets:
        assert sum(after[queue] - offsets[queue] for queue in after) <= 100
        offsets, batches = after, batches + 1
    assert batches == 11
    assert offsets == {A[0]: 1_000, A[1]: 10, A[2]: 5}


def test_a_new_queue_begins_at_its_first_message() -> None:
    after = next_end(
        QueueOffsets({A[0]: 5}),
        {A[0]: OffsetSpan(0, 5), A[1]: OffsetSpan(70, 90)},
        10,
        nothing_lost,
    )
    assert after == {A[0]: 5, A[1]: 80}


def test_what_does_not_exist_any_more_is_reported_and_then_skipped() -> None:
    told: list[tuple[MessageQueue, int]] = []
    start = QueueOffsets({A[0]: 5, A[1]: 70})
    spans = {A[0]: OffsetSpan(20, 30), A[1]: OffsetSpan(0, 60)}
    after = next_end(start, spans, None, lambda queue, begin, _: told.append((queue, begin)))
    assert told == [(A[0], 5), (A[1], 70)]
    assert after == {A[0]: 30, A[1]: 60}


# -- what a listener makes of a progress report ----------------------------------------------------


@pytest.mark.parametrize("text", [None, "", "17", '{"logOffset":3}', '{"a":{"0":5}}', "{"])
def test_offsets_of_other_sources_are_passed_over(text: str | None) -> None:
    assert offsets_in(text) is None


def test_offsets_of_ours() -> None:
    assert offsets_in('{"orders":{"broker-a":{"0":5}}}') == {
        MessageQueue("orders", "broker-a", 0): 5
    }
