"""What cannot be measured is said; what failed makes the exit code; the rest is printed."""

from __future__ import annotations

import json

import pytest

from kourou.errors import ConfigError, TimedOut
from kourou_bench import replication_run
from kourou_bench.replication import Setup
from kourou_bench.replication_run import ReplicationBench, run_replication_bench
from kourou_bench.rocketmq import RocketMq

VALUES = {"rate": 5.0, "p50_ms": 1.0, "p99_ms": 2.0, "leader_us": 3.0, "followers_us": 4.0}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The setups that were measured, on a machine without Java."""
    found: list[str] = []

    def measure(setup: Setup, _: ReplicationBench, __: RocketMq | None) -> dict[str, float]:
        found.append(setup.name)
        if setup.name == "async":
            raise TimedOut("nobody follows")
        return VALUES

    monkeypatch.setattr(replication_run, "_measure", measure)
    monkeypatch.setattr(replication_run, "_rocketmq", lambda: (None, "Java is missing"))
    return found


def test_setups_take_turns_and_begin_with_another_one_each_round(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ReplicationBench(only=("alone", "sync", "raft"))
    assert run_replication_bench(settings, as_json=False) == 0
    assert asked == ["alone", "sync", "raft", "sync", "raft", "alone"]
    out, err = capsys.readouterr()
    assert out.startswith("kind replication; rounds 2; seconds 4.0;")
    assert "Kourou, Raft of 3 / Kourou, SYNC_MASTER" in out
    assert "round 2/2  raft " in err


def test_a_machine_without_java_is_said_loudly_and_is_no_failure(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ReplicationBench(rounds=1, only=("sync", "rocketmq-sync"))
    assert run_replication_bench(settings, as_json=True) == 0
    assert asked == ["sync"]
    out, err = capsys.readouterr()
    assert "NOT MEASURED: RocketMQ: Java is missing" in err
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0]["name"] == "sync rate"
    assert lines[0]["settings"]["in_flight"] == 64


def test_what_failed_is_said_and_the_others_go_on(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ReplicationBench(rounds=1, only=("async", "sync"))
    assert run_replication_bench(settings, as_json=False) == 1
    assert asked == ["async", "sync"]
    assert "async           FAILED: nobody follows" in capsys.readouterr().err


def test_a_setup_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="--only sunc"):
        run_replication_bench(ReplicationBench(only=("sunc",)), as_json=True)
