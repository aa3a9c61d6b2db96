"""The suite of docker-compose.yml as it runs on podman: what tests of it ask and look at.

The files of the lake are read where podman keeps the volume; that is this machine's own disk.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet
from tests.containers.podman_engine import PodmanEngine

from kourou_spark_etl.lake_files import lake_paths

PROJECT = "kourou-test"
COMPOSE_FILE = Path(__file__).parents[2] / "docker-compose.yml"
PORTS = tuple(sorted(set(re.findall(r"\$\{(KOUROU_\w*PORT):-", COMPOSE_FILE.read_text("utf-8")))))
"""Every variable that says where something is published."""

FILTER_SERVERS = ("filter-server", "filter-server-2", "filter-server-b")
PROFILE = "deploy/seccomp/filter-server.json"
BROKERS = ("broker", "broker-b")
REPLICAS = ("ha-replica", "ha-replica-b")
OURS = ("namesrv", *BROKERS, *REPLICAS, *FILTER_SERVERS, "spark-etl", "console")
WATCHING = ("collector", "jaeger", "prometheus", "grafana")
RAFT = ("raft-n0", "raft-n1", "raft-n2")
CLUSTER = ("spark-master", "spark-worker", "spark-worker-2")
START_S = "600"
"""Java and Spark start, on a machine with much else to do."""

WAIT_S = 400.0
LOOK_S = 0.5
PAGE_S = 60

Up = Callable[..., str]
Found = TypeVar("Found")


def until(what: str, look: Callable[[], Found | None], within_s: float = WAIT_S) -> Found:
    """What `look` finds at last; an AssertionError says what it was waiting for."""
    waiting = threading.Event()
    for _ in range(int(within_s / LOOK_S)):
        found = look()
        if found:
            return found
        waiting.wait(LOOK_S)
    raise AssertionError(f"{what}: not within {within_s:g} s")


def kourou(
    ports: dict[str, str], *arguments: str, given: str = "", may_fail: bool = False
) -> list[str]:
    """Our command line on this machine, told only the address that is published.

    With `may_fail` what it printed counts, whatever it says of it. Its keys are in this process's
    environment, as docs/containers.md has them exported.
    """
    done = subprocess.run(
        [sys.executable, "-m", "kourou.cli", *arguments],
        env=os.environ | {"NAMESRV_ADDR": address(ports)},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert may_fail or done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def address(ports: dict[str, str]) -> str:
    """What a client on this machine is given."""
    return f"127.0.0.1:{ports['KOUROU_NAMESRV_PORT']}"


def states(up: Up) -> dict[str, tuple[str, int]]:
    """Service -> its state and exit code."""
    told = up("--profile", "*", "ps", "--all", "--format", "json")
    rows = [json.loads(line) for line in told.splitlines()]
    return {row["Service"]: (row["State"], row["ExitCode"]) for row in rows}


def number(path: Path) -> int:
    """Of a file of Spark's log: its name."""
    return int(path.name)


class Pipeline:
    """The service spark-etl from outside: its pages, its files, its container."""

    def __init__(self, engine: PodmanEngine, up: Up, ports: dict[str, str]) -> None:
        self._engine = engine
        self._up = up
        self._page = f"http://127.0.0.1:{ports['KOUROU_SPARK_ADMIN_PORT']}"

    # -- pages --------------------------------------------------------------------------------

    def table(self, name: str, **question: str | int) -> list[dict[str, Any]]:
        """Rows of the read model, as this machine gets them over HTTP; none while it is away."""
        asked = urllib.parse.urlencode(question)
        url = f"{self._page}/tables/{name}?{asked}"
        try:
            with urllib.request.urlopen(url, timeout=PAGE_S) as answer:
                return list(json.load(answer)["rows"])
        except OSError:  # it has been killed, or starts; who waits asks again
            return []

    def letters(self, group: str) -> int:
        """The dead letters of a group, as the read model has them."""
        return sum(int(row["letters"]) for row in self.table("dead_letters", consumer_group=group))

    def batches(self, query: str) -> list[tuple[str, int, int]]:
        """Checkpoint, number and rows of each batch of a query, in their order."""
        rows = self.table("etl_batch", query=query, order="batch_id", limit=1_000)
        return [(row["query_id"], row["batch_id"], row["rows_written"]) for row in rows]

    # -- files --------------------------------------------------------------------------------

    @property
    def volume(self) -> Path:
        """Where the volume spark-data lies on this machine."""
        name = f"{PROJECT}_spark-data"
        told = self._engine.podman("volume", "inspect", name, "--format", "{{.Mountpoint}}")
        return Path(told.strip())

    def bodies(self, topic: str) -> list[str]:
        """The bodies of all rows of a topic in the lake; one that is there twice, twice."""
        folder = self.volume / "spark-etl" / "lake" / "lake"
        return sorted(
            value.decode()
            for path in lake_paths(folder)
            if f"/topic={topic}/" in str(path)
            for value in pyarrow.parquet.ParquetFile(path).read(["value"])["value"].to_pylist()
        )

    def rows(self) -> int:
        """The rows of the whole lake."""
        folder = self.volume / "spark-etl" / "lake" / "lake"
        return sum(
            pyarrow.parquet.ParquetFile(path).metadata.num_rows for path in lake_paths(folder)
        )

    def batches_of_checkpoint(self, query: str) -> list[str]:
        """The offsets of each batch that its checkpoint has, in their order."""
        folder = self.volume / "spark-etl" / "checkpoints" / query / "offsets"
        numbered = [path for path in folder.iterdir() if path.name.isdecimal()]
        return [path.read_text(encoding="utf-8") for path in sorted(numbered, key=number)]

    def wait_for_rows(self, topic: str, expected: list[str]) -> None:
        """Until so many rows are there; then they are those, none missing and none twice."""
        until(
            f"{len(expected)} rows of {topic} in the lake",
            lambda: len(self.bodies(topic)) >= len(expected),
        )
        assert self.bodies(topic) == sorted(expected)

    # -- its container ------------------------------------------------------------------------

    @property
    def container(self) -> dict[str, Any]:
        """What podman tells of it."""
        [identity] = self._up("ps", "--quiet", "spark-etl").split()
        return dict(json.loads(self._engine.podman("inspect", identity))[0])

    def kill(self) -> None:
        """SIGKILL to everything in it, by nobody that its engine knows; until it runs again."""
        before = self.container["State"]["Pid"]
        os.kill(before, 9)

        def started_again() -> bool:
            state = self.container["State"]
            return bool(state["Running"] and state["Pid"] not in (0, before))

        until("the engine starts it again", started_again)
