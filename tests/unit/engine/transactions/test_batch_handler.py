"""Batch transactions: prepared, decided once, resolved to the end, whatever dies in between."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from kourou.engine.policy import BrokerPolicy
from kourou.errors import Code
from kourou.model.names import HALF_TOPIC
from kourou.model.transaction import BatchMark
from kourou.protocol.bodies.broker_bodies import decode_decision, encode_attempts, encode_decision
from kourou.protocol.messages.sends import (
    DecideBatch,
    GetBatchState,
    PrepareBatch,
    ResolveBatch,
    SendRecords,
    Target,
)
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.engine import Engine, header_of
from kourou_rigs.transacting import end, started_again, transacting, visible

QUERY = "q-1"
HOST = encode_host(("127.0.0.1", 40_001))
FAILED = Code.SYSTEM_ERROR


def write(
    engine: Engine,
    bodies: list[str],
    *,
    batch: int = 0,
    partition: int = 0,
    attempt: str = "a",
    query: str = QUERY,
    delay_level: int = 0,
) -> list[tuple[int, int]]:
    """A task writes half messages, as the sink does; returns their places."""
    mark = BatchMark(query, batch, partition, attempt, delay_level).text
    drafts = [
        encode_draft(
            topic=b"orders",
            queue_id=partition % 4,
            body=body.encode(),
            properties=encode_properties(
                {
                    "UNIQ_KEY": f"{query}.{batch}.{partition}.{attempt}.{body}",
                    "TRAN_MSG": "true",
                    "PGROUP": "sink",
                    "KOUROU_BATCH": mark,
                    "CLUSTER": "DefaultCluster",
                }
            ),
            born_timestamp=engine.wall_ms,
            born_host=HOST,
        )
        for body in bodies
    ]
    request = SendRecords(
        targets=[Target("orders", partition % 4)],
        sizes=b"".join(len(draft).to_bytes(4, "little") for draft in drafts),
        producer_group="sink",
    )
    header = header_of(engine.ask(request, b"".join(drafts)))
    assert header.target_codes == [0], header.target_remarks
    return list(zip(header.offsets, header.positions, strict=True))


def prepare(
    engine: Engine,
    attempts: Mapping[int, tuple[str, int]],
    batch: int = 0,
    coordinator: str = "broker-a",
) -> int:
    request = PrepareBatch(query=QUERY, batch=batch, coordinator=coordinator)
    return engine.ask(request, encode_attempts(attempts)).code


def decide(engine: Engine, winners: Mapping[int, str], batch: int = 0) -> dict[int, str]:
    """Commit; returns the winners that the coordinator names."""
    reply = engine.ask(DecideBatch(query=QUERY, batch=batch), encode_decision(winners, {}))
    assert reply.code == Code.SUCCESS, reply.remark
    return dict(decode_decision(b"".join(reply.body)).winners)


def resolve(
    engine: Engine, winners: Mapping[int, str], batch: int = 0, *, last: bool = False
) -> tuple[int, int, int]:
    """One step; returns what was committed, discarded, and is left."""
    request = ResolveBatch(query=QUERY, batch=batch, last=last)
    reply = engine.ask(request, encode_decision(winners, {}))
    assert reply.code == Code.SUCCESS, reply.remark
    header = header_of(reply)
    return header.committed, header.discarded, header.left


def state(engine: Engine) -> tuple[str, int, int, int]:
    header = header_of(engine.ask(GetBatchState(query=QUERY)))
    return header.coordinator, header.prepared, header.decided, header.resolved


def tick(engine: Engine, seconds: int = 2) -> None:
    engine.advance(seconds * 1_000)


def test_what_comes_too_late_is_discarded() -> None:
    engine = transacting()
    write(engine, ["one"])
    prepare(engine, {0: ("a", 1)})
    resolve(engine, decide(engine, {0: "a"}))
    write(engine, ["again"], attempt="b")
    write(engine, ["next"], batch=1)
    tick(engine)
    assert visible(engine) == [b"one"]
    assert len(engine.core.parts.transactions.halves.batches) == 1


def test_open_ones_time_out_but_not_those_that_are_prepared() -> None:
    engine = transacting(policy=BrokerPolicy("DefaultCluster", "broker-a", batch_timeout_ms=60_000))
    write(engine, ["kept"])
    prepare(engine, {0: ("a", 1)})
    write(engine, ["gone"], batch=1)
    tick(engine, 62)
    assert len(engine.core.parts.transactions.halves.batches) == 1
    resolve(engine, decide(engine, {0: "a"}))
    assert visible(engine) == [b"kept"]


def test_nobody_is_asked_about_them_and_they_do_not_stop_questions() -> None:
    engine = transacting()
    write(engine, ["one"])
    with_place = write(engine, ["two"])
    before = len(engine.store.queues[HALF_TOPIC, 0])
    tick(engine, 130)
    assert len(engine.store.queues[HALF_TOPIC, 0]) == before
    assert engine.core.parts.transactions.halves.done()[0] == 0
    assert engine.ask(end(with_place[0], 8, group="sink")).code == FAILED
    assert visible(engine) == []


def test_queries_are_forgotten_when_unused_or_over() -> None:
    engine = transacting()
    write(engine, ["one"])
    prepare(engine, {0: ("a", 1)})
    resolve(engine, decide(engine, {0: "a"}))
    tick(engine, 721 * 3_600)
    assert state(engine) == ("", -1, -1, -1)
    write(engine, ["two"])
    prepare(engine, {0: ("a", 1)})
    winners = decide(engine, {0: "a"})
    assert resolve(engine, winners, last=True) == (1, 0, 0)
    assert state(engine) == ("", -1, -1, -1)
    assert resolve(engine, winners, last=True) == (0, 0, 0)


@pytest.mark.parametrize(
    "mark",
    ["", "q 0 0 a", "q 0 0 a 0 0", "q x 0 a 0", "q 0 -1 a 0", "q 0 0 é 0", f"{'q' * 121} 0 0 a 0"],
)
def test_a_mark_that_says_nothing_is_refused(mark: str) -> None:
    engine = transacting()
    draft = encode_draft(
        topic=b"orders",
        queue_id=0,
        body=b"x",
        properties=b"UNIQ_KEY\x01k\x02TRAN_MSG\x01true\x02KOUROU_BATCH\x01"
        + (mark or "x").encode(),
        born_timestamp=1,
        born_host=HOST,
    )
    request = SendRecords(
        targets=[Target("orders", 0)],
        sizes=len(draft).to_bytes(4, "little"),
        producer_group="sink",
    )
    assert engine.ask(request, draft).code == Code.SYSTEM_ERROR
    assert engine.stored(HALF_TOPIC) == []


def test_a_power_loss_at_any_byte_of_the_commit_loses_nothing_and_doubles_nothing() -> None:
    engine = transacting()
    write(engine, ["x1", "x2"], attempt="x")
    write(engine, ["one", "two", "three"], attempt="b")
    write(engine, ["four"], partition=1, attempt="c", delay_level=1)
    prepare(engine, {0: ("b", 3), 1: ("c", 1)})
    decide(engine, {0: "b", 1: "c"})
    from_here = engine.store.end
    resolve(engine, {0: "b", 1: "c"})
    cuts = [at for at in engine.store.records if at >= from_here] + [engine.store.end]
    assert len(cuts) > 8
    for cut in cuts:
        again = started_again(engine, cut)
        winners = decide(again, {0: "x"}) or {}
        assert winners in ({0: "b", 1: "c"}, {})
        resolve(again, winners)
        tick(again, 3)
        assert visible(again) == [b"one", b"two", b"three", b"four"], cut
        assert len(again.core.parts.transactions.halves.batches) == 0


@pytest.mark.fault
def test_any_order_of_attempts_decisions_and_crashes(rounds) -> None:  # type: ignore[no-untyped-def]  # a fixture
    for seed in range(rounds(150)):
        _Story(seed).tell()


class _Story:
    """A driver that dies and comes back, tasks that run twice, two brokers that crash."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.brokers = {
            name: transacting(policy=BrokerPolicy("DefaultCluster", name))
            for name in ("broker-a", "broker-b")
        }
        self.expected: list[bytes] = []
        self.attempts = 0

    def crash(self) -> None:
        if self.chance.random() < 0.3:
            name = self.chance.choice(sorted(self.brokers))
            self.brokers[name] = started_again(
                self.brokers[name], policy=BrokerPolicy("DefaultCluster", name)
            )

    def tell(self) -> None:
        for batch in range(3):
            rows = {
                p: [f"{batch}/{p}/{n}" for n in range(self.chance.randrange(4))] for p in (0, 1)
            }
            self.expected += [row.encode() for part in rows.values() for row in part]
            while not self.try_batch(batch, rows):
                pass
        for engine in self.brokers.values():
            tick(engine, 3)
        found = sorted(b for engine in self.brokers.values() for b in visible(engine))
        assert found == sorted(self.expected)
        assert not any(len(e.core.parts.transactions.halves.batches) for e in self.brokers.values())

    def try_batch(self, batch: int, rows: Mapping[int, list[str]]) -> bool:
        """One run of the driver, which may die at any point; True once it is done."""
        if state(self.brokers["broker-a"])[2] < batch:
            won = {p: self.write(batch, p, rows[p]) for p in rows}
            if self.dies():
                return False
            for name in ("broker-a", "broker-b"):
                here = {p: (a, counts[name]) for p, (a, counts) in won.items() if counts[name]}
                assert prepare(self.brokers[name], here, batch) == Code.SUCCESS
                if self.dies():
                    return False
            decide(self.brokers["broker-a"], {p: a for p, (a, _) in won.items()}, batch)
            if self.dies():
                return False
        if self.chance.random() < 0.2:
            self.write(batch, 0, rows[0])  # a task that was slow
        winners = decide(self.brokers["broker-a"], {}, batch)
        for name in ("broker-b", "broker-a"):
            resolve(self.brokers[name], winners, batch)
            if self.dies():
                return False
        return True

    def write(self, batch: int, partition: int, rows: list[str]) -> tuple[str, dict[str, int]]:
        """A partition, perhaps several times; the attempt that wins, and its counts by broker."""
        counts: dict[str, int] = {}
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            self.attempts += 1
            counts = dict.fromkeys(self.brokers, 0)
            for row in rows[: None if self.chance.random() < 0.9 else 1]:
                name = self.chance.choice(sorted(self.brokers))
                write(
                    self.brokers[name],
                    [row],
                    batch=batch,
                    partition=partition,
                    attempt=f"t{self.attempts}",
                )
                counts[name] += 1
            if sum(counts.values()) == len(rows):
                return f"t{self.attempts}", counts
        return self.write(batch, partition, rows)

    def dies(self) -> bool:
        self.crash()
        return self.chance.random() < 0.15
