"""Spark in docker-compose.yml: alone or on a cluster, bounded, and nobody else submits work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.containers.test_compose_file import RAFT, SPARK, SPARK_CLUSTER, published, stored

from kourou.service.command_line import parse_arguments
from kourou.settings.sources import load_settings
from kourou_spark_etl.commands import with_jobs
from kourou_spark_etl.config import EtlSettings
from kourou_spark_etl.job_file import load_job_file


def test_the_pipeline_runs_alone_unless_a_cluster_is_asked_for(
    compose, composed: dict[str, Any], root: Path
) -> None:
    """Spark's own cluster needs its profile; the service needs nothing but another master."""
    plain = json.loads(compose("config", "--format", "json").stdout)["services"]
    assert set(composed["services"]) - set(plain) == {*SPARK_CLUSTER, *RAFT}
    alone = etl_settings(plain, root)
    assert alone.master == "local[2]"
    assert alone.wanted_job_file == Path("/etc/kourou/spark-etl.toml")
    assert load_job_file(root / "deploy" / "spark-etl.toml")
    assert alone.folder.is_relative_to("/var/lib/kourou")
    assert published(composed, "spark-etl", f":{alone.admin_port}") == str(alone.admin_port)
    master = composed["services"]["spark-master"]["command"]
    asked = "spark://" + ":".join(master[master.index(word) + 1] for word in ("--host", "--port"))
    for worker in SPARK_CLUSTER[1:]:
        assert composed["services"][worker]["command"][-1] == asked
    chosen = compose("config", "--format", "json", environment={"KOUROU_SPARK_MASTER": asked})
    assert etl_settings(json.loads(chosen.stdout)["services"], root).master == asked


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
    users = {
        name
        for name, service in composed["services"].items()
        for one in service.get("volumes") or []
        if one["source"] == "spark-keys"
    }
    assert users == {*SPARK, "keys"}


def test_what_spark_may_take_is_bounded_and_its_heaps_fit(
    composed: dict[str, Any], root: Path
) -> None:
    """Beside each heap there are threads, Arrow, and a Python process for every task."""
    services = composed["services"]
    taken = {name: int(services[name]["mem_limit"]) for name in SPARK}
    settings = etl_settings(services, root)
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
    settings = etl_settings(json.loads(view)["services"], root)
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


def etl_settings(services: dict[str, Any], root: Path) -> EtlSettings:
    """What the pipeline of this compose file is told: arguments, environment, file."""
    service = services["spark-etl"]
    word, verb, flag, inside, *rest = service["command"]
    assert (word, verb, flag) == ("spark-etl", "run", "-c")
    assert {one["target"] for one in service["configs"]} == {inside, "/etc/kourou/spark-etl.toml"}
    file = root / "deploy" / "spark-etl.conf"
    arguments = parse_arguments("spark-etl", "", ["-c", str(file), *with_jobs(rest)])
    return load_settings(
        EtlSettings, arguments=arguments.settings, environment=service["environment"], file=file
    ).settings
