"""Tag codes and index keys of batches are those of each record."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol import record_keys
from kourou.protocol.hashing import tags_code
from kourou.protocol.properties import find_property
from kourou.protocol.record import encode_draft
from kourou.protocol.record_columns import RecordColumns, scan
from kourou.protocol.record_keys import codes_and_keys, distinct, tag_codes, topics_of
from kourou.testing.records import RecordRun


def records(properties: list[bytes], *, crc: bool = True) -> RecordColumns:
    return scan(
        b"".join(
            encode_draft(
                topic=b"T",
                queue_id=0,
                body=b"\x02TAGS\x01body",
                properties=raw,
                born_timestamp=1,
                born_host=bytes(8),
                with_crc=crc,
            )
            for raw in properties
        )
    )


def expected_codes(properties: list[bytes]) -> list[int]:
    found = [find_property(raw, b"TAGS") for raw in properties]
    return [0 if tag is None else tags_code(tag.decode("utf-8", "replace")) for tag in found]


def key(number: int) -> bytes:
    return b"UNIQ_KEY\x01%032X" % number


@pytest.mark.feature("F069", "F235", "F236")
@pytest.mark.parametrize("count", [1, 5, 100])
@pytest.mark.parametrize("crc", [False, True])
def test_codes_of_the_clients_own_order(count: int, crc: bool) -> None:
    same = [key(number) + b"\x02TAGS\x01TagA\x02CLUSTER\x01c" for number in range(count)]
    assert tag_codes(records(same, crc=crc)).tolist() == [2598919] * count
    own = [
        key(number) + b"\x02TAGS\x01Tag%d\x02KEYS\x01k%d" % (number % 7, number)
        for number in range(count)
    ]
    assert tag_codes(records(own, crc=crc)).tolist() == expected_codes(own)
    none = [key(number) for number in range(count)]
    assert tag_codes(records(none, crc=crc)).tolist() == [0] * count


PIECES = st.sampled_from(
    [
        key(1),
        key(2),
        b"UNIQ_KEY\x01short",
        b"UNIQ_KEY\x01" + b"F" * 56,
        b"UNIQ_KEY\x01" + b"F" * 31 + b"\x02",
        b"UNIQ_KEY\x01" + b"F" * 32 + b"TAGS\x01x",
        b"TAGS\x01a",
        b"TAGS\x01",
        "TAGS\x01主题".encode(),
        b"TAGS\x01\xff",
        b"XTAGS\x01x",
        b"KEYS\x01k1  k2",
        b"KEYS\x01 ",
        b"CLUSTER\x01c",
        b"noise",
    ]
)


@given(
    st.lists(st.lists(PIECES, max_size=5).map(b"\x02".join), min_size=1, max_size=50), st.booleans()
)
def test_any_order_gives_what_each_record_says(properties: list[bytes], crc: bool) -> None:
    found = records(properties, crc=crc)
    assert tag_codes(found).tolist() == expected_codes(properties)
    codes, found_keys = codes_and_keys(found)
    assert codes.tolist() == expected_codes(properties)
    for raw, keys in zip(properties, found_keys, strict=True):
        unique = find_property(raw, b"UNIQ_KEY")
        business = find_property(raw, b"KEYS") or b""
        assert keys == ([] if unique is None else [unique]) + business.split()


@pytest.mark.feature("F013")
def test_the_unique_key_comes_before_the_business_keys() -> None:
    found = records([key(7) + b"\x02TAGS\x01t\x02KEYS\x01order-1  order-2 order-1"])
    assert codes_and_keys(found)[1] == [[b"%032X" % 7, b"order-1", b"order-2", b"order-1"]]


def test_a_longer_unique_key_does_not_hide_what_follows() -> None:
    odd = b"UNIQ_KEY\x01" + b"F" * 32 + b"TAGS\x01x\x02KEYS\x01k\x02CLUSTER\x01some-cluster"
    usual = key(3) + b"\x02TAGS\x01x\x02KEYS\x01k\x02CLUSTER\x01some-cluster"
    for properties in ([odd] * 40, [usual, odd] * 20):
        assert tag_codes(records(properties)).tolist() == expected_codes(properties)


def test_codes_and_keys_of_each_record_in_order() -> None:
    codes, keys = codes_and_keys(
        records(
            [
                b"UNIQ_KEY\x01U1\x02TAGS\x01TagA\x02KEYS\x01k1  k2 \x02",
                b"",
                b"x\x01y\x02KEYS\x01only",
                b"TAGS\x01\xe4\xb8\xbb\xe9\xa2\x98",
            ]
        )
    )
    assert codes.tolist() == [2_598_919, 0, 0, 659_901]
    assert keys == [[b"U1", b"k1", b"k2"], [], [b"only"], []]


def test_the_last_of_two_counts_and_an_empty_one_is_none() -> None:
    codes, keys = codes_and_keys(
        records(
            [
                b"TAGS\x01A\x02TAGS\x01B\x02KEYS\x01k\x02KEYS\x01l",
                b"TAGS\x01A\x02TAGS\x01\x02KEYS\x01k\x02KEYS\x01\x02UNIQ_KEY\x01",
                b"XTAGS\x01A\x02TAGSX\x01B\x02UNIQ_KEYS\x01u\x02TAGS",
            ]
        )
    )
    assert codes.tolist() == [tags_code("B"), tags_code("A"), 0]
    assert keys == [[b"l"], [b"k"], []]


def test_nothing_of_nothing() -> None:
    assert tag_codes(scan(b"")).tolist() == []
    codes, keys = codes_and_keys(scan(b""))
    assert (codes.tolist(), keys) == ([], [])
    assert topics_of(scan(b"")) == ([], None)


def test_many_records_of_which_none_has_a_unique_key() -> None:
    """As those that end the half messages of an attempt that was given up."""
    many = [b"TAGS\x01d\x02", b"TAGS\x01dd\x02"] * record_keys._VECTOR_FROM
    codes, keys = codes_and_keys(records(many))
    assert codes.tolist() == expected_codes(many)
    assert keys == [[]] * len(many)


def test_the_tag_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_keys, "_CODES_CACHED", 3)
    many = [key(number) + b"\x02TAGS\x01t%d" % number for number in range(50)]
    assert tag_codes(records(many)).tolist() == expected_codes(many)
    assert codes_and_keys(records(many))[0].tolist() == expected_codes(many)
    assert len(record_keys._codes) <= 3


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


SPOILT = st.sampled_from(
    [
        lambda raw: raw,
        lambda raw: raw.replace(b"CLUSTER", b"KLUSTER"),
        lambda raw: raw[:20] + b"\x02" + raw[21:],
        lambda raw: raw[:41] + b"X" + raw[42:],
        lambda raw: raw + b"x",
        lambda raw: raw.replace(b"UNIQ_KEY", b"UNIQ_KEX"),
    ]
)


@given(
    count=st.integers(1, 40),
    rest=st.lists(PIECES, max_size=3).map(b"\x02".join),
    spoilt=st.lists(st.tuples(st.integers(0, 39), SPOILT), max_size=2),
    crc=st.booleans(),
)
def test_records_alike_are_read_as_they_would_be_one_by_one(count, rest, spoilt, crc) -> None:
    properties = [key(number) + b"\x02" + rest + b"\x02CLUSTER\x01c" for number in range(count)]
    for at, spoil in spoilt:
        properties[at % count] = spoil(properties[at % count])
    made = records(properties, crc=crc)
    codes, keys = codes_and_keys(made)
    one_by_one = [record_keys.code_and_keys(made.properties(row)) for row in range(count)]
    assert codes.tolist() == [code for code, _ in one_by_one]
    assert keys == [own for _, own in one_by_one]
    assert codes.tolist() == expected_codes(properties)


def test_records_alike_are_not_walked_one_by_one(monkeypatch) -> None:
    """Else a broker's projection takes twice as long as it must."""
    walked = []
    walk = record_keys.code_and_keys
    monkeypatch.setattr(
        record_keys, "code_and_keys", lambda raw: (walked.append(raw), walk(raw))[1]
    )
    properties = [key(number) + b"\x02TAGS\x01a\x02CLUSTER\x01c" for number in range(30)]
    assert codes_and_keys(records(properties))[1] == [[b"%032X" % number] for number in range(30)]
    assert len(walked) == 1


def test_topics_are_looked_for_once_and_known_to_who_projects_the_stamped_records(
    monkeypatch,
) -> None:
    made = records([key(number) for number in range(20)])
    looked = []
    monkeypatch.setattr(
        record_keys,
        "distinct",
        lambda *args, find=record_keys.distinct: (looked.append(1), find(*args))[1],
    )
    assert topics_of(made) == ([b"T"], None)
    numbers = np.arange(20)
    stamped = made.stamped(made.blob.tobytes(), numbers, numbers, 5)
    assert topics_of(stamped) == ([b"T"], None)
    assert len(looked) == 1


TAGS_AND_KEYS = st.sampled_from(
    [
        b"",
        b"TAGS\x01red\x02",
        b"KEYS\x01k\x02",
        b"TAGS\x01blue\x02KEYS\x01k1 k2\x02",
        b"TAGS\x01red\x02KEYS\x01 k\x02",
        b"KEYS\x01k\x02TAGS\x01late\x02",
        b"TAGS\x01red\x02TAGS\x01again\x02",
        b"TAGS\x01\x02KEYS\x01\x02",
        b"XTAGS\x01x\x02",
        b"A\x01KEYS\x02",
        b"UNIQ_KEY\x01twice\x02",
    ]
)


@given(
    st.lists(st.tuples(st.booleans(), TAGS_AND_KEYS), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_records_of_the_usual_order_are_read_as_they_would_be_one_by_one(
    drawn: list[tuple[bool, bytes]], crc: bool, ended: bool
) -> None:
    many = [
        (key(number) + b"\x02" if named else b"") + rest + b"CLUSTER\x01c" + b"\x02" * ended
        for number, (named, rest) in enumerate(drawn * 12)
    ]
    made = records(many, crc=crc)
    codes, keys = codes_and_keys(made)
    one_by_one = [record_keys.code_and_keys(text) for text in made.property_texts()]
    assert codes.tolist() == [code for code, _ in one_by_one]
    assert keys == [own for _, own in one_by_one]


def test_records_with_tags_and_keys_of_their_own_are_not_walked_one_by_one(monkeypatch) -> None:
    walked = []
    walk = record_keys.code_and_keys
    monkeypatch.setattr(
        record_keys, "code_and_keys", lambda raw: (walked.append(raw), walk(raw))[1]
    )
    own = [
        key(number) + b"\x02TAGS\x01t%d\x02KEYS\x01k%d\x02A\x01b" % (number % 3, number)
        for number in range(30)
    ]
    op = b"TAGS\x01d\x02WAIT\x01true"
    codes, keys = codes_and_keys(records([text for pair in own for text in (pair, op)]))
    assert keys[2:4] == [[b"%032X" % 1, b"k1"], []]
    assert codes[:2].tolist() == [tags_code("t0"), tags_code("d")]
    assert len(walked) == 1
