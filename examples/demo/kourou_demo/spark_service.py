"""The Spark pipeline of the demo: the real service, as a process beside the brokers.

Java is a child of that process and ends a moment after it. So the end is waited for of all of them:
nothing is left behind, and nobody writes into a folder that is being removed.

State: soft; its checkpoints, its lake and its databases lie in the demo's folder.
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
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import msgspec

from kourou.errors import Unavailable
from kourou.service.local_cluster import LocalCluster
from kourou.service.process_names import Running
from kourou.service.processes import Child
from kourou_bench.families import hold_descendants
from kourou_demo.patience import Patience
from kourou_demo.terms import TOPIC

NAME = "spark-etl"
LAKE = "lake"
DELAYS = "flights"
TABLE = "flight_delays"
ROWS_A_PAGE = 1_000
ANSWER_S = 10.0
SPARK_STUCK_S = 180.0
"""Java takes seconds to start, and so does a first batch; on a busy machine many of them."""

END_S_MAX = 15.0
"""Java ends when its input does; what does not is killed."""

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
"""Both queries read what was stored, from the first flight on. Chunks of flights that are sent side
by side are some days apart, and none of them may come too late for its window. By days instead of
weeks, a batch would write a dozen thousand rows of the table anew. Batches are small enough to be
seen one after the other."""

SPARK_OPTIONS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For a short life beside others on few cores: one partition of state for each of Spark's threads,
because every batch writes all of them, and Java's quick compiler alone, which spares a third of all
that Spark computes here."""


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """What the service says of one query. `ends`: the offsets it has come to, added up."""

    rows: int = 0
    late: int = 0
    phase: str = ""
    error: str = ""
    ends: int = 0


class SparkService:
    """The process; a context manager that ends it, in peace unless something was raised."""

    def __init__(self, child: Child, folder: Path) -> None:
        self._child = child
        self._held: list[Running] = []
        self.lake_folder = folder / "lake" / LAKE

    @classmethod
    def start(cls, cluster: LocalCluster) -> Self:
        """Start it for the topic of the flights, and do not wait. From a thread that lives on."""
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
        told = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        child = cluster.children.start(
            NAME,
            [sys.executable, "-m", "kourou_spark_etl", "run", *told],
            environment=quick_home(cluster.folder / "spark-home"),
        )
        return cls(child, folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(in_peace=error is None)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def ended(self) -> str:
        """How it ended, in words, and its last one if it ended by itself; empty while it runs."""
        code = self._child.wait_for_exit(0)
        if code is None:
            return ""
        last = f": {self._child.log_tail(1)}" if code > 0 else ""
        return f"the Spark service {self._child.how_it_ended()}{last}"

    async def wait_until_ready(self, patience: Patience) -> bool:
        """Until Java and Spark have started. False if the service ended, or is stuck as told."""

        def started() -> bool:
            return self._child.ready_file.exists() or not self._child.running

        if not await patience.wait("Spark's start", lambda: 0, started, SPARK_STUCK_S):
            return False
        if self.ended:
            return False
        self._child.wait_for_ready()
        self._held += hold_descendants(self._child.pid)
        return True

    def queries(self) -> dict[str, QueryFigures]:
        """Every query, by its name. Unavailable if the service does not answer."""
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
        """The rows of the read model's table that fit, page by page. Raises Unavailable."""
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
        """End it, Java and all that they started; in peace they finish what is under way."""
        if self._child.running:
            if not in_peace:
                self._child.signal(signal.SIGSTOP)  # so that it starts nothing more meanwhile
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
    """A home for Spark, in which its Python processes start sooner, as a variable.

    Spark puts a zip of its Python before all else, and what lies in a zip is compiled at each
    start. Without that zip they take what is installed, which is compiled already. Nothing where
    somebody has said which home to take.
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
    """Why the demo leaves Spark out, with the line to type; empty if it does not.

    None runs it where Java and the packages are installed. Raises ConfigError where it is `wanted`
    and cannot run: MissingPackages among them, so that the launcher fetches them first.
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
    """The sum of a topic's offsets, by which a batch ended: {"flights": {"broker-a": {"0": 9}}}."""
    if not end_offsets:
        return 0
    by_topic = msgspec.json.decode(end_offsets, type=dict[str, dict[str, dict[str, int]]])
    return sum(
        offset
        for brokers in by_topic.values()
        for queues in brokers.values()
        for offset in queues.values()
    )
