"""The Spark pipeline of the demo: the real service, as a separate process.

Java is a child of that process and ends shortly after it. `end` therefore waits for all of them, so
that no process is left and none writes into a folder that is being removed.

State: soft; checkpoints, lake and databases are in the demo's folder.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import msgspec

from kourou.errors import Unavailable
from kourou.service.local_cluster import LocalCluster
from kourou.service.os_processes import RunningProcess, hold_descendants
from kourou.service.processes import Child
from kourou_demo.progress_waits import ProgressWaits
from kourou_demo.terms import TOPIC

NAME = "spark-etl"
LAKE = "lake"
DELAYS = "flights"
TABLE = "flight_delays"
ROWS_A_PAGE = 1_000
ANSWER_S = 10.0
SPARK_STUCK_S = 180.0
"""Java and a first batch take seconds to start; on a busy machine many."""

END_S_MAX = 15.0
"""Java ends when its input is closed; it is killed if it takes longer than this."""

JOBS = f"""
[queries.{LAKE}]
job = "lake"
subscribe = "{TOPIC}"
trigger = "2 seconds"
max_offsets_per_trigger = 40_000

[queries.{DELAYS}]
job = "flights"
subscribe = "{TOPIC}"
trigger = "2 seconds"
max_offsets_per_trigger = 40_000

[queries.{DELAYS}.options]
window = "7 days"
watermark = "30 days"
"""
"""Both queries read from the first flight on. Chunks of flights that are sent concurrently are
several days apart, and the watermark must not drop any of them. With windows of days instead of
weeks, a batch would rewrite about 12,000 rows of the table. Small batches make the progress
visible.
"""

SPARK_OPTIONS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Options for a short run on few cores: one state partition per Spark thread, because every batch
writes all partitions, and only Java's first compiler, which saves a third of Spark's CPU time here.
"""


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """The service's metrics of one query. `ends`: the sum of the offsets that it has reached."""

    rows: int = 0
    late: int = 0
    phase: str = ""
    error: str = ""
    ends: int = 0


class SparkService:
    """The process; as a context manager it stops it, cleanly unless an exception was raised."""

    def __init__(self, child: Child, folder: Path) -> None:
        self._child = child
        self._held: list[RunningProcess] = []
        self.lake_folder = folder / "lake" / LAKE

    @classmethod
    def start(cls, cluster: LocalCluster) -> Self:
        """Start it for the topic of the flights, without waiting.

        The calling thread must live as long as the process.
        """
        folder = cluster.folder / NAME
        jobs = cluster.folder / f"{NAME}.toml"
        jobs.write_text(JOBS, encoding="utf-8")
        settings = {
            "jobFile": str(jobs),
            "namesrvAddr": cluster.address,
            "etlPath": str(folder),
            "adminPort": "0",
            "sparkOptions": ";".join(f"{key}={value}" for key, value in SPARK_OPTIONS.items()),
        }
        options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        child = cluster.children.start(
            NAME,
            [sys.executable, "-m", "kourou_spark_etl", "run", *options],
            environment=quick_home(cluster.folder / "spark-home"),
        )
        return cls(child, folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(in_peace=kind is None)

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._child.pid

    @property
    def ended(self) -> str:
        """How the process ended, with its last output if it failed; empty while it runs."""
        code = self._child.wait_for_exit(0)
        if code is None:
            return ""
        last = f": {self._child.log_tail(1)}" if code > 0 else ""
        return f"the Spark service {self._child.how_it_ended()}{last}"

    async def wait_until_ready(self, waits: ProgressWaits) -> bool:
        """Wait until Java and Spark have started; False if the service ended or is stuck."""

        def started() -> bool:
            return self._child.ready_file.exists() or not self._child.running

        if not await waits.wait("Spark's start", lambda: 0, started, SPARK_STUCK_S):
            return False
        if self.ended:
            return False
        self._child.wait_for_ready()
        self._held += hold_descendants(self._child.pid)
        return True

    def queries(self) -> dict[str, QueryFigures]:
        """Every query, by name; raises Unavailable if the service does not reply."""
        return {
            one["query"]: QueryFigures(
                one["rows"],
                one["rows_late"],
                one["phase"],
                one["error"],
                _reached(one.get("last", {}).get("end_offsets", "")),
            )
            for one in self._ask("/statistics")["queries"]
        }

    def table_rows(self, **conditions: str) -> Iterator[dict[str, Any]]:
        """The matching rows of the read model's table, page by page; raises Unavailable."""
        offset: int | None = 0
        while offset is not None:
            question = {**conditions, "limit": str(ROWS_A_PAGE), "offset": str(offset)}
            page = self._ask(f"/tables/{TABLE}?{urlencode(question)}")
            yield from page["rows"]
            offset = page.get("next")

    def _ask(self, path: str) -> Any:
        place = str(self._child.ready["admin"]).removeprefix("http://")
        connection = http.client.HTTPConnection(place, timeout=ANSWER_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != http.HTTPStatus.OK:
                raise Unavailable(f"the Spark service replied {answer.status} to {path}")
            return json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(self.ended or f"the Spark service does not reply: {error}") from None
        finally:
            connection.close()

    def end(self, *, in_peace: bool) -> None:
        """Stop it, Java and all their descendants; with `in_peace` they finish their work first."""
        if self._child.running:
            if not in_peace:
                self._child.signal(signal.SIGSTOP)  # prevent it from starting more processes
            self._held += hold_descendants(self._child.pid)
        if in_peace:
            self._child.stop()
        else:
            self._child.kill()
        for one in self._held:
            with one:
                if not in_peace or not one.wait_for_end(END_S_MAX):
                    one.kill()
                one.wait_for_end(END_S_MAX)
        self._held.clear()


def quick_home(folder: Path) -> dict[str, str]:
    """A SPARK_HOME in which Spark's Python processes start faster, as an environment variable.

    Spark puts a zip of its Python package first on the path, and modules in a zip are compiled at
    each start. Without the zip, the installed package is used, which is already compiled. Empty if
    SPARK_HOME is already set.
    """
    spec = importlib.util.find_spec("pyspark")
    if "SPARK_HOME" in os.environ or spec is None or not spec.submodule_search_locations:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    for part in Path(spec.submodule_search_locations[0]).iterdir():
        if part.name != "python":
            (folder / part.name).symlink_to(part)
    return {"SPARK_HOME": str(folder)}


def why_not(*, wanted: bool | None, called_as: str) -> str:
    """Why the demo skips Spark, with the command to type; empty if it does not.

    With `wanted` None, Spark runs if Java and the packages are installed. Raises ConfigError if it
    is `wanted` and cannot run, including MissingPackages, so that the launcher installs them first.
    """
    if wanted is False:
        return "--no-spark"
    from kourou_spark_etl.machine import check_machine, lacking, lacking_java

    if wanted:
        check_machine()
    if java := lacking_java():
        return f"{java[0].what}: {java[0].remedy}"
    return f"not installed: {called_as} demo --spark" if lacking() else ""


def _reached(end_offsets: str) -> int:
    """The sum of a topic's end offsets of a batch: {"flights": {"broker-a": {"0": 9}}}."""
    if not end_offsets:
        return 0
    by_topic = msgspec.json.decode(end_offsets, type=dict[str, dict[str, dict[str, int]]])
    return sum(
        offset
        for brokers in by_topic.values()
        for queues in brokers.values()
        for offset in queues.values()
    )
