"""Batches that are written together leave the same log as those written one by one."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.engine.transactions import batch_log
from kourou.engine.transactions.batch_log import StoredHalves, halves_of
from kourou.engine.transactions.half_messages import committed, half_of, read_half
from kourou.errors import Code
from kourou.events.control_events import TopicPut
from kourou.model.names import HALF_TOPIC, OP_TOPIC
from kourou.model.topic import TopicConfig
from kourou.model.transaction import BatchMark
from kourou.protocol.bodies.broker_bodies import encode_attempts, encode_decision
from kourou.protocol.messages.sends import (
    AbortBatch,
    DecideBatch,
    PrepareBatch,
    ResolveBatch,
    SendRecords,
    Target,
)
from kourou.protocol.record.columns import check_drafts, scan
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft, stamp
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.engine import Engine, header_of
from kourou_rigs.transacting import record, started_again, transacting, visible

HOST = encode_host(("127.0.0.1", 40_001))
ATTEMPTS = ((0, "t1"), (1, "t2"), (1, "dead"))
WINNERS = {0: "t1", 1: "t2"}
ONE_BY_ONE = 10**9


def frame(chance: random.Random, number: int, rows: int, odd: bool) -> tuple[SendRecords, bytes]:
    """A frame of one attempt's rows for the four queues of `orders`."""
    partition, attempt = ATTEMPTS[number % len(ATTEMPTS)]
    drafts, target_of = [], []
    for row in range(rows):
        named = {"UNIQ_KEY": f"{attempt}.{number}.{row}"}
        if chance.random() < 0.8:
            named["TAGS"] = chance.choice(("red", "blue", "é"))
        if chance.random() < 0.8:
            named["KEYS"] = chance.choice(("k", f"k{row}", "a b"))
        level = 0
        if odd and chance.random() < 0.1:
            level = chance.choice((1, 5))
            named["region"] = "é"
        named["TRAN_MSG"], named["PGROUP"] = "true", "spark-sink"
        named["KOUROU_BATCH"] = BatchMark("q-1", 0, partition, attempt, level).text
        named["CLUSTER"] = "DefaultCluster"
        target_of.append(chance.randrange(4))
        drafts.append(
            encode_draft(
                topic=b"orders",
                queue_id=target_of[-1],
                body=chance.randbytes(chance.randrange(60)),
                properties=encode_properties(named),
                born_timestamp=1_700_000_000_000,
                born_host=HOST,
            )
        )
    request = SendRecords(
        targets=[Target("orders", queue_id) for queue_id in range(4)],
        target_of=b"".join(each.to_bytes(2, "little") for each in target_of),
        sizes=b"".join(len(draft).to_bytes(4, "little") for draft in drafts),
        producer_group="spark-sink",
    )
    return request, b"".join(drafts)


def written(seed: int, odd: bool, counts: dict[int, int]) -> Engine:
    """A broker that was sent some frames."""
    engine, chance = transacting(), random.Random(seed)
    for number in range(4):
        request, blob = frame(chance, number, chance.choice((5, 11, 40)), odd)
        header = header_of(engine.ask(request, blob))
        assert header.target_codes == [0] * 4, header.target_remarks
        assert (len(header.offsets), min(header.positions) >= 0) == (len(request.sizes) // 4, True)
        counts[number % 3] = counts.get(number % 3, 0) + len(header.offsets)
    return engine


def resolve(engine: Engine, winners: Mapping[int, str] = WINNERS) -> None:
    left = 1
    while left:
        reply = engine.ask(ResolveBatch(query="q-1", batch=0), encode_decision(winners, {}))
        assert reply.code == Code.SUCCESS, reply.remark
        left = header_of(reply).left


def life(seed: int, *, odd: bool, dies: bool) -> tuple[Engine, dict[int, int]]:
    """The batch is written and committed, perhaps by a broker that was started again meanwhile."""
    counts: dict[int, int] = {}
    engine = written(seed, odd, counts)
    attempts = {0: ("t1", counts[0]), 1: ("t2", counts[1])}
    prepared = engine.ask(
        PrepareBatch(query="q-1", batch=0, coordinator="broker-a"), encode_attempts(attempts)
    )
    assert prepared.code == Code.SUCCESS, prepared.remark
    engine.ask(DecideBatch(query="q-1", batch=0), encode_decision(WINNERS, {}))
    if dies:
        engine = started_again(engine)
    resolve(engine)
    return engine, counts


@pytest.mark.feature("F243")
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_the_log_is_the_same_byte_for_byte(seed: int, odd: bool, dies: bool) -> None:
    together, counts = life(seed, odd=odd, dies=dies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_log, "SCALAR_BELOW", ONE_BY_ONE)
        alone, _ = life(seed, odd=odd, dies=dies)
    assert list(together.store.records.items()) == list(alone.store.records.items())
    halves = together.core.parts.transactions.halves
    total = sum(counts.values())
    assert (len(halves), halves.done()) == (0, (total, total))
    assert halves.done() == alone.core.parts.transactions.halves.done()
    for name in ("resolved", "resolved_by_topic"):
        one, other = (getattr(each.core.parts.transactions, name) for each in (together, alone))
        assert one == other
    one, other = together.core.parts.traffic, alone.core.parts.traffic
    assert (one.kinds_in, one.sizes_in) == (other.kinds_in, other.sizes_in)
    assert (one.messages_in, one.bytes_in) == (other.messages_in, other.bytes_in)
    if not odd:
        assert len(visible(together)) == counts[0] + counts[1]


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[bool]:
    """Whether each call of this function of the log had something."""
    real = getattr(batch_log.BatchLog, name)
    found: list[bool] = []

    def call(*given: object) -> object:
        result = real(*given)
        found.append(result is not None)
        return result

    monkeypatch.setattr(batch_log.BatchLog, name, call)
    return found


def test_usual_frames_and_parts_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, read = counted(monkeypatch, "store"), counted(monkeypatch, "read")
    engine = transacting()
    for number in (0, 1, 2):
        request, blob = frame(random.Random(number), number, 30, False)
        engine.ask(request, blob)
    assert stored == [False, True, True]  # the first one makes the topics of transactions
    engine.ask(DecideBatch(query="q-1", batch=0), encode_decision(WINNERS, {}))
    resolve(engine)
    assert read == [True, True]
    assert len(visible(engine)) == 60


def test_a_broker_that_takes_no_transactions_refuses_frames_of_them() -> None:
    engine = transacting()
    engine.ask(*frame(random.Random(1), 0, 30, False))
    engine.core.parts.policy.change(reject_transactions=True)
    header = header_of(engine.ask(*frame(random.Random(2), 0, 30, False)))
    assert header.target_codes == [int(Code.NO_PERMISSION)] * 4
    assert len(engine.stored(HALF_TOPIC, 0)) == 30


def test_messages_of_queues_that_are_gone_share_those_that_are_left() -> None:
    engine = transacting()
    engine.ask(*frame(random.Random(1), 0, 30, False))
    engine.ask(*frame(random.Random(2), 0, 30, False))
    engine.ask(DecideBatch(query="q-1", batch=0), encode_decision(WINNERS, {}))
    record(engine, TopicPut(TopicConfig("orders", 2, 2)))
    resolve(engine)
    stored = [engine.stored("orders", queue_id) for queue_id in range(4)]
    assert sum(map(len, stored[:2])) == 60
    assert not any(stored[2:])
    assert [message.offset for message in stored[0]] == list(range(len(stored[0])))


def test_a_half_message_that_is_damaged_stops_the_commit_where_it_lies() -> None:
    engine = transacting()
    for seed in (1, 2):
        engine.ask(*frame(random.Random(seed), 0, 30, False))
    engine.ask(DecideBatch(query="q-1", batch=0), encode_decision(WINNERS, {}))
    position = engine.store.queues[HALF_TOPIC, 0][40]
    raw = engine.store.records[position]
    engine.store.records[position] = raw[:-40] + bytes((raw[-40] ^ 1,)) + raw[-39:]
    request = ResolveBatch(query="q-1", batch=0)
    reply = engine.ask(request, encode_decision(WINNERS, {}))
    assert reply.code != Code.SUCCESS
    assert engine.stored(OP_TOPIC) == []


def test_an_attempt_that_is_given_up_leaves_op_records_only() -> None:
    engine = transacting()
    for seed in (1, 2):
        engine.ask(*frame(random.Random(seed), 2, 30, False))
    engine.ask(AbortBatch(query="q-1", attempts="dead"))
    assert [message.body for message in engine.stored(OP_TOPIC)] == [b"%d" % n for n in range(60)]
    assert visible(engine) == []


# -- records of batch transactions made together are those made one by one, byte for byte ----------


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
