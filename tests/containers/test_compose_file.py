"""docker-compose.yml, read by Compose itself: what runs, and what it may not do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kourou.service.command_line import parse_arguments
from kourou.service.settings import load_settings
from kourou_broker.config import BrokerSettings, load_broker_settings
from kourou_namesrv.config import NamesrvSettings

OTHERS = {"postgres"}
"""Services that are not ours."""


def test_compose_accepts_it_and_would_refuse_what_is_wrong(compose, tmp_path: Path, root) -> None:
    assert compose("config", "--quiet").returncode == 0
    wrong = tmp_path / "docker-compose.yml"
    text = (root / "docker-compose.yml").read_text(encoding="utf-8")
    assert "condition: service_healthy" in text
    wrong.write_text(text.replace("condition: service_healthy", "condition: service_happy"))
    done = compose("config", "--quiet", file=wrong)
    assert done.returncode != 0
    assert "service_happy" in done.stderr or "condition" in done.stderr


def test_every_service_that_exists_is_in_it(composed: dict[str, Any], root: Path) -> None:
    """A folder of services/ that holds a package is something to run; an empty one is not yet."""
    exist = {path.parent.name for path in (root / "services").glob("*/kourou_*") if path.is_dir()}
    assert set(composed["services"]) - OTHERS == exist


def test_nothing_in_it_can_do_more_than_it_must(composed: dict[str, Any]) -> None:
    for name, service in composed["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert not service.get("cap_add"), name
        assert not service.get("privileged"), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["init"] is True, name
        assert any(line.startswith("/tmp:") for line in service["tmpfs"]), name
        assert "container_name" not in service, name
        assert re.search(r":[0-9][\w.-]*$", service["image"]), f"{name} runs no certain version"
        assert service["healthcheck"]["test"][0] == "CMD", name


def test_nobody_else_can_reach_it(composed: dict[str, Any]) -> None:
    """Ports are published to this machine only, and the database to nobody at all."""
    for name, service in composed["services"].items():
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", f"{name}: {port}"
    database = composed["services"]["postgres"]
    assert "ports" not in database
    assert set(database["networks"]) == {"database"}
    assert composed["networks"]["database"]["internal"] is True


def test_passwords_are_files(composed: dict[str, Any]) -> None:
    for name, service in composed["services"].items():
        for key, value in (service.get("environment") or {}).items():
            secret = re.search("PASSWORD|SECRET|TOKEN", key)
            assert not secret or value.startswith("/run/secrets/"), f"{name}: {key}"
    assert [secret for secret in composed["secrets"].values() if "file" not in secret] == []


def test_it_waits_longer_than_a_service_needs_to_stop(composed: dict[str, Any]) -> None:
    from kourou.service.lifecycle import DRAIN_S_MAX, STOP_S_MAX

    for name in set(composed["services"]) - OTHERS:
        grace = re.fullmatch(r"(\d+)s", composed["services"][name]["stop_grace_period"])
        assert grace is not None
        assert int(grace[1]) > DRAIN_S_MAX + STOP_S_MAX


def test_health_is_asked_where_the_service_says_it(composed: dict[str, Any], root: Path) -> None:
    namesrv, broker = loaded(composed, root)
    for name, port in (("namesrv", namesrv.admin_port), ("broker", broker.admin_port)):
        test = composed["services"][name]["healthcheck"]["test"]
        assert test == ["CMD", "kourou", "health", f"http://127.0.0.1:{port}/readyz"]


@pytest.mark.parametrize("port", ["20911", "31111"])
def test_the_host_and_containers_are_told_what_each_can_dial(
    compose, composed: dict[str, Any], root: Path, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the broker says of itself per listener is what is published, whatever port is chosen."""
    monkeypatch.setenv("KOUROU_BROKER_PORT", port)
    import json

    chosen = json.loads(compose("config", "--format", "json").stdout)
    namesrv, broker = loaded(chosen, root)
    assert broker.listeners({"zmq": "", "tcp": ""}) == {
        "zmq:internal": "broker:20911",
        "zmq:host": f"127.0.0.1:{port}",
        "tcp:internal": "broker:10911",
        "tcp:host": "127.0.0.1:10911",
    }
    assert published(chosen, "broker", broker.zmq_bind_address) == port
    assert set(namesrv.listeners()) == {"internal", "host"}
    assert published(chosen, "namesrv", namesrv.listeners()["host"]) == "19876"
    assert published(chosen, "broker", broker.tcp_listeners["internal"]) == "10911"
    assert set(namesrv.tcp_listeners) == {"internal", "host"}
    assert published(chosen, "namesrv", namesrv.tcp_listeners["host"]) == "9876"
    internal = namesrv.listeners()["internal"].rpartition(":")[2]
    assert broker.name_server_endpoints == (f"namesrv:{internal}",)


def published(composed: dict[str, Any], service: str, bound: str) -> str:
    """The port of this machine that leads to what a service binds."""
    inside = int(bound.rpartition(":")[2])
    [port] = [each for each in composed["services"][service]["ports"] if each["target"] == inside]
    return str(port["published"])


def loaded(composed: dict[str, Any], root: Path) -> tuple[NamesrvSettings, BrokerSettings]:
    """The settings that the services of this compose file get: arguments, environment, file."""
    secret = Path(composed["secrets"]["postgres_password"]["file"])
    found: list[Any] = []
    for name in ("namesrv", "broker"):
        service = composed["services"][name]
        _, flag, inside, *rest = service["command"]
        assert flag == "-c"
        [config] = [each for each in service["configs"] if each["target"] == inside]
        file = Path(composed["configs"][config["source"]]["file"])
        assert file.parent == root / "deploy"
        arguments = parse_arguments(name, "", ["-c", str(file), *rest])
        environment = service.get("environment") or {}
        if name == "namesrv":
            found.append(
                load_settings(
                    NamesrvSettings,
                    arguments=arguments.settings,
                    environment=environment,
                    file=file,
                ).settings
            )
            continue
        mounted = [each["source"] for each in service["secrets"]]
        assert mounted == ["postgres_password"]
        arguments.settings["eventStorePasswordFile"] = str(secret)
        result = load_broker_settings(arguments, environment)
        assert result.warnings == ()
        found.append(result.settings)
    return found[0], found[1]
