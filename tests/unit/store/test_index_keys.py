import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.hashing import index_hash
from kourou.store.index_keys import KeyHashes

utf8 = st.text(
    st.characters(blacklist_categories=["Cs"]) | st.sampled_from("ab1\U0001f600"),
    min_size=1,
    max_size=20,
)


@pytest.mark.feature("F013", "F077")
@given(
    st.lists(st.lists(utf8, max_size=4), min_size=1, max_size=12),
    st.lists(st.integers(0, 2), min_size=12, max_size=12),
)
def test_hashes_are_those_of_topic_and_key_joined(keys, owners):
    topics = [b"TopicA", b"%RETRY%g", "\u4e3b\u9898".encode()]
    ids = np.asarray(owners[: len(keys)])
    hashes, rows = KeyHashes().of(topics, ids, [[k.encode() for k in own] for own in keys])
    wanted = [
        (index_hash(f"{topics[ids[row]].decode()}#{key}"), row)
        for row, own in enumerate(keys)
        for key in own
    ]
    assert list(zip(hashes.tolist(), rows.tolist(), strict=True)) == wanted
    assert hashes.dtype == np.int32


@given(st.lists(utf8, max_size=9))
def test_one_topic_needs_no_numbers(keys):
    hashes, _ = KeyHashes().of([b"T"], None, [[key.encode()] for key in keys])
    assert hashes.tolist() == [index_hash(f"T#{key}") for key in keys]


@pytest.mark.parametrize("count", [1, 9])
def test_the_hash_without_an_absolute_value_is_zero(count):
    # "polygenelubricants" hashes to the smallest integer; split so that the topic is a part of it.
    hashes, _ = KeyHashes().of([b"TopicA"], None, [[b"k1"]] * count)
    assert set(hashes.tolist()) == {1_903_240_649}
    spoiled = KeyHashes()
    spoiled._prefixes[b"p"] = 0
    found, _ = spoiled.of([b"p"], None, [[b"polygenelubricants"]] * count)
    assert set(found.tolist()) == {0}
