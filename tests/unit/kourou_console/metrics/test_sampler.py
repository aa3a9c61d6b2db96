"""Rounds of samples: each broker for itself, gaps stay gaps, one that is away is an alarm."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kourou.client.admin.replicas import LogMember
from kourou.errors import Unavailable
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou.protocol.bodies.route_bodies import ClusterInfo
from kourou.testing.cluster import Cluster, unique_name
from kourou_console.metrics import sampler as module
from kourou_console.metrics.sampler import KEEP_MS, Sampler, Samples
from kourou_rigs.console import ConsoleHere


@pytest.fixture
def sampler(console: ConsoleHere) -> Sampler:
    """One of its own, of which nobody takes rounds but the test."""
    return Sampler(console.gateway)


def series(sampler: Sampler, name: str, of: str = "") -> list[float | None]:
    (values,) = sampler.samples.read([(name, of)]).values
    return values


def test_rates_need_two_rounds_and_sums_all_brokers(
    cluster: Cluster, console: ConsoleHere, sampler: Sampler
) -> None:
    topic, group = cluster.create_topic(queues=2), unique_name("group")
    with cluster.client() as mq:
        console.run(sampler.look())
        for number in range(12):
            mq.send(topic, f"{number}")
        mq.admin.groups.create(group)
        mq.admin.offsets.commit(group, dict.fromkeys(mq.admin.topics.stats(topic), 0))
    console.run(sampler.look())
    assert series(sampler, "messages_in_per_s")[0] is None
    total = series(sampler, "messages_in_per_s")[1]
    parts = [series(sampler, "messages_in_per_s", f"broker:{name}")[1] for name in cluster.brokers]
    assert total == sum(part for part in parts if part is not None)
    assert total
    assert series(sampler, "send_p99_ms")[1] is not None
    assert series(sampler, "lag_messages", f"group:{group}") == [None, 12.0]
    assert sampler.lags()[group] == 12
    assert sampler.active_alarms() == []


@pytest.mark.parametrize("before", [0, 1], ids=["the first one", "one more"])
def test_dead_letters_that_come_are_an_alarm(
    cluster: Cluster, console: ConsoleHere, sampler: Sampler, before: int
) -> None:
    topic, group = cluster.create_topic(queues=1), unique_name("group")

    def fail() -> None:
        with cluster.client(group) as mq:
            mq.send(topic, "0")
            with mq.subscribe(topic) as messages:
                next(iter(messages)).dead_letter("no")

    for _ in range(before):
        fail()
    console.run(sampler.look())
    assert sampler.dead is not None
    assert sampler.dead.get(group, 0) == before
    fail()
    for _ in range(module.SLOW_ROUNDS):
        console.run(sampler.look())
    assert sampler.dead[group] == before + 1
    (one,) = [one for one in sampler.active_alarms() if one.raised.of == group]
    assert (one.raised.kind, one.raised.value) == ("dead_letters", 1.0)


def test_dead_letters_of_a_broker_that_comes_back_are_not_new(
    cluster: Cluster, console: ConsoleHere, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = cluster.create_topic(queues=1), unique_name("group")
    with cluster.client(group) as mq:
        mq.send(topic, "0", queue=MessageQueue(topic, "broker-b", 0))
        with mq.subscribe(topic) as messages:
            next(iter(messages)).dead_letter("no")
    ask = console.gateway.admin.cluster.info

    async def without_b() -> ClusterInfo:
        found = await ask()
        rest = {name: one for name, one in found.brokers.items() if name != "broker-b"}
        return replace(found, brokers=rest)

    with monkeypatch.context() as patched:
        patched.setattr(console.gateway.admin.cluster, "info", without_b)
        console.run(sampler.look())
    assert sampler.dead is not None
    assert group not in sampler.dead
    console.run(sampler.look())
    assert sampler.dead[group] == 1
    assert sampler.active_alarms() == []


def test_dead_letters_that_a_broker_does_not_tell_are_unknown(
    console: ConsoleHere, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = console.gateway.admin.topics
    ask = topics.all_configs

    async def all_configs(*, broker: str) -> Any:
        if broker == "broker-b":
            raise Unavailable("it swaps")
        return await ask(broker=broker)

    console.run(sampler.look())
    known = sampler.dead
    monkeypatch.setattr(topics, "all_configs", all_configs)
    for _ in range(module.SLOW_ROUNDS):
        console.run(sampler.look())
    assert known is not None
    assert sampler.dead is None
    assert sampler.active_alarms() == []


class Hanging:
    """A broker that takes a request and never answers it, as one whose machine swaps."""

    def __init__(self, ask: Any, name: str) -> None:
        self.ask, self.name, self.asked = ask, name, 0

    async def __call__(self, broker: str) -> Any:
        if broker != self.name:
            return await self.ask(broker)
        self.asked += 1
        return await asyncio.Event().wait()


def test_one_that_hangs_does_not_delay_the_others(
    console: ConsoleHere, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = console.gateway.admin.brokers
    hanging = Hanging(brokers.runtime, "broker-b")
    monkeypatch.setattr(brokers, "runtime", hanging)
    monkeypatch.setattr(module, "BROKER_LIMIT_S", 0.05)
    console.run(sampler.look())
    assert hanging.asked == 1
    assert sampler.brokers["broker-a"].up
    assert not sampler.brokers["broker-b"].up
    assert series(sampler, "disk_used_ratio", "broker:broker-a")[0] is not None
    assert series(sampler, "disk_used_ratio") == [None]  # a part is missing, so there is no sum
    (one,) = sampler.active_alarms()
    assert (one.raised.id, one.raised.severity) == ("broker_away:broker:broker-b", "critical")
    assert "in time" in one.raised.meaning


def test_brokers_are_asked_side_by_side(
    console: ConsoleHere, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one answers only when the second one has been asked."""
    brokers = console.gateway.admin.brokers
    runtime, second_asked = brokers.runtime, asyncio.Event()

    async def ask(broker: str) -> Any:
        if broker == "broker-b":
            second_asked.set()
        await second_asked.wait()
        return await runtime(broker)

    monkeypatch.setattr(brokers, "runtime", ask)
    console.run(sampler.look())
    assert [one.up for one in sampler.brokers.values()] == [True, True]


def test_a_broker_that_is_gone_is_missed_for_an_hour(
    cluster: Cluster, console: ConsoleHere, sampler: Sampler
) -> None:
    console.run(sampler.look())
    cluster.chaos.kill("broker-b")
    try:
        console.run(sampler.look())
        assert [one.raised.id for one in sampler.active_alarms()] == ["broker_away:broker:broker-b"]
        since_ms = sampler.active_alarms()[0].since_ms
        assert series(sampler, "up") == [2.0, 1.0]
        console.run(sampler.look())
        assert sampler.active_alarms()[0].since_ms == since_ms
    finally:
        cluster.chaos.restart("broker-b")
    console.run(sampler.look())
    assert sampler.active_alarms() == []


def test_members_that_do_not_reply_or_that_nobody_knows_are_alarms(
    console: ConsoleHere, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = FollowerView(
        broker_id=1, address="", state="PROBE", written=0, flushed=0, lag_bytes=100, lag_ms=None,
        in_sync=False, member="n1",
    )  # fmt: skip
    replicas = console.gateway.admin.replicas
    ask = replicas.of

    async def of(broker: str) -> list[LogMember]:
        if broker != "broker-a":
            return await ask(broker)
        leader = ReplicasView(
            cluster="C", broker_name=broker, broker_id=0, broker_role="", leads=True, epoch=7,
            leader=f"{broker}/n0", first=0, end=100, flushed=100, confirmed=100, member="n0",
            followers=(gone,),
        )  # fmt: skip
        silent = LogMember(broker, 2, "m2:1", None, Unavailable("it is down"))
        return [LogMember(broker, 0, "m0:1", leader), silent]

    with monkeypatch.context() as patched:
        patched.setattr(replicas, "of", of)
        console.run(sampler.look())
    found = {one.raised.id: one.raised for one in sampler.active_alarms()}
    assert set(found) == {"member_missing:member:broker-a/n1", "member_away:member:broker-a/2"}
    assert found["member_missing:member:broker-a/n1"].title == "Member n1 of broker-a is offline"
    assert "it is down" in found["member_away:member:broker-a/2"].meaning
    console.run(sampler.look())
    assert sampler.active_alarms() == []


def test_without_a_name_server_there_is_a_gap(
    console: ConsoleHere, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody() -> Any:
        await asyncio.Event().wait()

    console.run(sampler.look())
    monkeypatch.setattr(console.gateway.admin.cluster, "info", nobody)
    monkeypatch.setattr(module, "BROKER_LIMIT_S", 0.01)
    console.run(sampler.look())
    assert len(series(sampler, "up")) == 1
    (one,) = sampler.active_alarms()
    assert one.raised.kind == "sampling_gap"
    assert "in time" in one.raised.meaning


def test_rounds_follow_each_other_until_it_is_closed(console: ConsoleHere) -> None:
    found = Sampler(console.gateway)

    async def some() -> int:
        found.interval_ms = 1
        await found.start()
        while len(found.samples.read([("up", "")]).at_ms) < 3:  # noqa: ASYNC110 - rounds tell nobody
            await asyncio.sleep(0)
        await found.close()
        return found._rounds

    rounds = console.run(some())
    assert rounds >= 3
    assert found._rounds == rounds


# -- an hour of metrics, in which a gap stays one --------------------------------------------------


A, B = ("rate", ""), ("rate", "broker:a")


def test_what_was_not_told_is_none() -> None:
    samples = Samples(5_000)
    samples.note(5_000, {A: 1.0, B: 2.0})
    samples.note(10_000, {A: None})
    samples.note(15_000, {A: 3.0})
    found = samples.read([A, B, ("other", "")])
    assert found.at_ms == [5_000, 10_000, 15_000]
    assert found.values == [[1.0, None, 3.0], [2.0, None, None], [None, None, None]]
    assert samples.read([A], since_ms=10_000).values == [[None, 3.0]]


def test_rounds_that_did_not_happen_are_a_gap() -> None:
    samples = Samples(5_000)
    samples.note(5_000, {A: 1.0})
    samples.note(60_000, {A: 2.0})
    found = samples.read([A])
    assert found.at_ms == [5_000, 10_000, 60_000]
    assert found.values == [[1.0, None, 2.0]]


def test_an_hour_is_kept_and_a_series_without_a_value_goes() -> None:
    samples = Samples(60_000)
    rounds = KEEP_MS // 60_000
    samples.note(0, {A: 0.0, B: 0.0})
    for number in range(1, rounds + 1):
        samples.note(number * 60_000, {A: float(number)})
    found = samples.read([A])
    assert found.at_ms[0] == 60_000
    assert len(found.at_ms) == rounds
    assert samples.keys() == [A]


def test_only_a_fresh_value_is_the_latest() -> None:
    samples = Samples(5_000)
    assert samples.latest(A) is None
    samples.note(5_000, {A: 4.0})
    assert samples.latest(A, since_ms=5_000) == 4.0
    assert samples.latest(A, since_ms=5_001) is None
    samples.note(10_000, {})
    assert samples.latest(A) is None
