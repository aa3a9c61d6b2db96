"""`kourou bench --peers`, as small as it gets: the shape of what it prints, and counts that match.

Peers that are not installed are skipped; RocketMQ runs where its jars have been fetched by a first
`./kourou bench --peers`, as a test fetches nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kourou.cli.bench.jars import have, read_list
from kourou.cli.bench.measure import Scale, measure
from kourou.cli.bench.rocketmq import JavaAtKourou, RocketMq
from kourou.cli.bench.rows import BACKLOG, DELAYED, HUGE_BACKLOG, HUGE_LOG_BYTES, Name, Work
from kourou.cli.bench.systems import Kourou, Nats, Redis, System

TINY = Scale(
    seconds=0.3, warm_seconds=0.1, size=256, backlog=3_000, settle_seconds=0, huge_share=0.000_1
)
VALUES = {
    Work("send", in_flight=8): {"rate", "p50_ms", "p99_ms"},
    Work("send", in_flight=2, batch=16): {"rate", "p50_ms", "p99_ms"},
    Work("send", in_flight=8, flush="sync"): {"rate", "p50_ms", "p99_ms"},
    Work("consume", messages=1): {"rate"},
    Work("consume", messages=1, handler="batch"): {"rate"},
    Work("latency"): {"p50_ms", "p99_ms"},
    Work("idle"): {"start_s", "rss_mb"},
}
BOTH = {
    Work("oneway", in_flight=4): {"rate"},
    Work("ordered", messages=BACKLOG): {"rate"},
    Work("broadcast", messages=BACKLOG): {"rate"},
    Work("filtered", messages=BACKLOG): {"rate"},
    Work("delayed", in_flight=8, messages=DELAYED, delay_level=1, pace=10_000): {
        *("rate", "waiting", "p50_ms", "p99_ms")
    },
    Work("transactions", in_flight=8): {"rate", "p50_ms", "p99_ms"},
}
JAVA = {
    Work("send", in_flight=8): {"rate", "p50_ms", "p99_ms"},
    Work("send-async", in_flight=8): {"rate"},
    Work("oneway", in_flight=4): {"rate"},
    Work("send", in_flight=2, batch=16): {"rate", "p50_ms", "p99_ms"},
    Work("consume", messages=BACKLOG): {"rate"},
}
OWN = {
    Work("send", in_flight=8, topics=3, queues=20): {"rate", "p50_ms", "p99_ms"},
    Work("send", in_flight=8, backlog=HUGE_BACKLOG): {"rate", "p50_ms", "p99_ms"},
    Work("restart", messages=HUGE_LOG_BYTES): {"start_s"},
}


QUICK = {
    Work("send", in_flight=8),
    Work("consume", messages=1, handler="batch"),
    Work("send", in_flight=8, topics=3, queues=20),
    Work("restart", messages=HUGE_LOG_BYTES),
    *(work for work in BOTH if work.kind in {"ordered", "transactions"}),
}


def works(*tables: dict[Work, set[str]]) -> list[Any]:
    """Every work; those that start the same servers for little else only in the long run."""
    return [
        pytest.param(work, id=str(work), marks=[] if work in QUICK else [pytest.mark.slow])
        for table in tables
        for work in table
    ]


def system(name: Name, root: Path) -> System:
    """The system, or a skip that says what is missing."""
    sources = root / "benchmarks"
    known: dict[Name, System] = {
        Name.KOUROU: Kourou(),
        Name.ROCKETMQ: RocketMq(sources / "java", root / ".peers"),
        Name.NATS: Nats(sources / "peers"),
        Name.REDIS: Redis(sources / "peers"),
    }
    missing = known[name].missing()
    jars = read_list((sources / "java" / "rocketmq.jars").read_text(encoding="utf-8"))
    if name is Name.ROCKETMQ and not missing and not have(jars, root / ".peers"):
        missing = "RocketMQ's jars are not fetched yet: ./kourou bench --peers fetches them"
    if missing:
        pytest.skip(f"needs a peer: {missing}")
    return known[name]


@pytest.mark.parametrize("work", works(VALUES, BOTH, OWN))
def test_kourou_does_every_work_and_its_counts_match(
    work: Work, pytestconfig: pytest.Config
) -> None:
    outcome = measure(system(Name.KOUROU, pytestconfig.rootpath), work, TINY)
    assert set(outcome.values) == (VALUES | BOTH | OWN)[work]
    assert all(value > 0 for value in outcome.values.values())


@pytest.mark.parametrize(
    "name", [pytest.param(Name.ROCKETMQ, marks=pytest.mark.slow), Name.NATS, Name.REDIS]
)
@pytest.mark.parametrize("work", works(VALUES))
def test_peers_do_the_same_work(name: Name, work: Work, pytestconfig: pytest.Config) -> None:
    peer = system(name, pytestconfig.rootpath)
    if name is Name.NATS and (work.batch > 1 or peer.cannot(work)):
        return  # no row asks for it
    outcome = measure(peer, work, TINY)
    assert set(outcome.values) == VALUES[work]
    assert all(value > 0 for value in outcome.values.values())


@pytest.mark.slow
@pytest.mark.parametrize("work", works(BOTH))
def test_rocketmq_does_what_only_it_has_as_well(work: Work, pytestconfig: pytest.Config) -> None:
    outcome = measure(system(Name.ROCKETMQ, pytestconfig.rootpath), work, TINY)
    assert set(outcome.values) == BOTH[work]
    assert all(value > 0 for value in outcome.values.values())


@pytest.mark.slow
@pytest.mark.parametrize("work", works(JAVA))
def test_the_java_client_does_the_same_work_at_our_servers(
    work: Work, pytestconfig: pytest.Config
) -> None:
    root = pytestconfig.rootpath
    system(Name.ROCKETMQ, root)  # or a skip
    outcome = measure(JavaAtKourou(root / "benchmarks" / "java", root / ".peers"), work, TINY)
    assert set(outcome.values) == JAVA[work]
    assert all(value > 0 for value in outcome.values.values())


@pytest.mark.slow
def test_rocketmq_stores_and_hands_out_a_backlog(pytestconfig: pytest.Config) -> None:
    outcome = measure(
        system(Name.ROCKETMQ, pytestconfig.rootpath), Work("consume", messages=1), TINY
    )
    assert outcome.handed == outcome.stored == 3_000 // 256 * 256


@pytest.mark.timeout(300)  # several processes: a minute on a machine with much to do
def test_the_command_prints_a_line_a_figure() -> None:
    done = bench("--only", "send-64,java-send-1,queues", "--among", "kourou", "--json")
    assert done.returncode == 0, done.stderr
    lines = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert lines["send-64 kourou"]["value"] > 0
    assert lines["queues kourou/itself"]["value"] > 0
    assert lines["send-64 rocketmq"]["not_measured"] == "rocketmq was not asked for"
    assert lines["java-send-1 kourou"]["not_measured"] == (
        "rocketmq, whose client does it, was not asked for"
    )
    assert lines["send-64 kourou"]["settings"]["size"] == 256
    assert "NOT MEASURED: rocketmq was not asked for" in done.stderr


def test_a_peer_that_is_missing_is_said_loudly_and_is_no_failure(tmp_path: Path) -> None:
    done = bench("--only", "send-64", "--among", "nats,redis", PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()
    assert any(line.startswith("send, 64 in flight") for line in table)
    assert any(
        line.startswith("NOT MEASURED: nats-server is not installed: sudo apt") for line in table
    )


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    small = ("--rounds", "1", "--seconds", "0.3", "--warm-seconds", "0.1", "--size", "256")
    return subprocess.run(
        [sys.executable, "-m", "kourou.cli", "bench", "--peers", *arguments, *small],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_no_server_is_left_behind(tmp_path: Path) -> None:
    if shutil.which("nats-server") is None:
        pytest.skip("needs a peer: nats-server is not installed")
    done = bench("--only", "send-1", "--among", "nats", "--json", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in running.stdout
