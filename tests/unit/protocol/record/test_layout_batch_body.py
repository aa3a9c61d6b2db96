"""The body of a batch send."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import MessageIllegal
from kourou.protocol.record.layout import encode_batch, split_batch

items = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50), st.binary(max_size=50)),
    max_size=5,
)


@pytest.mark.feature("F175")
@given(items)
def test_what_is_encoded_comes_back(batch: list[tuple[int, bytes, bytes]]) -> None:
    assert list(split_batch(encode_batch(batch))) == batch


@given(st.binary(max_size=200))
def test_rubbish_is_refused_and_nothing_else(noise: bytes) -> None:
    with contextlib.suppress(MessageIllegal):
        list(split_batch(noise))


@given(items.filter(bool), st.data())
def test_damaged_batches_never_raise_anything_else(batch, data) -> None:
    raw = bytearray(encode_batch(batch))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(MessageIllegal):
        list(split_batch(bytes(raw)))
