"""What docker-compose.yml has for those who look on: nobody is forgotten, all files fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.containers.suite import SPARK_CLUSTER

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    return dict(read(ROOT / "docker-compose.yml")["services"])


def targets() -> Iterator[str]:
    """host:port of everything that Prometheus asks."""
    for job in read(DEPLOY / "prometheus/prometheus.yml")["scrape_configs"]:
        for static in job.get("static_configs", ()):
            yield from static["targets"]
        for found in job.get("dns_sd_configs", ()):
            yield from (f"{name}:{found['port']}" for name in found["names"])


def test_prometheus_asks_every_service_that_has_a_page(compose: Mapping[str, Any]) -> None:
    asked = set(targets())
    for name, service in compose.items():
        health = service.get("healthcheck", {}).get("test", [])
        ours = str(service.get("image", "")).startswith("kourou")
        if not ours or name in SPARK_CLUSTER or health[1:3] != ["kourou", "health"]:
            continue
        if name == "console":  # its API says whether it is well; its page is at another port
            assert f"{name}:18380" in asked
            continue
        port = health[3].rpartition("/")[0].rpartition(":")[2]
        assert f"{name}:{port}" in asked


def test_prometheus_asks_nobody_who_is_not_there(compose: Mapping[str, Any]) -> None:
    hosts = {target.partition(":")[0] for target in targets()}
    assert hosts - compose.keys() == {"localhost"}


def test_grafana_finds_what_dashboards_name() -> None:
    sources = read(DEPLOY / "grafana/provisioning/datasources/kourou.yml")["datasources"]
    uids = {source["uid"]: source["url"] for source in sources}
    assert uids == {
        "kourou-prometheus": "http://prometheus:9090",
        "kourou-jaeger": "http://jaeger:16686",
    }
    for path in (DEPLOY / "grafana/dashboards").glob("*.json"):
        named = {
            item["datasource"]["uid"]
            for panel in read(path)["panels"]
            for item in (panel, *panel.get("targets", ()))
            if "datasource" in item
        }
        assert named <= uids.keys(), path.name


def test_every_part_of_the_collector_is_wired_to_one_that_there_is() -> None:
    config = read(DEPLOY / "collector/config.yaml")
    kinds = ("receivers", "processors", "exporters", "connectors")
    assert config.keys() == {*kinds, "service"}
    service, connectors = config["service"], config["connectors"].keys()
    used: dict[str, set[str]] = {kind: set() for kind in kinds}
    for name, pipeline in service["pipelines"].items():
        assert name in ("traces", "metrics", "logs")
        assert pipeline.keys() <= set(kinds)
        for kind, parts in pipeline.items():
            for part in parts:
                assert part in config[kind] or part in connectors, f"{part} of {name}"
                used["connectors" if part in connectors else kind].add(part)
    for kind in kinds:
        assert used[kind] == config[kind].keys(), kind
    for pipeline in service["pipelines"].values():
        if "memory_limiter" in pipeline.get("processors", ()):
            assert pipeline["processors"][0] == "memory_limiter", "before all else"


def test_services_send_their_spans_where_the_collector_listens(compose: Mapping[str, Any]) -> None:
    listens = read(DEPLOY / "collector/config.yaml")["receivers"]["otlp"]["protocols"]["http"]
    endpoint = f"http://collector:{listens['endpoint'].rpartition(':')[2]}"
    for name in ("broker", "ha-replica", "filter-server", "spark-etl", "console"):
        environment = compose[name]["environment"]
        assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == endpoint, name
