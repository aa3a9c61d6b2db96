"""The last act of `kourou demo`, with the real service, Java below it, and real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou_demo.carrier_totals import SUMS
from kourou_demo.story import FIRST

FLIGHTS = 1_000
PROTOCOLS = 14
"""That flew in the first days of January."""


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_flights_become_rows_and_tables_while_they_are_sent(tmp_path: Path) -> None:
    """It says ok only if each row is there once, and every total is what pandas computes."""
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "kourou.cli", "demo", "--plain", "--json"]
    done = subprocess.run(
        [*command, "--events", str(FLIGHTS), "--keep", str(kept)],
        capture_output=True,
        text=True,
        env=os.environ | {"KOUROU_TCP_ENABLE": "false"},
        check=False,
    )
    log = kept / "spark-etl.log"
    told = done.stdout[-4_000:] + done.stderr[-2_000:] + log.read_text(errors="replace")[-2_000:]
    assert (done.returncode, done.stderr) == (0, ""), told
    *lines, verdict = done.stdout.splitlines()
    numbers = json.loads(verdict)
    assert numbers["spark_rows"] == FLIGHTS
    assert FIRST <= numbers["spark_rows_while_sent"] <= FLIGHTS
    assert (numbers["spark_duplicates"], numbers["aggregates_match"]) == (0, True)
    assert (numbers["spark_left_out"], numbers["ok"]) == (None, True)
    assert "kourou-spark-etl" in numbers["trace_services"], numbers["trace_services"]
    title = "== act 5, Spark: 1,000 flights as rows of Parquet, delays by carrier as tables"
    last = lines[lines.index(title) :]
    assert [line for line in last if "0 duplicates, 0 missing, 0 wrong" in line]
    assert any(line.split()[:3] == ["United", "Air", "Lines"] for line in last)
    sums = PROTOCOLS * len(SUMS)
    assert f"   {sums} of {sums} totals agree with pandas" in last
    assert max(map(len, last)) <= 100
