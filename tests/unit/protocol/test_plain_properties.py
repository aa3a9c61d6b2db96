"""What counts as plain is what reading and writing again leaves as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol import plain_properties
from kourou.protocol.plain_properties import PlainProperties
from kourou.protocol.properties import decode_properties, encode_properties, find_property

CRC = b"__CRC32#\x010123456789\x02"
NAMES = st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "A", "DELAY", "AB", "B", "é"])
VALUES = st.sampled_from(["x", "true", "red", "a b", "é", "__CRC32#", "TAGS", "\x00"])
USUAL = st.dictionaries(NAMES, VALUES, max_size=5).map(
    lambda named: encode_properties(named) + (b"\x02" if named else b"") + CRC
)
ODD = st.sampled_from(
    [
        b"",
        b"A\x01x",
        b"A\x01x\x02",
        b"A\x01x\x02A\x01y\x02" + CRC,
        b"A\x01\x02" + CRC,
        b"\x01x\x02" + CRC,
        b"A\x02" + CRC,
        b"A\x01x\x01y\x02" + CRC,
        b"A\x01\xff\x02" + CRC,
        b"\x02A\x01x\x02" + CRC,
        b"A\x01x" + CRC,
        CRC + CRC,
        CRC + b"A\x01x\x02",
        CRC[:-1] + b"x",
        CRC[:-3] + b"\x02x\x02",
        b"A\x01x\x02x" + CRC,
    ]
)


def is_plain(text: bytes) -> bool:
    read = decode_properties(text)
    named = {name: value for name, value in read.items() if name != "__CRC32#"}
    again = encode_properties(named)
    ended = text[-len(CRC) : -11] == CRC[:-11]
    return ended and again + (b"\x02" if named else b"") + text[-len(CRC) :] == text


@given(st.lists(USUAL | ODD, min_size=1, max_size=6))
def test_only_plain_ones_are_taken(texts: list[bytes]) -> None:
    found = PlainProperties.of(texts)
    if found is not None:
        assert all(is_plain(text) for text in texts)
        shapes = {tuple(decode_properties(text))[:-1] for text in texts}
        assert {tuple(name.decode() for name in shape) for shape in found.shapes} == shapes


@given(st.lists(USUAL, min_size=1, max_size=6), st.integers(1, 9))
def test_what_producers_write_is_plain_and_its_values_are_found(drawn, repeats) -> None:
    texts = drawn * repeats
    found = PlainProperties.of(texts)
    if any(b"\x01\x00" in text for text in texts) and found is None:
        return
    assert found is not None
    for name in (b"UNIQ_KEY", b"TAGS", b"A", b"B"):
        wanted = [find_property(text, name) for text in texts]
        told = found.values(name)
        if None in wanted:
            assert told is None
            assert not found.all_have(frozenset((name,)))
        else:
            assert told is not None
            assert [told[0][number] for number in told[1].tolist()] == wanted
            assert len(set(told[0])) == len(told[0])
        assert found.some_have(frozenset((name,))) == any(value is not None for value in wanted)


@pytest.mark.parametrize("same", [True, False], ids=["alike", "different"])
def test_names_of_records_alike_are_not_looked_for_one_by_one(monkeypatch, same: bool) -> None:
    walked = []
    walk = plain_properties._shapes
    monkeypatch.setattr(
        plain_properties, "_shapes", lambda *given: (walked.append(1), walk(*given))[1]
    )
    texts = [b"UNIQ_KEY\x01%d\x02" % number + CRC for number in range(30)]
    if not same:
        texts[7] = b"TAGS\x01a\x02" + texts[7]
    assert PlainProperties.of(texts) is not None
    assert len(walked) == (not same)
