"""Records of batch transactions made together are those made one by one, byte for byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.engine.transactions.batch_log import StoredHalves, halves_of
from kourou.engine.transactions.half_messages import committed, half_of, read_half
from kourou.model.transaction import BatchMark
from kourou.protocol.record.columns import check_drafts, scan
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft, stamp
from kourou.protocol.record.properties import encode_properties

V4, V6 = encode_host(("10.1.2.3", 9)), encode_host(("fd00::1", 9))
TARGETS = [("orders", 0), ("orders", 3), ("bills", 1)]
MARKS = [
    BatchMark("q-1", 7, 0, "t1"),
    BatchMark("q-1", 7, 0, "t1", 3),
    BatchMark("q-1", 7, 1, "t22"),
]
OWN = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "region", "traceparent", "é"]),
    st.sampled_from(["red", "k-1", "k-1 k-2", "true", "é", "q-1 7 0 t1 0", "KOUROU_BATCH"]),
    max_size=4,
)
ODD = st.sampled_from(
    [{"DELAY": "3"}, {"REAL_TOPIC": "x"}, {"REAL_QID": "1"}, {"TRAN_MSG": "TRUE"}]
)


@st.composite
def rows(draw, odd=False):
    """(target, encoded properties, body)."""
    named = {"UNIQ_KEY": f"K{draw(st.integers(0, 99))}", **draw(OWN), "TRAN_MSG": "true"}
    named["PGROUP"] = "spark-sink"
    named["KOUROU_BATCH"] = draw(st.sampled_from(MARKS)).text
    if draw(st.booleans()):
        named["CLUSTER"] = "DefaultCluster"
    if odd and draw(st.integers(0, 9)) == 0:
        named.update(draw(ODD))
    return draw(st.sampled_from(TARGETS)), encode_properties(named), draw(st.binary(max_size=30))


HOSTS = st.sampled_from([(V4, False), (V4, True), (V6, False), (V6, True)])


def drafts_for(given_rows, host, wide):
    return [
        encode_draft(
            topic=target[0].encode(),
            queue_id=target[1],
            body=body,
            properties=properties,
            flag=5,
            born_timestamp=17,
            born_host=host,
            store_host_v6=wide,
        )
        for target, properties, body in given_rows
    ]


def together(given_rows, drafts):
    found = check_drafts(b"".join(drafts), list(map(len, drafts)))
    target_of = np.asarray([TARGETS.index(target) for target, *_ in given_rows], np.uint16)
    return halves_of(found, TARGETS, target_of)


def one_by_one(given_rows, drafts):
    return [half_of(draft, target) for draft, (target, *_) in zip(drafts, given_rows, strict=True)]


@pytest.mark.feature("F243")
@given(st.lists(rows(), min_size=1, max_size=14), HOSTS)
def test_half_messages_made_together_are_those_made_one_by_one(given_rows, hosts) -> None:
    drafts = drafts_for(given_rows, *hosts)
    made = together(given_rows, drafts)
    assert made is not None
    assert made.drafts == one_by_one(given_rows, drafts)
    texts = [made.marks[number].text for number in made.mark_of]
    assert all(
        b"\x01%s\x02" % text.encode() in draft for text, draft in zip(texts, drafts, strict=True)
    )


@given(st.lists(rows(odd=True), min_size=1, max_size=8))
def test_what_is_unusual_is_left_to_those_who_look_at_each(given_rows) -> None:
    drafts = drafts_for(given_rows, V4, False)
    made = together(given_rows, drafts)
    if made is not None:
        assert made.drafts == one_by_one(given_rows, drafts)


@pytest.mark.parametrize(
    "named",
    [
        {"UNIQ_KEY": "K", "TRAN_MSG": "true"},
        {"TRAN_MSG": "true", "KOUROU_BATCH": MARKS[0].text},
        {"UNIQ_KEY": "K", "KOUROU_BATCH": MARKS[0].text},
        {"UNIQ_KEY": "K", "TRAN_MSG": "no", "KOUROU_BATCH": MARKS[0].text},
        {"UNIQ_KEY": "K", "TRAN_MSG": "true", "KOUROU_BATCH": "four words are few"},
        {"UNIQ_KEY": "K", "TRAN_MSG": "true", "KOUROU_BATCH": MARKS[0].text, "DELAY": "1"},
        {"UNIQ_KEY": "K", "TRAN_MSG": "true", "KOUROU_BATCH": MARKS[0].text, "T": "x" * 32_690},
    ],
)
def test_one_that_is_no_usual_half_message_leaves_all(named) -> None:
    usual = (
        TARGETS[0],
        encode_properties({"UNIQ_KEY": "K", "TRAN_MSG": "true", "KOUROU_BATCH": MARKS[0].text}),
        b"x",
    )
    given_rows = [usual] * 12
    assert together(given_rows, drafts_for(given_rows, V4, False)) is not None
    given_rows[5] = TARGETS[0], encode_properties(named), b"x"
    assert together(given_rows, drafts_for(given_rows, V4, False)) is None


def stored(given_rows, hosts):
    """Half messages as they lie in the log."""
    found = []
    halves = one_by_one(given_rows, drafts_for(given_rows, *hosts))
    for number, half in enumerate(halves):
        record = bytearray(half)
        place = {"queue_offset": 40 + number, "position": 1_000 * number + 7}
        stamp(record, 0, **place, store_timestamp=99, store_host=V4)
        found.append(bytes(record))
    return found


@pytest.mark.feature("F243")
@given(st.lists(rows(), min_size=1, max_size=14), HOSTS)
def test_messages_made_together_are_those_made_one_by_one(given_rows, hosts) -> None:
    records = stored(given_rows, hosts)
    read = StoredHalves.read(scan(b"".join(records)))
    delayed = any(b"KOUROU_BATCH\x01" + MARKS[1].text.encode() in record for record in records)
    assert (read is None) == delayed
    if read is None:
        return
    elsewhere = [(topic, queue_id + 1) for topic, queue_id in read.real]
    expected = [committed(half, half.real_target[1] + 1) for half in map(read_half, records)]
    assert read.committed(elsewhere) == expected
    for count in (1, len(records)):
        topics = [read_half(record).real_target[0] for record in records[:count]]
        told = read.topics(count)
        assert {topic: told[topic] for topic in told if told[topic]} == {
            topic: topics.count(topic) for topic in topics
        }


def test_stored_ones_that_are_unusual_are_left_to_those_who_look_at_each() -> None:
    usual = stored(
        [
            (
                TARGETS[0],
                encode_properties(
                    {"UNIQ_KEY": "K", "TRAN_MSG": "true", "KOUROU_BATCH": MARKS[0].text}
                ),
                b"x",
            )
        ],
        (V4, False),
    )[0]
    assert StoredHalves.read(scan(usual * 12)) is not None
    for spoilt in (
        usual.replace(b"REAL_QID\x010", b"REAL_QID\x01x"),
        usual.replace(b"REAL_QID", b"REAL_QIX"),
        usual.replace(b" t1 0", b" t1 x"),
        usual.replace(b"KOUROU_BATCH", b"KOUROU_BATCX"),
        usual.replace(b"REAL_TOPIC\x01orders", b"REAL_TOPIC\x01order\xff"),
    ):
        assert spoilt != usual
        assert StoredHalves.read(scan(usual * 12 + spoilt)) is None
