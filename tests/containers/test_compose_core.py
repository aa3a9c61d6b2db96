"""compose.core.yml, the small suite: what of the large one is there, as there, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.containers.compose_settings import settings_of

SERVICES = ("namesrv", "broker", "console")
SAME = (
    *("image", "build", "read_only", "cap_drop", "security_opt", "init", "restart", "pids_limit"),
    *("logging", "tmpfs", "stop_grace_period", "healthcheck", "command", "configs", "ports"),
)


@pytest.fixture(scope="module")
def core(compose, root: Path) -> dict[str, Any]:
    """The file with everything in it resolved."""
    done = compose("config", "--format", "json", file=root / "compose.core.yml")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_three_of_its_services_run_as_in_the_large_one(
    core: dict[str, Any], composed: dict[str, Any]
) -> None:
    assert set(core["services"]) == set(SERVICES)
    assert core["name"] != composed["name"], "neither takes the other's volumes"
    for name in SERVICES:
        for key in SAME:
            whole = composed["services"][name][key]
            if key == "configs":  # it has no keys, so no users either
                whole = [one for one in whole if one["source"] != "users"]
            assert core["services"][name][key] == whole, (name, key)


def test_it_has_no_keys_no_secrets_and_little_memory(core: dict[str, Any]) -> None:
    assert "secrets" not in core
    for name, service in core["services"].items():
        assert not [key for key in service["environment"] if "CURVE" in key], name
        assert service["environment"]["OTEL_TRACES_EXPORTER"] == "none"
    assert sum(int(service["mem_limit"]) for service in core["services"].values()) <= 1 << 30


def test_its_settings_are_good_and_sqlite_keeps_the_history(
    core: dict[str, Any], root: Path
) -> None:
    broker, namesrv, console = (
        settings_of(core, root, name) for name in ("broker", "namesrv", "console")
    )
    assert broker.event_store_url is None
    assert broker.curve_key_file is namesrv.curve_key_file is None
    assert not console.spark_etl_address
