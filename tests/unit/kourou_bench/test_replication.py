"""What replication costs is computed as it is named."""

from __future__ import annotations

from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou_bench.replication import (
    COMPARED_PAIRS,
    SETUPS,
    Lag,
    Rounds,
    lag_of,
    lag_values,
)

SETUP = {setup.name: setup for setup in SETUPS}


def follower(number: int, lag_bytes: int, lag_ms: int | None) -> FollowerView:
    return FollowerView(
        broker_id=number,
        address="",
        state="REPLICATE",
        written=0,
        flushed=0,
        lag_bytes=lag_bytes,
        lag_ms=lag_ms,
        in_sync=True,
    )


def view(*followers: FollowerView) -> ReplicasView:
    return ReplicasView(
        cluster="c",
        broker_name="broker-a",
        broker_id=0,
        broker_role="SYNC_MASTER",
        leads=True,
        epoch=64,
        leader="broker-a/0",
        first=0,
        end=9_000,
        flushed=9_000,
        confirmed=9_000,
        followers=followers,
    )


def test_whatever_is_compared_is_measured() -> None:
    assert {name for pair in COMPARED_PAIRS for name in pair} == set(SETUP)


def test_the_lag_is_that_of_the_last_follower() -> None:
    assert lag_of(view(follower(1, 10, 7), follower(2, 300, None))) == Lag(9_000, 300, 7)
    assert lag_of(view()) is None


def test_lag_counts_while_the_log_grows() -> None:
    before, after = Lag(0, 0, 0), Lag(9_000, 0, 0)
    loaded = [Lag(1_000, 2_048, 4), Lag(5_000, 1_024, 2), Lag(9_000, 4_096, 30)]
    assert lag_values([before, before, *loaded, after, after]) == {
        "lag_kib": 2.0,
        "lag_max_kib": 4.0,
        "lag_ms": 4,
        "lag_max_ms": 30,
    }
    assert lag_values([after, after]) == {}


def values(rate: float, **more: float) -> dict[str, float]:
    return {"rate": rate, "p50_ms": 2.0, "p99_ms": 8.0, "leader_us": 20.0, **more}


def measured() -> Rounds:
    rounds = Rounds([SETUP["sync"], SETUP["rocketmq-sync"]])
    for ours, theirs in ((300.0, 100.0), (500.0, 250.0), (80.0, 10.0)):
        rounds.add(SETUP["sync"], values(ours, lag_kib=3.0))
        rounds.add(SETUP["rocketmq-sync"], values(theirs))
    return rounds


def test_ratios_are_of_figures_of_one_round() -> None:
    rounds = measured()
    assert rounds.value("sync", "rate") == 300.0
    assert rounds.ratio("sync", "rocketmq-sync", "rate") == 3.0  # of 3, 2 and 8
    assert rounds.value("raft", "rate") is None
    assert rounds.ratio("raft", "sync", "rate") is None


def test_a_round_that_lacks_one_has_no_ratio() -> None:
    rounds = measured()
    rounds.add(SETUP["sync"], values(1_000.0))
    rounds.add(SETUP["rocketmq-sync"], None)
    assert rounds.value("sync", "rate") == 400.0
    assert rounds.ratio("sync", "rocketmq-sync", "rate") == 3.0
