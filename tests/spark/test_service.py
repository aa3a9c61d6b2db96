"""The service as a process, with Java below it: run, killed, run again, stopped."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kourou.eventstore.event_store import EventStore
from kourou.service.processes import Child
from kourou.testing.cluster import Cluster
from kourou_spark_etl.batch_events import STREAM, BatchWritten, of_recorded
from kourou_spark_etl.lake_files import lake_paths

READY_MS = 300_000
LOOKS = 1_200
FLIGHTS = 600

JOBS = """
[queries.lake]
job = "lake"
subscribe = "{topic}"
trigger = "1 second"
group = "lake"

[queries.flights]
job = "flights"
subscribe = "{topic}"
trigger = "1 second"
max_offsets_per_trigger = 200

[queries.absent]
job = "lake"
subscribe = "there-is-none"

[queries.letters]
job = "dead_letters"
trigger = "1 second"

[queries.off]
job = "dead_letters"
enabled = false
"""


@pytest.fixture
def cluster(java: None, kourou_cluster: Callable[..., Cluster]) -> Cluster:
    return kourou_cluster(1)


class Running:
    """The service, started anew as often as wanted."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self.cluster = cluster
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        command = [sys.executable, "-m", "kourou_spark_etl", "run"]
        command += ["--jobs", str(self.folder / "jobs.toml"), "-n", self.cluster.address]
        command += ["--set", "adminPort=0", "--set", f"etlPath={self.folder}"]
        self.child = Child(f"spark-etl-{self.starts}", command, self.folder)
        ready = self.child.wait_for_ready(READY_MS)
        self.page = ready["admin"]
        # Held from now on: should it outlive its parent, its number cannot be taken for another's.
        self.java = [os.pidfd_open(pid) for pid in children(self.child.pid)]
        assert self.java, "Java is a child of the service"

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.page}{path}", timeout=30) as answer:
            return json.load(answer)

    def until(self, satisfied: Callable[[], bool]) -> None:
        for _ in range(LOOKS):
            if satisfied():
                return
            assert self.child.running, self.child.log_tail()
            select.select([], [], [], 0.25)  # its own work is waited for, in another process
        raise AssertionError(f"{self.queries()} {self.child.log_tail()}")

    def queries(self) -> dict[str, Any]:
        return {one["query"]: one for one in self.ask("/statistics")["queries"]}

    def unready(self) -> set[str]:
        with pytest.raises(urllib.error.HTTPError) as answer:
            self.ask("/readyz")
        told = answer.value.read().decode()
        return {name for name in self.queries() if f"{name}: " in told}

    def flights(self) -> Counter[str]:
        page = self.ask("/tables/flight_delays?dimension=carrier&limit=1000")
        found: Counter[str] = Counter()
        for row in page["rows"]:
            found[row["name"]] += row["flights"]
        return found

    def java_has_ended(self) -> bool:
        ended = [select.select([held], [], [], 60)[0] for held in self.java]
        for held in self.java:
            os.close(held)
        return all(ended)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.mark.slow
def test_a_service_that_is_killed_goes_on_where_it_was(
    tmp_path: Path, cluster: Cluster, flights_of: Callable[[int], list[Any]]
) -> None:
    topic = cluster.create_topic("flights", queues=2)
    events = flights_of(FLIGHTS)
    (tmp_path / "jobs.toml").write_text(JOBS.format(topic=topic))

    def send(some: list[Any]) -> None:
        with cluster.client() as client:
            for event in some:
                client.send(topic, event.body, tag=event.tag, keys=event.keys)

    send(events[: FLIGHTS // 2])
    service = Running(tmp_path, cluster)
    try:
        service.until(lambda: service.flights().total() == FLIGHTS // 2)
        service.until(lambda: service.queries()["absent"]["failures"] >= 2)
        absent = service.queries()["absent"]
        assert "there-is-none" in absent["error"]
        assert service.queries()["off"]["phase"] == "off"
        service.until(lambda: service.unready() == {"absent"})  # and not `letters`, which is idle
        send(events[FLIGHTS // 2 :])
        service.child.kill()  # whatever it was doing
        assert service.java_has_ended()

        service.start()
        service.until(lambda: service.flights().total() == FLIGHTS)
        service.until(lambda: rows_in_lake(tmp_path) >= FLIGHTS)
        with cluster.client() as client:
            service.until(lambda: client.admin.offsets.lag("lake", topic) == 0)
        service.child.signal(signal.SIGTERM)
        assert service.child.wait_for_exit(60) == 0, service.child.log_tail()
        assert service.java_has_ended()
    finally:
        service.child.kill()

    values = [
        value
        for path in lake_paths(tmp_path / "lake" / "lake")
        for value in pq.ParquetFile(path).read(columns=["value"])["value"].to_pylist()
    ]
    assert sorted(values) == sorted(event.body for event in events)
    batches = written_batches(tmp_path)
    assert max(batches.values()) == 1, "a batch is one event"
    for query in ("lake", "flights"):
        numbers = sorted(number for name, number in batches if name == query)
        assert numbers == list(range(len(numbers)))


def rows_in_lake(folder: Path) -> int:
    return sum(
        pq.ParquetFile(path).metadata.num_rows for path in lake_paths(folder / "lake" / "lake")
    )


def written_batches(folder: Path) -> Counter[tuple[str, int]]:
    store = EventStore.at(folder / "events.db")
    found: Counter[tuple[str, int]] = Counter()
    for recorded in store.events(stream=STREAM):
        event = of_recorded(recorded)
        if isinstance(event, BatchWritten):
            found[event.query, event.batch_id] += 1
    store.close()
    return found
