"""What the pages for newcomers show of Spark works as it stands, in Spark's own shell."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kourou.testing.cluster import Cluster
from kourou_demo.carrier_totals import SUMS, by_pandas
from kourou_demo.spark_act import ProtocolServers
from kourou_demo.spark_act import _show as show
from kourou_spark_etl import register
from kourou_spark_etl.jobs import flight_data_folder

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.usefixtures("java")
def test_a_plain_shell_reads_a_topic(
    kourou_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    section = page.partition("## A topic as a Spark table")[2]
    block = re.search(r"```python\n(.*?)```\n```text\n(.*?)```", section, re.DOTALL)
    assert block
    program, output = block.groups()
    monkeypatch.delenv("SPARK_HOME")  # in which the shell lies; that of these tests has none
    cluster = kourou_cluster(1)
    with cluster.client() as client:
        client.send("breakfasts", b'{"id": "A-1", "amount": 42}', tag="paid", keys=["A-1"])
        client.send("breakfasts", b'{"id":"A-2","amount":7}', tag="paid", keys=["A-2"])
    done = subprocess.run(
        ["pyspark", "--conf", "spark.ui.enabled=false"],
        input=program.replace("127.0.0.1:9876", cluster.address),
        capture_output=True,
        text=True,
        env=os.environ
        | {
            # What `activate` does; and a shell although nobody types.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYSPARK_DRIVER_PYTHON_OPTS": "-i",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert output in done.stdout, done.stdout + done.stderr


def test_the_demos_table_is_that_of_the_year() -> None:
    """The demo compares all of it with what pandas adds up; what is shown is compared here."""
    text = (DOCS / "demo.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(delays by carrier; .*?)```", text, re.DOTALL)
    assert block
    title, head, *rows, last = block[1].splitlines()
    wanted = by_pandas(flight_data_folder())
    with (flight_data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        names = {row["carrier"]: row["name"] for row in csv.DictReader(file)}
    shown = Shown()
    show(cast("Any", SimpleNamespace(view=shown)), ProtocolServers(wanted, names, wanted))
    assert title == shown.title
    assert head.split() == list(shown.heads)
    lines = [re.split(r" {2,}", row.strip()) for row in rows]
    whole = [[cell.strip() for cell in line] for line in shown.lines]
    gap = lines.index(["…"])
    assert lines[:gap] == whole[:gap]
    assert lines[gap + 1 :] == whole[gap + 1 - len(lines) :]
    totals = len(wanted) * len(SUMS)
    assert last.startswith(f"{totals} of {totals} totals agree with pandas")


class Shown:
    """Keeps the table that is shown."""

    def table(self, title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
        self.title, self.heads, self.lines = title, heads, lines


def test_the_format_may_be_registered_any_number_of_times(spark: Any) -> None:
    """A session made of one that knows it refuses to be told, as that of a batch does."""
    for session in (spark, spark.newSession(), spark.newSession()):
        for _ in range(2):
            register(session)
