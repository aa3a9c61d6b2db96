"""The service's process: what it is told, what it is asked, and how all of it ends."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.clock import SystemClock
from kourou.errors import ConfigError, Unavailable
from kourou.service.os_processes import hold_descendants
from kourou.service.processes import Child
from kourou_demo import progress_waits as waits_module
from kourou_demo import spark_service
from kourou_demo.progress_waits import ProgressWaits
from kourou_demo.spark_service import (
    JOBS,
    ROWS_A_PAGE,
    SPARK_OPTIONS,
    QueryFigures,
    SparkService,
    quick_home,
    why_not,
)
from kourou_demo.terms import TOPIC
from kourou_spark_etl import machine
from kourou_spark_etl.job_file import read_jobs

SERVICE = """
import http.server, json, subprocess, sys
answers, ready = json.loads(sys.argv[1]), sys.argv[-1]
java = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])

class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

server = http.server.HTTPServer(("127.0.0.1", 0), Pages)
port = server.server_address[1]
with open(ready + ".new", "w") as file:
    json.dump({"admin": f"http://127.0.0.1:{port}"}, file)
import os
os.rename(ready + ".new", ready)
server.serve_forever()
"""
"""As much of it as is seen from here: a ready file, pages, and a process below it."""


def end_offsets(*offsets: int) -> str:
    return json.dumps({TOPIC: {"broker-a": {str(at): one for at, one in enumerate(offsets)}}})


STATISTICS = {
    "queries": [
        {
            "query": "lake",
            "phase": "running",
            "error": "",
            "rows": 7,
            "rows_late": 0,
            "last": {"end_offsets": end_offsets(3, 4)},
        },
        {"query": "flights", "phase": "starting", "error": "no", "rows": 0, "rows_late": 2},
    ]
}
PAGE = f"/tables/flight_delays?dimension=carrier&limit={ROWS_A_PAGE}&offset="
ANSWERS = {
    "/statistics": STATISTICS,
    f"{PAGE}0": {"rows": [{"name": "UA"}, {"name": "AA"}], "next": 2},
    f"{PAGE}2": {"rows": [{"name": "B6"}]},
}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], tuple[SparkService, Child]]]:
    children: list[Child] = []

    def start(program: str) -> tuple[SparkService, Child]:
        command = [sys.executable, "-c", program, json.dumps(ANSWERS)]
        child = Child("spark-etl", command, tmp_path)
        children.append(child)
        return SparkService(child, tmp_path), child

    yield start
    for child in children:
        child.kill()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> ProgressWaits:
    monkeypatch.setattr(waits_module, "LOOK_S", 0)
    return ProgressWaits(SystemClock(), [])


async def test_it_is_asked_for_queries_and_for_tables_page_by_page(
    started: Callable[[str], tuple[SparkService, Child]], waits: ProgressWaits
) -> None:
    service, child = started(SERVICE)
    assert await service.wait_until_ready(waits)
    assert (service.pid, service.ended) == (child.pid, "")
    assert service.queries() == {
        "lake": QueryFigures(7, 0, "running", "", 7),
        "flights": QueryFigures(0, 2, "starting", "no", 0),
    }
    rows = service.table_rows(dimension="carrier")
    assert [row["name"] for row in rows] == ["UA", "AA", "B6"]
    with pytest.raises(Unavailable, match=r"replied 404 to "):
        list(service.table_rows(dimension="route"))
    child.kill()
    with pytest.raises(Unavailable, match="the Spark service was killed by SIGKILL"):
        service.queries()
    service.end(in_peace=False)


async def test_one_that_ends_before_it_is_ready_is_told_with_its_last_word(
    started: Callable[[str], tuple[SparkService, Child]], waits: ProgressWaits
) -> None:
    service, _ = started("import sys; print('some'); sys.exit('kourou spark-etl: no Java')")
    assert not await service.wait_until_ready(waits)
    assert service.ended == (
        "the Spark service ended by itself with exit code 1: kourou spark-etl: no Java"
    )


@pytest.mark.parametrize("raised", [True, False])
async def test_nothing_below_it_is_left_behind(
    started: Callable[[str], tuple[SparkService, Child]],
    waits: ProgressWaits,
    monkeypatch: pytest.MonkeyPatch,
    *,
    raised: bool,
) -> None:
    """In peace it has a while to end by itself, and this one does not use it."""
    monkeypatch.setattr(spark_service, "END_S_MAX", 0.1)
    service, child = started(SERVICE)
    await service.wait_until_ready(waits)
    (below,) = hold_descendants(child.pid)
    if raised:
        with pytest.raises(KeyboardInterrupt), service:
            raise KeyboardInterrupt
    else:
        with service:
            pass
    assert not child.running
    assert below.wait_for_end(60)
    below.close()


async def test_what_it_left_behind_when_it_was_killed_is_ended(
    started: Callable[[str], tuple[SparkService, Child]],
    waits: ProgressWaits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_service, "END_S_MAX", 0.1)
    service, child = started(SERVICE)
    await service.wait_until_ready(waits)
    (below,) = hold_descendants(child.pid)
    child.kill()
    service.end(in_peace=True)
    assert below.wait_for_end(60)
    below.close()


def test_its_jobs_are_a_job_file() -> None:
    lake, flights = read_jobs(JOBS)
    assert (lake.job, flights.job) == ("lake", "flights")
    assert lake.source["subscribe"] == flights.source["subscribe"] == TOPIC
    assert lake.source["startingOffsets"] == "earliest"
    assert flights.period_ms("watermark") > 14 * 86_400_000
    assert set(tomllib.loads(JOBS)["queries"]) == {spark_service.LAKE, spark_service.DELAYS}


def test_its_options_can_stand_in_one_setting() -> None:
    assert not any(";" in text or "=" in key for key, text in SPARK_OPTIONS.items())


def test_spark_has_a_home_without_its_zips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    view = quick_home(tmp_path / "home")
    home = Path(view["SPARK_HOME"])
    assert list((home / "jars").glob("spark-core*.jar"))
    assert (home / "bin" / "spark-submit").exists()
    assert not list(home.glob("python*"))
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert quick_home(tmp_path / "none") == {}


def test_why_there_is_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(wanted: bool | None) -> str:
        return why_not(wanted=wanted, called_as="./kourou")

    monkeypatch.setattr(machine, "lacking_java", tuple)
    monkeypatch.setattr(machine, "missing_packages", lambda group: ())
    assert (asked(True), asked(None), asked(False)) == ("", "", "--no-spark")
    monkeypatch.setattr(machine, "missing_packages", lambda group: ("pyspark",))
    assert asked(None) == "not installed: ./kourou demo --spark"
    java = machine.Lack("no Java", machine.JAVA_LINE)
    monkeypatch.setattr(machine, "lacking_java", lambda: (java,))
    assert asked(None) == "no Java: sudo apt install -y openjdk-17-jre-headless"
    with pytest.raises(ConfigError, match="this machine has no Java"):
        asked(True)
