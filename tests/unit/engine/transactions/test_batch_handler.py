"""Batch transactions: prepared, decided once, resolved to the end, whatever dies in between."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from kourou.engine.policy import BrokerPolicy
from kourou.errors import Code
from kourou.model.transaction import BatchMark
from kourou.protocol.bodies.broker_bodies import decode_decision, encode_attempts, encode_decision
from kourou.protocol.messages.sends import (
    DecideBatch,
    GetBatchState,
    PrepareBatch,
    ResolveBatch,
)
from kourou_rigs.engine import Engine, header_of
from kourou_rigs.transacting import batch_send, started_again, transacting, visible

QUERY = "q-1"


def write(
    engine: Engine,
    bodies: list[str],
    *,
    batch: int = 0,
    partition: int = 0,
    attempt: str = "a",
    delay_level: int = 0,
) -> None:
    """A task writes half messages."""
    mark = BatchMark(QUERY, batch, partition, attempt, delay_level)
    frame = batch_send(bodies, mark, born_ms=engine.wall_ms, queue_id=partition % 4)
    header = header_of(engine.ask(*frame))
    assert header.target_codes == [0], header.target_remarks


def prepare(engine: Engine, attempts: Mapping[int, tuple[str, int]], batch: int = 0) -> int:
    request = PrepareBatch(query=QUERY, batch=batch, coordinator="broker-a")
    return engine.ask(request, encode_attempts(attempts)).code


def decide(engine: Engine, winners: Mapping[int, str], batch: int = 0) -> dict[int, str]:
    """Commit; returns the winners that the coordinator names."""
    reply = engine.ask(DecideBatch(query=QUERY, batch=batch), encode_decision(winners, {}))
    assert reply.code == Code.SUCCESS, reply.remark
    return dict(decode_decision(b"".join(reply.body)).winners)


def resolve(engine: Engine, winners: Mapping[int, str], batch: int = 0) -> None:
    """One step."""
    request = ResolveBatch(query=QUERY, batch=batch)
    reply = engine.ask(request, encode_decision(winners, {}))
    assert reply.code == Code.SUCCESS, reply.remark


def state(engine: Engine) -> tuple[str, int, int, int]:
    header = header_of(engine.ask(GetBatchState(query=QUERY)))
    return header.coordinator, header.prepared, header.decided, header.resolved


def tick(engine: Engine, seconds: int = 2) -> None:
    engine.advance(seconds * 1_000)


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
