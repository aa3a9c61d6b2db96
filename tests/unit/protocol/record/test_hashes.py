"""Hashes, against values that a Java virtual machine and a RocketMQ gave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.record.hashes import index_hash, index_hash_of, java_hash, tags_code
from kourou.protocol.record.layout import masked_crc

VECTORS = [
    ("", 0),
    ("a", 97),
    ("Aa", 2112),
    ("BB", 2112),
    ("TagA", 2598919),
    ("%RETRY%g", 1875847589),
    ("主题", 659901),
    ("😀", 1772899),
    ("TopicA#k1", -1903240649),
    ("polygenelubricants", -2147483648),
]


def horner(text: str) -> int:
    """The definition: h = 31 * h + unit over UTF-16 code units."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (31 * value + int.from_bytes(raw[at : at + 2], "big")) % 2**32
    return value - 2**32 if value >= 2**31 else value


@pytest.mark.feature("F236")
@pytest.mark.parametrize(("text", "value"), VECTORS)
def test_javas_values(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert tags_code(text) == value
    assert horner(text) == value


def test_no_tag_has_code_zero() -> None:
    assert tags_code(None) == 0


@given(st.text(st.characters(codec="utf-16", exclude_categories=[]), max_size=400))
def test_the_scalar_hash_follows_the_definition(text: str) -> None:
    assert java_hash(text) == horner(text)


def test_long_texts_follow_the_definition() -> None:
    for length in (255, 256, 257, 1000):
        assert java_hash("xy" * length) == horner("xy" * length)


def test_index_hashes_are_not_negative() -> None:
    assert index_hash("TopicA#k1") == 1903240649
    assert index_hash("polygenelubricants") == 0
    values = (-(2**31), -1, 0, 1, 2**31 - 1)
    assert [index_hash_of(value) for value in values] == [0, 1, 0, 1, 2**31 - 1]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"hello", 907060870),
        (b"body0", 1366271370),
        (b"txcommit", 1839812929),
        (b"pong", 559432015),
        (b"", 0),
    ],
)
def test_checksums_of_bodies(body: bytes, value: int) -> None:
    assert masked_crc(body) == value
    assert masked_crc(memoryview(body)) == value
