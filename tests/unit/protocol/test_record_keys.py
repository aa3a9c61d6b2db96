"""The topics of batches, and different strings at many places."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.record_columns import scan
from kourou.protocol.record_keys import distinct, topics_of
from kourou.testing.records import RecordRun


def test_topics_of_a_batch() -> None:
    run = RecordRun()
    for topic in ("Ab", "Cd", "Ab", "Efg"):
        run.add(topic)
    topics, numbers = topics_of(run.columns())
    assert topics == [b"Ab", b"Cd", b"Efg"]
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 0, 2]
    assert topics_of(run.columns(0, 1)) == ([b"Ab"], None)


@pytest.mark.parametrize("repeats", [1, 10, 100])
def test_strings_that_begin_alike_are_different(repeats: int) -> None:
    texts = [b"a", b"ab", b"abc", b"", b"b"] * repeats
    blob = np.frombuffer(b"".join(texts) + b"!", dtype=np.uint8)
    length = np.asarray([len(text) for text in texts], dtype=np.int64)
    found, numbers = distinct(blob, np.cumsum(length) - length, length)
    assert [found[number] for number in numbers.tolist()] == texts


@given(
    st.lists(st.sampled_from([b"", b"a", b"b", b"aa", b"ab", b"abc"]), min_size=1, max_size=80),
    st.sampled_from([1, 20]),
)
def test_different_strings_are_numbered(drawn: list[bytes], repeats: int) -> None:
    texts = drawn * repeats
    blob = np.frombuffer(b"".join(texts) + b"!", dtype=np.uint8)
    length = np.asarray([len(text) for text in texts], dtype=np.int64)
    found, numbers = distinct(blob, np.cumsum(length) - length, length)
    assert sorted(found) == sorted(set(texts))
    assert [found[number] for number in numbers.tolist()] == texts


def test_nothing_has_no_topics() -> None:
    assert topics_of(scan(b"")) == ([], None)
