from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.hashing import tags_code
from kourou.protocol.projected import codes_and_keys
from kourou.protocol.record import encode_draft, encode_host
from kourou.protocol.record_batch import RecordColumns, index_keys, scan, tag_codes

HOST = encode_host(("127.0.0.1", 1))


def records(*properties: bytes) -> RecordColumns:
    return scan(
        b"".join(
            encode_draft(
                topic=b"T",
                queue_id=0,
                body=b"TAGS\x01no\x02",
                properties=raw,
                born_timestamp=1,
                born_host=HOST,
            )
            for raw in properties
        )
    )


def test_codes_and_keys_of_each_record_in_order():
    codes, keys = codes_and_keys(
        records(
            b"UNIQ_KEY\x01U1\x02TAGS\x01TagA\x02KEYS\x01k1  k2 \x02",
            b"",
            b"x\x01y\x02KEYS\x01only",
            b"TAGS\x01\xe4\xb8\xbb\xe9\xa2\x98",
        )
    )
    assert codes.tolist() == [2_598_919, 0, 0, 659_901]
    assert keys == [[b"U1", b"k1", b"k2"], [], [b"only"], []]


def test_the_last_of_two_counts_and_an_empty_one_is_none():
    codes, keys = codes_and_keys(
        records(
            b"TAGS\x01A\x02TAGS\x01B\x02KEYS\x01k\x02KEYS\x01l",
            b"TAGS\x01A\x02TAGS\x01\x02KEYS\x01k\x02KEYS\x01\x02UNIQ_KEY\x01",
            b"XTAGS\x01A\x02TAGSX\x01B\x02UNIQ_KEYS\x01u\x02TAGS",
        )
    )
    assert codes.tolist() == [tags_code("B"), tags_code("A"), 0]
    assert keys == [[b"l"], [b"k"], []]


names = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"a", b"TAGS2"])
values = st.text("ab \u4e3b", min_size=1, max_size=6).map(str.encode)


@given(st.lists(st.dictionaries(names, values, max_size=6), max_size=8))
def test_one_pass_says_what_two_say(drawn):
    found = records(
        *(b"\x02".join(name + b"\x01" + value for name, value in each.items()) for each in drawn)
    )
    codes, keys = codes_and_keys(found)
    assert codes.tolist() == tag_codes(found).tolist()
    assert keys == index_keys(found)
