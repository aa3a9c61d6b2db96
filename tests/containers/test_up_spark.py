"""Spark in containers, for real: what its image holds, and the same jobs on a cluster's workers.

As test_up.py, of the same suite, which is up already: `./kourou test containers --compose`.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from typing import Any

import pytest
from tests.containers.docker_engine import RUNTIME_IMAGE, SPARK_IMAGE, DockerEngine
from tests.containers.suite import (
    LAKE_LOOK_S,
    PAGE_S,
    SPARK_CLUSTER,
    START_S,
    Pipeline,
    Up,
    kourou,
    states,
    until,
)

MASTER = "spark://spark-master:7077"
EVENTS = "/var/lib/kourou/spark-etl"
OPTIONS = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": f"file://{EVENTS}",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
"""Spark tells which executor has written how many rows."""

ROWS = 400
SIZE_MAX = 1_800_000_000
"""Bytes of the whole image; what it has now stands in docs/containers.md."""

WRITABLE = "find / -xdev -not -path '/proc/*' -writable -not -type l 2>/dev/null || true"
COMPILERS = {"gcc", "g++", "make", "git", "python3-dev", "openjdk-17-jdk-headless"}
NONE_OF = """
find / -xdev -not -path '/proc/*' -not -path '/usr/*' \\( -name 'spark-defaults.conf' \\
    -o -name '*.secret' -o -name 'pip' -o -name '.git' -o -name '*.whl' \\
    -o -path '*/pyspark/python/lib/*.zip' \\) 2>/dev/null || true
"""
"""Of the base image, which is in /usr, Python's own may be there."""

pytestmark = [pytest.mark.compose, pytest.mark.timeout(3_000)]


def inside(engine: DockerEngine, entry: str, *rest: str) -> str:
    """What a program of the image prints, run as the user of the image."""
    return engine.docker(
        *("run", "--rm", "--network=none", f"--entrypoint={entry}", SPARK_IMAGE, *rest)
    )


def test_the_image_has_java_and_nothing_to_build_with(engine: DockerEngine) -> None:
    view = inside(engine, "kourou", "doctor")
    assert "ok       Java and packages (for Spark only)" in view
    packages = set(inside(engine, "dpkg-query", "--show", "--showformat=${Package}\n").split())
    assert "openjdk-17-jre-headless" in packages
    assert not packages & COMPILERS
    assert not [name for name in packages if name.startswith(("x11-", "libgtk", "libgl1"))]
    assert inside(engine, "sh", "-c", NONE_OF).split() == []
    assert size_of(engine, SPARK_IMAGE) < SIZE_MAX


def test_its_user_owns_nothing_but_its_home(engine: DockerEngine) -> None:
    assert inside(engine, "id", "--user").strip() == "10001"
    places = inside(engine, "sh", "-c", WRITABLE).split()
    assert "/var/lib/kourou" in places, "the look sees what can be written"
    usual = ("/dev", "/tmp", "/var/tmp", "/run/lock", "/var/lock", "/var/lib/kourou", "/sys")
    usual += ("/keys",)  # where volumes of keys are mounted; those of a container only
    assert [place for place in places if not place.startswith(usual)] == []


def test_the_other_image_pays_nothing_for_it(engine: DockerEngine) -> None:
    assert 2 * size_of(engine, RUNTIME_IMAGE) < size_of(engine, SPARK_IMAGE)


def size_of(engine: DockerEngine, image: str) -> int:
    return int(engine.docker("image", "inspect", "--format", "{{.Size}}", image))


def test_executors_on_workers_do_the_same_jobs_by_the_master_alone(
    started: Up, ports: dict[str, str], pipeline: Pipeline
) -> None:
    """Every row of the lake that came meanwhile was written by an executor on one of two workers.

    The checkpoints are the same: it goes on where it was without a cluster, and afterwards again.
    """
    kourou(ports, "send", "spread", *rows("alone", 0))
    pipeline.wait_for_rows("spread", [*rows("alone", 0)])
    started("stop", "spark-etl")
    before, history = sum(pipeline.rows().values()), pipeline.batches_of_checkpoint("lake")

    cluster(started, "up", "--detach", "--no-build", "--wait", "--wait-timeout", START_S)
    page = master_page(ports)
    assert page["aliveworkers"] == page["cores"] == 2
    hosts = {worker["host"] for worker in page["workers"]}
    assert len(hosts) == 2
    assert [(one["name"], one["cores"]) for one in page["activeapps"]] == [("kourou-spark-etl", 2)]
    until("both executors", lambda: executors(pipeline) == hosts, LAKE_LOOK_S)
    for name in SPARK_CLUSTER:
        assert started("--profile", "*", "exec", "-T", name, "id", "--user").strip() == "10001"
    kourou(ports, "send", "spread", *rows("spread", ROWS))
    sent = [*rows("alone", 0), *rows("spread", ROWS)]
    pipeline.wait_for_rows("spread", sent)

    started("stop", "spark-etl")
    assert states(started)["spark-etl"] == ("exited", 0)
    written = written_by(pipeline)
    assert sum(written.values()) == sum(pipeline.rows().values()) - before >= ROWS
    assert {host for _, host in written} == hosts
    assert "driver" not in {executor for executor, _ in written}
    assert min(written.values()) > 0, "both had work"

    started("up", "--detach", "--no-build", "--wait", "--wait-timeout", START_S)
    kourou(ports, "send", "spread", *rows("alone again", ROWS))
    pipeline.wait_for_rows("spread", [*sent, *rows("alone again", ROWS)])
    assert pipeline.batches_of_checkpoint("lake")[: len(history)] == history
    assert written_by(pipeline) == written, "the cluster had nothing to do with those"
    started("--profile", "*", "stop", *SPARK_CLUSTER)


def rows(what: str, count: int) -> list[str]:
    """Bodies to send; at least one."""
    return [f"{what} {number}" for number in range(count or 1)]


def cluster(up: Up, *arguments: str) -> str:
    """Compose with the profile and the one variable that docs/containers.md names."""
    options = ";".join(f"{name}={value}" for name, value in OPTIONS.items())
    environment = {"KOUROU_SPARK_MASTER": MASTER, "KOUROU_SPARK_OPTIONS": options}
    return up("--profile", "spark-cluster", *arguments, environment=environment)


def master_page(ports: dict[str, str]) -> dict[str, Any]:
    """What the master's page tells this machine."""
    url = f"http://127.0.0.1:{ports['KOUROU_SPARK_MASTER_UI_PORT']}/json/"
    with urllib.request.urlopen(url, timeout=PAGE_S) as answer:
        return dict(json.load(answer))


def executors(pipeline: Pipeline) -> set[str]:
    """Where executors have been added."""
    added = [one for one in pipeline.events() if one["Event"] == "SparkListenerExecutorAdded"]
    return {one["Executor Info"]["Host"] for one in added}


def written_by(pipeline: Pipeline) -> Counter[tuple[str, str]]:
    """Executor and host -> rows written to files, by tasks of jobs that succeeded."""
    noted = list(pipeline.events())
    done = {
        one["Job ID"]
        for one in noted
        if one["Event"] == "SparkListenerJobEnd" and one["Job Result"]["Result"] == "JobSucceeded"
    }
    stages = {
        stage
        for one in noted
        if one["Event"] == "SparkListenerJobStart" and one["Job ID"] in done
        for stage in one["Stage IDs"]
    }
    found: Counter[tuple[str, str]] = Counter()
    for one in noted:
        ended = one["Event"] == "SparkListenerTaskEnd" and one["Stage ID"] in stages
        if ended and one["Task End Reason"]["Reason"] == "Success":
            count = one["Task Metrics"]["Output Metrics"]["Records Written"]
            found[one["Task Info"]["Executor ID"], one["Task Info"]["Host"]] += count
    return +found
