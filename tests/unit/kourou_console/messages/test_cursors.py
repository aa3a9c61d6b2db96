"""A cursor is one short text for the positions in all queues; any other text is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest
from kourou.model.topic import MessageQueue
from kourou_console.messages.cursors import Cursor, decode_cursor, encode_cursor

QUEUES = [MessageQueue("orders", broker, number) for broker in "ab" for number in range(4)]


@given(st.lists(st.integers(0, 2**62), min_size=8, max_size=8), st.integers(0, 2**47))
def test_what_was_written_is_read(offsets: list[int], time_ms: int) -> None:
    known = dict(zip(QUEUES, offsets, strict=True))
    text = encode_cursor(known, time_ms)
    assert decode_cursor(text, QUEUES[::-1]) == Cursor(known, time_ms)
    assert text.replace("-", "").replace("_", "").isalnum()


def test_a_silent_queue_keeps_the_text_of_the_same_list() -> None:
    known = dict.fromkeys(QUEUES[:5], 7)
    text = encode_cursor(known, 1_000, QUEUES[5:])
    assert decode_cursor(text, QUEUES) == Cursor(known, 1_000, tuple(QUEUES[5:]))


def test_of_other_queues_only_the_time_is_left() -> None:
    text = encode_cursor({QUEUES[0]: 7}, 1_000)
    assert decode_cursor(text, QUEUES) == Cursor(None, 1_000)


@pytest.mark.fuzz
@given(st.text(max_size=40))
def test_any_other_text_is_refused_or_of_other_queues(text: str) -> None:
    try:
        found = decode_cursor(text, QUEUES)
    except BadRequest:
        return
    assert found.offsets is None


def test_a_text_that_was_cut_or_made_longer_is_refused() -> None:
    text = encode_cursor(dict.fromkeys(QUEUES, 2**40), 1_000)
    for changed in (text[:-4], text + "AAAA", "A" * 20_000, ""):
        with pytest.raises(BadRequest):
            decode_cursor(changed, QUEUES)
