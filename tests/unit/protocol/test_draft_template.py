"""A template makes the very bytes that the general way makes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import MessageIllegal
from kourou.protocol.draft_template import DraftTemplate
from kourou.protocol.properties import encode_properties
from kourou.protocol.record import encode_draft, encode_host

HOST = encode_host(("10.1.2.3", 0))
words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9)


@given(
    topic=st.binary(min_size=1, max_size=127),
    properties=st.dictionaries(words.filter(lambda name: name != "UNIQ_KEY"), words, max_size=4),
    bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=3),
    numbers=st.tuples(
        st.integers(0, 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**62)
    ),
    sys_flag=st.sampled_from([0, 1, 1 | 1 << 8]),
    key=st.text("0123456789ABCDEF", min_size=1, max_size=56),
)
def test_it_makes_what_encode_draft_makes(
    topic, properties, bodies, numbers, sys_flag, key
) -> None:
    properties.pop("__CRC32#", None)
    queue_id, flag, born_ms = numbers
    template = DraftTemplate(
        topic=topic,
        queue_id=queue_id,
        properties=properties,
        flag=flag,
        born_host=HOST,
        key_length=len(key),
    )
    for body in bodies:
        assert template.draft(body, key, sys_flag, born_ms) == encode_draft(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=encode_properties({"UNIQ_KEY": key, **properties}),
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=born_ms,
            born_host=HOST,
        )


@pytest.mark.parametrize("size", [32_000, 32_700])
def test_long_properties_with_and_without_room_for_the_checksum(size) -> None:
    properties = {"long": "x" * size}
    template = DraftTemplate(
        topic=b"T", queue_id=0, properties=properties, flag=0, born_host=HOST, key_length=32
    )
    assert template.draft(b"body", "A" * 32, 0, 1) == encode_draft(
        topic=b"T",
        queue_id=0,
        body=b"body",
        properties=encode_properties({"UNIQ_KEY": "A" * 32, **properties}),
        born_timestamp=1,
        born_host=HOST,
    )


@pytest.mark.parametrize(
    ("topic", "properties"), [(b"", {}), (b"T" * 128, {}), (b"T", {"a": "x" * 40_000})]
)
def test_what_no_record_can_hold_is_refused_at_once(topic, properties) -> None:
    with pytest.raises(MessageIllegal):
        DraftTemplate(
            topic=topic, queue_id=0, properties=properties, flag=0, born_host=HOST, key_length=32
        )
