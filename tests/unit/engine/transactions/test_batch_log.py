"""Half messages of batches: many at a time make the same log as those written one by one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.engine.transactions import batch_log
from kourou.engine.transactions.batch_log import StoredHalves
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
from kourou.protocol.record.columns import scan
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.engine import Engine, header_of
from kourou_rigs.transacting import record, started_again, transacting, visible

V4, V6 = encode_host(("10.1.2.3", 9)), encode_host(("fd00::1", 9))
TARGETS = [("orders", 0), ("orders", 1), ("orders", 2), ("orders", 3), ("bills", 1)]
ATTEMPTS = ((0, "t1"), (1, "t2"), (1, "dead"))
WINNERS = {0: "t1", 1: "t2"}
ONE_BY_ONE = 10**9
USUAL = {"UNIQ_KEY": "K", "TRAN_MSG": "true", "KOUROU_BATCH": "q-1 0 0 t1 0"}
ODD = ({"DELAY": "3"}, {"REAL_TOPIC": "x"}, {"REAL_QID": "1"}, {"TRAN_MSG": "TRUE"})


class Row(NamedTuple):
    """A message of a frame. `target` is its index in TARGETS."""

    target: int
    properties: Mapping[str, str]
    body: bytes = b"x"
    born_host: bytes = V4
    store_host_v6: bool = False


def frame_of(rows: Sequence[Row]) -> tuple[SendRecords, bytes]:
    drafts = [
        encode_draft(
            topic=TARGETS[row.target][0].encode(),
            queue_id=TARGETS[row.target][1],
            body=row.body,
            properties=encode_properties(row.properties),
            flag=5,
            born_timestamp=1_700_000_000_000,
            born_host=row.born_host,
            store_host_v6=row.store_host_v6,
        )
        for row in rows
    ]
    request = SendRecords(
        targets=[Target(*target) for target in TARGETS],
        target_of=b"".join(row.target.to_bytes(2, "little") for row in rows),
        sizes=b"".join(len(draft).to_bytes(4, "little") for draft in drafts),
        producer_group="spark-sink",
    )
    return request, b"".join(drafts)


def frame(chance: random.Random, number: int, count: int, odd: bool) -> tuple[SendRecords, bytes]:
    """A frame of one attempt's rows for two topics, by clients and for brokers of either width."""
    partition, attempt = ATTEMPTS[number % len(ATTEMPTS)]
    hosts = chance.choice((V4, V6)), chance.random() < 0.5
    rows = []
    for row in range(count):
        named = {"UNIQ_KEY": f"{attempt}.{number}.{row}"}
        if chance.random() < 0.8:
            named["TAGS"] = chance.choice(("red", "blue", "é", "q-1 7 0 t1 0", "KOUROU_BATCH"))
        if chance.random() < 0.8:
            named["KEYS"] = chance.choice(("k", f"k{row}", "a b"))
        level = 0
        named["TRAN_MSG"], named["PGROUP"] = "true", "spark-sink"
        if odd and chance.random() < 0.1:
            level = chance.choice((0, 1, 5))
            named |= {"region": "é", **chance.choice(ODD)}
        named["KOUROU_BATCH"] = BatchMark("q-1", 0, partition, attempt, level).text
        if chance.random() < 0.5:
            named["CLUSTER"] = "DefaultCluster"
        body = chance.randbytes(chance.randrange(60))
        rows.append(Row(chance.randrange(len(TARGETS)), named, body, *hosts))
    return frame_of(rows)


def broker() -> Engine:
    """A broker with both topics."""
    engine = transacting()
    record(engine, TopicPut(TopicConfig("bills", 2, 2)))
    return engine


def delivered(engine: Engine) -> int:
    """The number of messages in both topics."""
    return len(visible(engine)) + len(engine.stored("bills", 1))


def written(seed: int, odd: bool, counts: dict[int, int]) -> Engine:
    """A broker that was sent some frames."""
    engine, chance = broker(), random.Random(seed)
    for number in range(4):
        request, blob = frame(chance, number, chance.choice((5, 11, 40)), odd)
        header = header_of(engine.ask(request, blob))
        assert header.target_codes == [0] * len(TARGETS), header.target_remarks
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
        assert delivered(together) == counts[0] + counts[1]


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
    engine = broker()
    for number in (0, 1, 2):
        request, blob = frame(random.Random(number), number, 30, False)
        engine.ask(request, blob)
    assert stored == [False, True, True]  # the first one makes the topics of transactions
    engine.ask(DecideBatch(query="q-1", batch=0), encode_decision(WINNERS, {}))
    resolve(engine)
    assert read == [True, True]
    assert delivered(engine) == 60


def test_a_broker_that_takes_no_transactions_refuses_frames_of_them() -> None:
    engine = broker()
    engine.ask(*frame(random.Random(1), 0, 30, False))
    engine.core.parts.policy.change(reject_transactions=True)
    header = header_of(engine.ask(*frame(random.Random(2), 0, 30, False)))
    assert header.target_codes == [int(Code.NO_PERMISSION)] * len(TARGETS)
    assert len(engine.stored(HALF_TOPIC, 0)) == 30


def test_messages_of_queues_that_are_gone_share_those_that_are_left() -> None:
    engine = broker()
    engine.ask(*frame(random.Random(1), 0, 30, False))
    engine.ask(*frame(random.Random(2), 0, 30, False))
    engine.ask(DecideBatch(query="q-1", batch=0), encode_decision(WINNERS, {}))
    record(engine, TopicPut(TopicConfig("orders", 2, 2)))
    resolve(engine)
    stored = [engine.stored("orders", queue_id) for queue_id in range(4)]
    assert delivered(engine) == 60
    assert not any(stored[2:])
    assert [message.offset for message in stored[0]] == list(range(len(stored[0])))


def test_a_half_message_that_is_damaged_stops_the_commit_where_it_lies() -> None:
    engine = broker()
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
    engine = broker()
    for seed in (1, 2):
        engine.ask(*frame(random.Random(seed), 2, 30, False))
    engine.ask(AbortBatch(query="q-1", attempts="dead"))
    assert [message.body for message in engine.stored(OP_TOPIC)] == [b"%d" % n for n in range(60)]
    assert delivered(engine) == 0


@pytest.mark.parametrize(
    "named",
    [
        {"UNIQ_KEY": "K", "TRAN_MSG": "true"},
        {"TRAN_MSG": "true", "KOUROU_BATCH": "q-1 0 0 t1 0"},
        {"UNIQ_KEY": "K", "KOUROU_BATCH": "q-1 0 0 t1 0"},
        {**USUAL, "TRAN_MSG": "no"},
        {**USUAL, "KOUROU_BATCH": "four words are few"},
        {**USUAL, "DELAY": "1"},
        {**USUAL, "T": "x" * 32_690},
    ],
)
def test_a_frame_with_one_that_is_no_usual_half_message_is_stored_one_by_one(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, str]
) -> None:
    stored = counted(monkeypatch, "store")
    usual = [Row(0, USUAL)] * 12
    odd = [*usual[:5], Row(0, named), *usual[:6]]
    engines = broker(), broker()
    answers: list[object] = []
    for engine, below in zip(engines, (batch_log.SCALAR_BELOW, ONE_BY_ONE), strict=True):
        monkeypatch.setattr(batch_log, "SCALAR_BELOW", below)
        replies = [engine.ask(*frame_of(rows)) for rows in (usual, usual, odd)]
        answers.append([(reply.code, reply.remark, reply.header) for reply in replies])
    assert answers[0] == answers[1]
    assert engines[0].store.records == engines[1].store.records
    # The first frame makes the topics of transactions.
    assert stored[:2] == [False, True]
    assert not any(stored[2:])


def test_stored_ones_that_are_unusual_are_left_to_those_who_look_at_each() -> None:
    engine = broker()
    engine.ask(*frame_of([Row(0, USUAL)] * 12))
    usual = engine.store.records[engine.store.queues[HALF_TOPIC, 0][0]]
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
