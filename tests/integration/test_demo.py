"""The demo as a newcomer runs it: every count agrees, and nobody needs RocketMQ's carrier."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kourou.cli.up import layers_lacking
from kourou_demo.story import FIRST
from kourou_spark_etl.machine import lacking_java

FLIGHTS = 336_776
FEW = 1_000

JAVA_PACKAGE = "openjdk-17-jre-headless"
SPARK = {
    "spark_rows": FLIGHTS,
    "spark_duplicates": 0,
    "aggregates_match": True,
    "spark_left_out": None,
}

TRACED = {
    "kourou-broker",
    "kourou-client",
    "kourou-filter-server",
    "kourou-ha-replica",
    "kourou-spark-etl",
}
"""Whom the demo's trace names: its own processes are producers and consumers, both clients."""

WORST_DAY = {
    "calls": 1_832,
    "out_of_order": 0,
    "retried": 34,
    "dead_letters": 472,
    "resent": 472,
    "reminders": 458,
    "early": 0,
    "tickets": 325,
    "unwanted_tickets": 0,
    "asked": 20,
    "late": 10_034,
    "overnight": 2_794,
    "raft_acknowledged": 930,
    "raft_lost": 0,
    "raft_stored_twice": 0,
    "raft_lag_bytes": 0,
    "raft_logs_equal": True,
}
"""Of 8 February 2013: 458 flights left, 34 more than an hour late, 472 were cancelled. Two thirds
of those got a ticket, and 10 more were booked by the desk that died. Of the whole year 10,034
flights arrived over two hours late, 2,794 of them past midnight."""


def demo(*options: str, **environment: str) -> tuple[list[str], dict[str, Any]]:
    """What it told, and its verdict, which is good."""
    done = subprocess.run(
        [sys.executable, "-m", "kourou.cli", "demo", "--plain", "--json", *options],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
        timeout=1_000,  # 40 s alone, ten times as long while other stages run, too
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert done.stderr == "", "what fails on purpose does not reach the terminal"
    *told, verdict = done.stdout.splitlines()
    return told, json.loads(verdict)


def names_everybody(trace_id: str, services: dict[str, list[str]]) -> None:
    """The trace of a few flights through all acts: who sent, stored, copied, judged, consumed."""
    assert re.fullmatch("[0-9a-f]{32}", trace_id)
    assert {"send flights", "process flights", "send radar"} <= set(services["kourou-client"])
    assert "store flights" in services["kourou-broker"]
    assert {"store radar", "replicate"} <= set(services["kourou-ha-replica"])
    assert layers_lacking() or services["kourou-filter-server"] == ["judge flights"]


@pytest.mark.feature(
    "F148", "F178", "F183", "F213", "F221", "F224", "F237", "F238", "F242", "F248", "F252", "F254"
)
@pytest.mark.timeout(1_100)  # some twenty processes: minutes on a machine with much else to do
def test_a_small_demo_is_ok_without_the_tcp_carrier_and_without_java(tmp_path: Path) -> None:
    """Each act has all its parts; the numbers are those of the first day of the year.

    The act on Spark is in tests/spark/test_demo.py; here is said what it would need.
    """
    told, verdict = demo(
        *("--events", str(FEW), "--keep", str(tmp_path / "kept")),
        KOUROU_TCP_ENABLE="false",
        JAVA_HOME=str(tmp_path),
    )
    names_everybody(verdict.pop("trace_id"), verdict.pop("trace_services"))
    reason = verdict.pop("spark_left_out")
    assert reason == f"no Java in JAVA_HOME ({tmp_path}): sudo apt install -y {JAVA_PACKAGE}"
    assert f"   without Spark: {reason}" in told
    assert "tcp" not in (tmp_path / "kept" / "namesrv.log").read_text().replace("tcp://", "")
    assert [line for line in told if line.startswith("== ")][1:-1] == [
        "== 1,000 flights of 2013, published and consumed by a group of two",
        "== query by key: the flights of aircraft N216JB on 2013-01-01",
        "== replay: reset the group to the first flight of 2013-01-02 01:00",
        "== act 2, the worst day: 2013-01-01, 842 flights, 4 cancelled",
        "== ordered consumption: 3,352 boarding calls of 838 flights, two consumers",
        "== retries and dead letters: 842 departures, 51 of them late, 4 cancelled",
        "== delayed messages: 838 reminders for passengers",
        "== transactions: a ticket for each of 4 cancelled flights, 1 rolled back",
        "== act 3, filters: of 1,000 flights those over two hours late",
        "== act 3, filters: those past midnight, by a Python filter over the body",
        "== act 4, failover: the leader of three brokers is killed while 842 flights are sent",
    ]
    saved = [float(line.split()[-6]) for line in told if line.endswith("% of the bytes saved")]
    lacking = layers_lacking()
    assert len(saved) == (1 if lacking else 2)
    assert min(saved) > 95
    assert verdict.pop("redelivered") >= 0
    assert verdict.pop("raft_redelivered") >= 0
    assert verdict.pop("raft_failover_ms") > 0
    before, after = verdict.pop("raft_epochs")
    assert after > before > 0
    assert sum("(SIGKILL)" in line and ", the leader" in line for line in told) == 1
    assert 1 <= verdict.pop("replayed") <= FEW
    assert verdict == {
        "published": FEW,
        "stored": FEW,
        "consumed_unique": FEW,
        "lost": 0,
        "queried": 4,
        "calls": 3_352,
        "out_of_order": 0,
        "retried": 51,
        "dead_letters": 4,
        "resent": 4,
        "reminders": 838,
        "early": 0,
        "tickets": 13,
        "unwanted_tickets": 0,
        "asked": 20,
        "late": 27,
        "overnight": None if lacking else 4,
        "raft_acknowledged": 842,
        "raft_lost": 0,
        "raft_stored_twice": 0,
        "raft_lag_bytes": 0,
        "raft_logs_equal": True,
        "spark_rows": None,
        "spark_rows_while_sent": None,
        "spark_duplicates": None,
        "aggregates_match": None,
        "ok": True,
    }


@pytest.mark.slow
@pytest.mark.timeout(3_300)
def test_the_whole_demo_is_ok_three_times() -> None:
    """The last time nobody listens for RocketMQ's clients: the demo owes them nothing."""
    if lacking := lacking_java():
        pytest.skip(f"needs Java: {lacking[0].remedy}")
    for tcp in ("true", "true", "false"):
        lines, verdict = demo(KOUROU_TCP_ENABLE=tcp)
        print(f"{lines[-1]}: {verdict}")  # noqa: T201 - the counts are results of the test
        assert verdict["published"] == verdict["stored"] == verdict["consumed_unique"] == FLIGHTS
        assert (verdict["lost"], verdict["ok"]) == (0, True)
        assert verdict["redelivered"] >= 0
        assert verdict["queried"] >= 1
        assert 1 <= verdict["replayed"] < FLIGHTS
        assert {name: verdict[name] for name in WORST_DAY} == WORST_DAY
        assert {name: verdict[name] for name in SPARK} == SPARK
        assert verdict["trace_services"].keys() == TRACED
        assert verdict["spark_rows_while_sent"] > FIRST
        assert re.fullmatch(r"== ok after \d+ s", lines[-1]), lines[-5:]
