"""Spark in docker-compose.yml: alone or on a cluster, bounded, and nobody else submits work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.containers.compose_settings import settings_of
from tests.containers.suite import RAFT, SPARK_CLUSTER
from tests.containers.test_compose_file import SPARK, mounted, published, stored

from kourou_spark_etl.config import EtlSettings
from kourou_spark_etl.job_file import load_job_file


def test_the_pipeline_runs_alone_unless_a_cluster_is_asked_for(
    compose, composed: dict[str, Any], root: Path
) -> None:
    """Spark's own cluster needs its profile; the service needs nothing but another master."""
    plain = json.loads(compose("config", "--format", "json").stdout)
    assert set(composed["services"]) - set(plain["services"]) == {*SPARK_CLUSTER, *RAFT}
    alone: EtlSettings = settings_of(plain, root, "spark-etl")
    assert alone.master == "local[2]"
    assert alone.wanted_job_file == Path("/etc/kourou/spark-etl.toml")
    there = {one["target"] for one in plain["services"]["spark-etl"]["configs"]}
    assert str(alone.wanted_job_file) in there
    assert load_job_file(root / "deploy" / "spark-etl.toml")
    assert alone.folder.is_relative_to("/var/lib/kourou")
    assert published(composed, "spark-etl", f":{alone.admin_port}") == str(alone.admin_port)
    master = composed["services"]["spark-master"]["command"]
    asked = "spark://" + ":".join(master[master.index(word) + 1] for word in ("--host", "--port"))
    for worker in SPARK_CLUSTER[1:]:
        assert composed["services"][worker]["command"][-1] == asked
    chosen = compose("config", "--format", "json", environment={"KOUROU_SPARK_MASTER": asked})
    assert settings_of(json.loads(chosen.stdout), root, "spark-etl").master == asked


def test_all_parts_of_spark_see_one_folder_and_know_one_secret(
    composed: dict[str, Any], root: Path
) -> None:
    """What executors write the driver must find; and who knows no secret submits no code."""
    for name in SPARK:
        service = composed["services"][name]
        found = stored(service)
        assert (found["source"], found["target"]) == ("spark-data", "/var/lib/kourou")
        [secret] = [one for one in service["volumes"] if one["source"] == "spark-keys"]
        assert secret["read_only"] is True
        assert service["environment"]["SPARK_CONF_DIR"] == secret["target"]
        # Java loads libraries that it has unpacked there.
        assert ",exec," in service["tmpfs"][0]
    command = composed["services"]["keys"]["command"]
    assert command[command.index("--spark-defaults") + 1] == "/keys/workers/spark-defaults.conf"
    assert set(mounted(composed, "spark-keys")) == {*SPARK, "keys"}


def test_what_spark_may_take_is_bounded_and_its_heaps_fit(
    composed: dict[str, Any], root: Path
) -> None:
    """Beside each heap there are threads, Arrow, and a Python process for every task."""
    services = composed["services"]
    taken = {name: int(services[name]["mem_limit"]) for name in SPARK}
    settings: EtlSettings = settings_of(composed, root, "spark-etl")
    assert 2 * size(settings.driver_memory) < taken["spark-etl"]
    assert (
        1.5 * size(services["spark-master"]["environment"]["SPARK_DAEMON_MEMORY"])
        < (taken["spark-master"])
    )
    for name in SPARK_CLUSTER[1:]:
        command = services[name]["command"]
        executors = size(command[command.index("--memory") + 1])
        daemon = size(services[name]["environment"]["SPARK_DAEMON_MEMORY"])
        assert 1.5 * executors + daemon < taken[name]
    assert sum(taken.values()) <= 10 << 30, "a small machine holds them all"


def size(text: str) -> int:
    """`1g`, `512m` as Java has them."""
    return int(text[:-1]) << {"m": 20, "g": 30}[text[-1]]


def test_settings_of_spark_s_own_reach_it(compose, root: Path) -> None:
    chosen = {"KOUROU_SPARK_OPTIONS": "spark.eventLog.enabled=true"}
    view = compose("config", "--format", "json", environment=chosen).stdout
    settings: EtlSettings = settings_of(json.loads(view), root, "spark-etl")
    assert settings.session_settings["spark.eventLog.enabled"] == "true"


def test_of_spark_this_machine_sees_two_pages_and_no_way_to_submit(
    composed: dict[str, Any],
) -> None:
    ports = {
        name: [port["target"] for port in composed["services"][name].get("ports", [])]
        for name in SPARK
    }
    assert ports == {
        "spark-etl": [18_281],
        "spark-master": [8_080],
        "spark-worker": [],
        "spark-worker-2": [],
    }


def test_the_pipeline_waits_for_brokers_and_for_a_cluster_only_if_there_is_one(
    composed: dict[str, Any],
) -> None:
    needs = composed["services"]["spark-etl"]["depends_on"]
    well = "service_healthy"
    assert {name: (each["condition"], each["required"]) for name, each in needs.items()} == {
        "keys": ("service_completed_successfully", True),
        "broker": (well, True),
        "broker-b": (well, True),
        "spark-master": (well, False),
    }
    for name in SPARK_CLUSTER[1:]:
        assert set(composed["services"][name]["depends_on"]) == {"spark-master"}
