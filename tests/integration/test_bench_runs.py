"""`kourou bench tracing` and `kourou bench memory` from end to end, as short as they can be."""

from __future__ import annotations

import json
import math
import time

import pytest

from kourou.service.local_cluster import LocalCluster
from kourou_bench import tracing_run
from kourou_bench.memory_run import run_memory_bench
from kourou_bench.tracing_run import TracingBench, run_tracing_bench

WAIT_S = 30


def test_tracing_measures_sends_with_and_without_it(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spans_of = tracing_run._spans_of

    def patient(cluster: LocalCluster) -> int:
        """A broker exports every five seconds, which is longer than all that is sent here."""
        deadline = time.monotonic() + WAIT_S
        while not (found := spans_of(cluster)) and time.monotonic() < deadline:
            pass
        return found

    monkeypatch.setattr(tracing_run, "_spans_of", patient)
    bench = TracingBench(rounds=1, seconds=0.1, ratio=1.0)
    assert run_tracing_bench(bench, as_json=True) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["plain_sends_per_s"] > 0
    ratio = found["traced_sends_per_s"] / found["plain_sends_per_s"]
    assert math.isclose(found["ratio_of_sends"], ratio)
    assert found["ratio_of_cpu"] > 0
    assert found["spans"] > 0, "one of the two traces"


def test_memory_is_that_of_every_process_of_the_suite(capfd: pytest.CaptureFixture[str]) -> None:
    """A name server, two brokers with a copy and a filter server each, the console."""
    assert run_memory_bench(settle_seconds=0, as_json=True) == 0
    services = [
        *("name server", "broker", "broker", "copy", "copy"),
        *("filter server", "filter server", "console"),
    ]
    found = json.loads(capfd.readouterr().out)
    rows = found["processes"]
    assert [row["service"] for row in rows] == services
    assert all(0 < row["share_bytes"] <= row["resident_bytes"] for row in rows)
    for key in ("share_bytes", "resident_bytes"):
        assert found[key] == sum(row[key] for row in rows)
