"""`kourou bench --peers`, as small as it gets: the shape of what it prints, and counts that match.

Peers that are not installed are skipped; RocketMQ runs where its jars have been fetched by a first
`./kourou bench --peers`, as a test fetches nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kourou_bench.jars import have, read_list
from kourou_bench.kafka import Kafka
from kourou_bench.measure import Sample, Scale, prepared
from kourou_bench.rocketmq import JavaAtKourou, RocketMq
from kourou_bench.rows import (
    BACKLOG,
    COLD,
    DELAYED,
    HUGE_BACKLOG,
    HUGE_LOG_BYTES,
    RT_SENDS,
    Name,
    Work,
)
from kourou_bench.systems import Kourou, Nats, Redis, System

TINY = Scale(seconds=0.3, size=256, backlog=3_000, settle_seconds=0, huge_share=0.000_1)
VALUES = {
    Work("send", in_flight=8): {"rate", "p50_ms", "p99_ms"},
    Work("send", in_flight=2, batch=16): {"rate", "p50_ms", "p99_ms"},
    Work("send", in_flight=8, flush="sync"): {"rate", "p50_ms", "p99_ms"},
    Work("consume", messages=BACKLOG): {"rate"},
    Work("consume", messages=BACKLOG, handler="batch"): {"rate"},
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
    Work("transactions", in_flight=8): {"rate", "p50_ms", "p99_ms"},
}
MQADMIN = {
    Work("check-send-rt", messages=RT_SENDS): {"mean_ms"},
    Work("cluster-rt", messages=RT_SENDS): {"mean_ms"},
}
OWN = {
    Work("send", in_flight=8, topics=3, queues=20): {"rate", "p50_ms", "p99_ms"},
    Work("send", in_flight=8, backlog=HUGE_BACKLOG): {"rate", "p50_ms", "p99_ms"},
    Work("restart", messages=HUGE_LOG_BYTES): {"start_s"},
}


QUICK = {
    Work("send", in_flight=8),
    Work("consume", messages=BACKLOG, handler="batch"),
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
    """The system, or a skip that says what is missing; no jar is fetched for a test."""
    sources, cache = root / "benchmarks", root / ".peers"
    known: dict[Name, System] = {
        Name.KOUROU: Kourou(),
        Name.ROCKETMQ: RocketMq(sources / "java", cache),
        Name.ROCKETMQ5: RocketMq(sources / "java", cache, Name.ROCKETMQ5),
        Name.KAFKA: Kafka(sources / "java", sources / "peers", cache),
        Name.NATS: Nats(sources / "peers"),
        Name.REDIS: Redis(sources / "peers"),
    }
    missing = known[name].missing()
    for listed in JARS.get(name, ()):
        jars = read_list((sources / "java" / listed).read_text(encoding="utf-8"))
        if not missing and not have(jars, cache):
            missing = "its jars are not fetched yet: ./kourou bench --peers fetches them"
    if missing:
        pytest.skip(f"needs a peer: {missing}")
    return known[name]


JARS = {
    Name.ROCKETMQ: ("rocketmq.jars", "rocketmq-client-4.9.8.jars"),
    Name.ROCKETMQ5: ("rocketmq-5.3.3.jars",),
    Name.KAFKA: ("kafka.jars",),
}


def measured(system: System, work: Work, values: set[str]) -> list[Sample]:
    """Two rounds of the same driver, whose counts have been checked, each by itself."""
    with prepared(system, work, TINY) as there:
        rounds = [there.sample() for _ in range(1 if work.kind in COLD else 2)]
    for sample in rounds:
        assert sample.outcome is not None
        assert set(sample.outcome.values) == values
        assert all(value > 0 for value in sample.outcome.values.values())
        if work.kind not in COLD:
            assert sample.outcome.messages > 0
            assert sample.outcome.seconds > 0
            assert sample.server_us is not None
    return rounds


@pytest.mark.parametrize("work", works(VALUES, BOTH, OWN))
def test_kourou_does_every_work_and_its_counts_match(
    work: Work, pytestconfig: pytest.Config
) -> None:
    measured(system(Name.KOUROU, pytestconfig.rootpath), work, (VALUES | BOTH | OWN)[work])


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in JARS),
        *(Name.NATS, Name.REDIS),
    ],
)
@pytest.mark.parametrize("work", works(VALUES))
def test_peers_do_the_same_work(name: Name, work: Work, pytestconfig: pytest.Config) -> None:
    peer = system(name, pytestconfig.rootpath)
    if name is Name.NATS and (work.batch > 1 or peer.cannot(work)):
        return  # no row asks for it
    measured(peer, work, VALUES[work])


@pytest.mark.slow
@pytest.mark.parametrize("name", [Name.ROCKETMQ, Name.ROCKETMQ5])
@pytest.mark.parametrize("work", works(BOTH, MQADMIN))
def test_rocketmq_does_what_only_it_has_as_well(
    name: Name, work: Work, pytestconfig: pytest.Config
) -> None:
    measured(system(name, pytestconfig.rootpath), work, (BOTH | MQADMIN)[work])


@pytest.mark.slow
@pytest.mark.parametrize("name", [Name.ROCKETMQ, Name.ROCKETMQ5])
@pytest.mark.parametrize("work", works(JAVA, MQADMIN))
def test_the_java_clients_do_the_same_work_at_our_servers(
    name: Name, work: Work, pytestconfig: pytest.Config
) -> None:
    root = pytestconfig.rootpath
    system(name, root)  # or a skip
    ours = JavaAtKourou(root / "benchmarks" / "java", root / ".peers", name)
    measured(ours, work, (JAVA | MQADMIN)[work])


@pytest.mark.timeout(300)  # several processes: a minute on a machine with much to do
def test_the_command_prints_a_line_a_figure() -> None:
    done = bench("--only", "send-64,java-send-1,queues", "--among", "kourou", "--json")
    assert done.returncode == 0, done.stderr
    lines = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert lines["send-64 kourou"]["value"] > 0
    assert lines["queues kourou/itself"]["value"] > 0
    assert lines["send-64 rocketmq"]["not_measured"] == "rocketmq was not selected"
    assert lines["java-send-1 kourou"]["not_measured"] == (
        "rocketmq, whose client is needed, was not selected"
    )
    assert lines["send-64 kourou"]["settings"]["size"] == 256
    assert "NOT MEASURED: rocketmq was not selected" in done.stderr


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    small = ("--rounds", "1", "--seconds", "0.3", "--warm-limit", "0.1", "--size", "256")
    return subprocess.run(
        [sys.executable, "-m", "kourou.cli", "bench", "--peers", *arguments, *small],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
