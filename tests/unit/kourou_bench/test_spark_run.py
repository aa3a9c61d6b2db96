"""Figures stand under what was measured; what is missing is said before anything starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_bench import spark_run
from kourou_bench.figures import Figure
from kourou_bench.spark_run import SparkBench, heading, run_spark_bench


def test_the_heading_names_the_circumstances() -> None:
    assert heading(SparkBench(10_000, (128, 1_024), 2, rate=500, seconds=5)) == (
        "spark: 10,000 messages of 128 and 1,024 bytes in 4 queues, 2 rounds; "
        "500 events/s for 5 s; a temporary cluster, Spark on local[2]"
    )


def test_what_would_measure_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 is too few; use at least 4"):
        SparkBench(3)
    with pytest.raises(ConfigError, match="only local"):
        SparkBench(master="spark://else:7077")


def test_without_java_or_spark_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt install -y openjdk-17-jre-headless"):
        run_spark_bench(SparkBench(), as_json=False)


def test_people_get_a_heading_and_machines_do_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark_run, "check_spark", lambda: None)
    monkeypatch.setattr(spark_run, "_measured", lambda settings: iter([Figure("a", "ms", 1.0)]))
    assert run_spark_bench(SparkBench(), as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[0] == heading(SparkBench())
    assert run_spark_bench(SparkBench(), as_json=True) == 0
    view = json.loads(capsys.readouterr().out)["settings"]
    assert (view["kind"], view["sizes"]) == ("spark", [128, 1_024])


def test_the_command_line_loads_no_spark() -> None:
    code = (
        "import sys, kourou.cli.commands, kourou_bench.spark_run\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
