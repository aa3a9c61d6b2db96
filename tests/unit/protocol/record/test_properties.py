"""Properties: what is written is read, and what cannot be written is refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import MessageIllegal
from kourou.protocol.record.properties import decode_properties, encode_properties, find_property

TEXT = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=9
)


@given(st.dictionaries(TEXT.filter(lambda name: name != "__CRC32#"), TEXT, max_size=6))
def test_what_is_encoded_is_decoded(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties)
    assert decode_properties(encoded) == properties
    assert list(decode_properties(memoryview(encoded + b"\x02" * bool(encoded)))) == list(
        properties
    )
    for name, value in properties.items():
        assert find_property(encoded, name.encode()) == value.encode()


def test_the_bytes_are_rocketmqs() -> None:
    assert encode_properties({"KEYS": "k1 k2", "TAGS": "TagA"}) == b"KEYS\x01k1 k2\x02TAGS\x01TagA"
    assert encode_properties({}) == b""
    assert decode_properties(b"") == {}


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"a": ""}, "'a' is empty"),
        ({"": "a"}, "'' is empty"),
        ({"ok": "1", "a\x01": "b"}, "separator"),
        ({"a": "b\x02c"}, "'a' contains the separator"),
        ({"a\x02b": "c\x01"}, "separator"),
        ({"a": "\ud800"}, "not valid Unicode"),
    ],
)
def test_what_cannot_survive_is_refused(properties: dict[str, str], named: str) -> None:
    with pytest.raises(MessageIllegal, match=named):
        encode_properties(properties)


def test_a_records_checksum_is_not_carried_to_another_record() -> None:
    assert encode_properties({"a": "1", "__CRC32#": "0123456789"}) == b"a\x011"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a\x011\x02", {"a": "1"}),
        (b"a\x011\x02\x02b\x012", {"a": "1", "b": "2"}),
        (b"a\x01\x02b\x012", {"b": "2"}),
        (b"\x011\x02b\x012", {"b": "2"}),
        (b"alone\x02b\x012", {"b": "2"}),
        (b"a\x011\x01x", {"a": "1\x01x"}),
        (b"a\x011\x02a\x012", {"a": "2"}),
        (b"a\x011\x02a\x01", {"a": "1"}),
        (b"a\x011\x02a\x01\x02a\x01\x02b\x01\xff", {"a": "1", "b": "\ufffd"}),
        (b"b\x01x\x02a\x011\x02a\x01\x02a\x01", {"a": "1", "b": "x"}),
        (b"a\x01\xff", {"a": "\ufffd"}),
        (b"\x02", {}),
        (b"\x01", {}),
    ],
)
def test_foreign_spellings_are_read_as_rocketmq_reads_them(
    raw: bytes, expected: dict[str, str]
) -> None:
    assert decode_properties(raw) == expected
    for name in (b"a", b"b"):
        found = find_property(raw, name)
        decoded = None if found is None else found.decode("utf-8", "replace")
        assert decoded == expected.get(name.decode())


@pytest.mark.fuzz
@given(st.lists(st.sampled_from([b"a", b"b", b"ab", b"\x01", b"\x02", b"\xff"])), st.booleans())
def test_finding_agrees_with_decoding(pieces: list[bytes], view: bool) -> None:
    raw = b"".join(pieces)
    decoded = decode_properties(raw)
    for name in (b"a", b"b", b"ab"):
        found = find_property(memoryview(raw) if view else raw, name)
        expected = decoded.get(name.decode())
        assert (None if found is None else found.decode("utf-8", "replace")) == expected


@pytest.mark.fuzz
@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([b"a", b"\x01", b"\x02", b"\xff"])).map(b"".join)
)
def test_any_bytes_are_properties(raw: bytes) -> None:
    """What is not is dropped, and what is left can be written again, in the same order."""
    properties = decode_properties(raw)
    assert all(name and value for name, value in properties.items())
    assert not any({"\x01", "\x02"} & set(name) for name in properties)
    assert not any("\x02" in value for value in properties.values())
    plain = {name: value for name, value in properties.items() if "\x01" not in value}
    encoded = encode_properties(plain)
    assert list(decode_properties(encoded).items()) == [
        one for one in plain.items() if one[0] != "__CRC32#"
    ]
