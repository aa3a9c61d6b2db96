"""Java properties text."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ConfigError
from kourou.model.limits import PROPERTIES_TEXT_BYTES_MAX
from kourou.protocol.wire.properties_text import (
    decode_properties_text,
    encode_properties_text,
    read_properties,
    write_properties,
)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        (" a = b \n# c\n! d\n\nx:y\nz w", {"a": "b ", "x": "y", "z": "w"}),
        ("a=1\r\na=2\r", {"a": "2"}),
        ("a\\=b\\ c=d=e", {"a=b c": "d=e"}),
        ("a=b\\\n   c\nd=e", {"a": "bc", "d": "e"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=\\u4e3b\\t\\n\\q", {"a": "主\t\nq"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("key", {"key": ""}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_reading(text, entries):
    assert read_properties(text) == entries
    assert decode_properties_text(memoryview(text.encode())) == entries


@pytest.mark.parametrize("body", [b"a=\\u12", b"a=\\uzzzz", b"a=\\ud83d", b"\xff=1"])
def test_a_malformed_text_is_a_config_error(body):
    with pytest.raises(ConfigError):
        decode_properties_text(body)


def test_the_length_of_a_body_is_bounded():
    body = b"a=" + b"x" * (PROPERTIES_TEXT_BYTES_MAX - 2)
    assert len(decode_properties_text(body)["a"]) == PROPERTIES_TEXT_BYTES_MAX - 2
    with pytest.raises(ConfigError, match="at most"):
        decode_properties_text(body + b"x")


def test_a_body_is_sorted_and_a_text_keeps_its_order():
    assert encode_properties_text({"b": "1", "a": "x=y"}) == b"a=x=y\nb=1\n"
    assert write_properties({"b": "1", "a": "x=y"}) == "b=1\na=x=y\n"


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT.filter(bool), TEXT))
def test_entries_come_back(entries):
    assert decode_properties_text(encode_properties_text(entries)) == entries


@pytest.mark.fuzz
@given(st.binary() | st.text(alphabet="ab=:#!\\u0041 \t\r\n").map(str.encode))
def test_any_bytes_are_entries_or_an_error_of_ours(body):
    with contextlib.suppress(ConfigError):
        decode_properties_text(body)
