"""The service's jobs on a cluster, where nothing but the master is told."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tests.spark.standalone_cluster import DRIVER_HOST, PAGE_S, StandaloneCluster, waited

from kourou.service.processes import Children
from kourou.testing.cluster import Cluster
from kourou_spark_etl.lake_files import lake_paths

MESSAGES = 600
JOBS = """
[queries.lake]
job = "lake"
subscribe = "orders"
starting_offsets = "earliest"
trigger = "available now"
"""


@pytest.fixture
def workers(java: None, tmp_path: Path) -> Any:
    with StandaloneCluster(tmp_path / "cluster", workers=2) as cluster:
        yield cluster


@pytest.mark.timeout(1_200)  # five Javas, on a machine with much else to do
def test_jobs_run_on_a_cluster_by_the_master_alone(
    kourou_cluster: Callable[..., Cluster], workers: StandaloneCluster, tmp_path: Path
) -> None:
    kourou = kourou_cluster(2)
    topic = kourou.create_topic("orders", queues=2)
    with kourou.client() as client:
        client.send_many(topic, [f"{number}" for number in range(MESSAGES)])
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(JOBS, encoding="utf-8")
    settings = {
        "namesrvAddr": kourou.address,
        "etlPath": str(tmp_path / "etl"),
        "adminPort": "0",
        # Two executors are to have work, however fast the first one is there.
        "sparkOptions": f"spark.driver.host={DRIVER_HOST};spark.executor.memory=512m;"
        "spark.scheduler.minRegisteredResourcesRatio=1.0",
    }
    told = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "kourou_spark_etl", "run", "--jobs", str(jobs)]
    with Children(tmp_path / "service") as children:
        service = children.start(
            "spark-etl",
            [*command, "--master", workers.url, *told],
            environment=workers.environment,
        )
        page = service.wait_for_ready(timeout_ms=400_000)["admin"]

        def ended() -> bool:
            with urllib.request.urlopen(f"{page}/statistics", timeout=PAGE_S) as answer:
                (query,) = json.load(answer)["queries"]
            assert not query["failures"], service.log_path.read_text(encoding="utf-8")
            return bool(query["phase"] == "ended")

        waited("the lake", ended, service, within_s=400)
        (application,) = workers.state()["activeapps"]
        assert application["cores"] == 2
        assert service.stop() == 0
    rows = [
        row
        for path in lake_paths(tmp_path / "etl" / "lake" / "lake")
        for row in pyarrow.parquet.ParquetFile(path).read(["value", "broker"]).to_pylist()
    ]
    assert sorted(int(row["value"]) for row in rows) == [*range(MESSAGES)]
    assert {row["broker"] for row in rows} == {"broker-a", "broker-b"}
    # Both have run tasks: this package was found by Python processes of both. Spark may start one
    # more when one ends before its application does.
    assert {folder.parent.parent.name for folder in workers.executors()} == {"work-0", "work-1"}
