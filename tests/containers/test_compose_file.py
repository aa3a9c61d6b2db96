"""docker-compose.yml, read by Compose itself: what runs, and what it may not do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.containers import docker_engine as engine
from tests.containers.compose_settings import settings_of
from tests.containers.suite import (
    BROKERS,
    FILTER_SERVERS,
    PROFILE,
    RAFT,
    REPLICAS,
    SPARK_CLUSTER,
    WATCHING,
)

from kourou.broker.config import BrokerSettings
from kourou_namesrv.config import NamesrvSettings

OTHERS = {"postgres", *WATCHING}
"""Services that are not ours."""

NOBODY_TO_ASK = {"collector", "jaeger"}
"""In their images there is nothing but one program, which cannot ask itself."""

SPARK = ("spark-etl", *SPARK_CLUSTER)
COUNTED = re.compile(r"-(\d+|[b-z])$")
"""What is behind the name of a service that there are several of."""

CERTAIN = re.compile(r"postgres:\d+\.\d+-\w+|(?!postgres:)[\w./-]+:v?\d+\.\d+\.\d+(-[\w-]+)?")
"""An image whose tag names one release; PostgreSQL's have two numbers, the others' three."""

RUN = Path("/run/kourou")
"""Where keys lie in a container."""


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
    ours = set(composed["services"]) - OTHERS - set(SPARK_CLUSTER) - set(RAFT) - {"keys"}
    assert {COUNTED.sub("", name) for name in ours} == exist


def test_plain_up_starts_all_of_it_and_profiles_only_add(compose) -> None:
    """Each is there without a profile, by the names that `config --services` tells."""
    plain = set(compose("config", "--services").stdout.split())
    assert plain == {
        *("keys", "namesrv", *BROKERS, *REPLICAS, *FILTER_SERVERS, "spark-etl", "console"),
        *("postgres", *WATCHING),
    }
    for profile, added in (("spark-cluster", SPARK_CLUSTER), ("raft", RAFT)):
        found = set(compose("--profile", profile, "config", "--services").stdout.split())
        assert found == plain | set(added)


def test_every_image_is_a_certain_one(composed: dict[str, Any], root: Path) -> None:
    """To the last number: what `17-bookworm` or `3.11-slim` is changes from month to month."""
    images = {service["image"] for service in composed["services"].values()}
    [base] = re.findall(
        r"^ARG PYTHON_IMAGE=(.*)$", (root / "Dockerfile").read_text("utf-8"), re.MULTILINE
    )
    assert [one for one in sorted(images | {base}) if not CERTAIN.fullmatch(one)] == []
    assert len([one for one in images if not one.startswith("kourou")]) == 5
    for moving in ("postgres:17-bookworm", "python:3.11-slim-bookworm", "prom/prometheus:v3.13"):
        assert not CERTAIN.fullmatch(moving)


def test_images_made_for_tests_have_the_names_of_those_they_replace(
    composed: dict[str, Any], root: Path
) -> None:
    """Otherwise the engine would try to pull them."""
    made = {
        "postgres": engine.POSTGRES_IMAGE,
        "prometheus": engine.PROMETHEUS_IMAGE,
        "collector": engine.COLLECTOR_IMAGE,
        "jaeger": engine.JAEGER_IMAGE,
        "grafana": engine.GRAFANA_IMAGE,
    }
    assert {name: composed["services"][name]["image"] for name in OTHERS} == made
    base = f"ARG PYTHON_IMAGE={engine.PYTHON_IMAGE}\n"
    assert base in (root / "Dockerfile").read_text("utf-8")
    for file in engine.IMAGES.glob("*/Dockerfile"):
        bases = re.findall(r"^FROM (.*)$", file.read_text("utf-8"), re.MULTILINE)
        assert bases in ([engine.PYTHON_IMAGE], ["scratch"]), file


@pytest.mark.feature("F132")
@pytest.mark.parametrize("port", ["20931", "31131"])
@pytest.mark.parametrize("which", [0, 1])
def test_each_broker_has_a_copy_that_finds_whoever_leads(
    compose, root: Path, which: int, port: str
) -> None:
    """Same log, another place for it, own ports; it waits for no leader."""
    variable = ("KOUROU_REPLICA_PORT", "KOUROU_REPLICA_B_PORT")[which]
    view = compose("config", "--format", "json", environment={variable: port}).stdout
    chosen = json.loads(view)
    name, leader = REPLICAS[which], BROKERS[which]
    namesrv, *brokers = loaded(chosen, root)
    broker = brokers[which]
    settings = settings_of(chosen, root, name)
    assert (settings.broker_name, settings.broker_role) == (broker.broker_name, "SLAVE")
    assert settings.cluster_name == broker.cluster_name
    assert settings.ha_master_address is None, "a promoted leader is another one"
    assert settings.name_server_endpoints == broker.name_server_endpoints
    own = settings.listen_port
    assert settings.listeners({"zmq": "", "tcp": ""}) == {
        "zmq:internal": f"{name}:{own + 10_000}",
        "zmq:host": f"127.0.0.1:{port}",
        "tcp:internal": f"{name}:{own}",
        "tcp:host": f"127.0.0.1:{own}",
    }
    assert published(chosen, name, settings.zmq_bind_address) == port
    assert published(chosen, name, settings.tcp_listeners["internal"]) == str(own)
    service = chosen["services"][name]
    assert service["healthcheck"]["test"][-1] == f"http://127.0.0.1:{settings.admin_port}/readyz"
    assert published(chosen, name, f":{settings.admin_port}") == ("18082", "18087")[which]
    assert set(service["depends_on"]) == {"keys", "namesrv"}
    assert not service.get("secrets"), "its history lies beside its copy"
    assert stored(service)["source"] != stored(chosen["services"][leader])["source"]
    assert settings.store_root.is_relative_to(stored(service)["target"])
    assert namesrv.insecure_network
    assert settings.insecure_network


def stored(service: dict[str, Any]) -> dict[str, Any]:
    """The volume of a service's data; the others hold keys."""
    [found] = [one for one in service["volumes"] if not one["source"].endswith("-keys")]
    return found


def test_a_group_of_three_meets_where_its_members_say(
    compose, composed: dict[str, Any], root: Path
) -> None:
    """By names of containers, on ports that nobody else is told; each has a log of its own."""
    group = json.loads(compose("--profile", "raft", "config", "--format", "json").stdout)
    plain = json.loads(compose("config", "--format", "json").stdout)["services"]
    assert set(group["services"]) - set(plain) == set(RAFT), "and nothing else comes with it"
    broker = loaded(composed, root)[1]
    members = {name: settings_of(group, root, name) for name in RAFT}
    for name, settings in members.items():
        service = composed["services"][name]
        assert settings.raft_self == name.removeprefix("raft-")
        assert settings.broker_name != broker.broker_name
        assert settings.cluster_name == broker.cluster_name
        assert settings.raft_peers == members["raft-n0"].raft_peers
        entry = settings.raft_peers[settings.raft_self]
        host, port = entry.rsplit(":", 1)
        assert (host, settings.members_bind_address) == (name, f"0.0.0.0:{port}")
        assert int(port) not in {one["target"] for one in service["ports"]}
        zmq, tcp = settings.zmq_bind_address, settings.tcp_listeners["internal"]
        assert settings.listeners({"zmq": "", "tcp": ""}) == {
            "zmq:internal": f"{name}:{zmq.rpartition(':')[2]}",
            "zmq:host": f"127.0.0.1:{published(composed, name, zmq)}",
            "tcp:internal": f"{name}:{tcp.rpartition(':')[2]}",
            "tcp:host": f"127.0.0.1:{published(composed, name, tcp)}",
        }
        assert (
            service["healthcheck"]["test"][-1] == f"http://127.0.0.1:{settings.admin_port}/readyz"
        )
        assert set(service["depends_on"]) == {"keys", "namesrv"}, "no member waits for another"
        assert settings.store_root.is_relative_to(stored(service)["target"])
    published_ports = [
        port["published"]
        for service in composed["services"].values()
        for port in service.get("ports", [])
    ]
    assert len(set(published_ports)) == len(published_ports), "all fit on one machine"
    assert len({stored(composed["services"][name])["source"] for name in RAFT}) == 3


@pytest.mark.feature("F239")
def test_there_are_several_filter_servers_and_each_says_which_it_is(
    composed: dict[str, Any], root: Path
) -> None:
    """What a consumer is told of each, among containers and on this machine, is what it dials."""
    _, *brokers = loaded(composed, root)
    beside = {"filter-server": (0, 0), "filter-server-2": (0, 1), "filter-server-b": (1, 0)}
    assert set(beside) == set(FILTER_SERVERS)
    for name, (which, index) in beside.items():
        settings = settings_of(composed, root, name)
        service = composed["services"][name]
        assert settings.filter_server_index == index
        broker = brokers[which]
        at = f"{BROKERS[which]}:{broker.zmq_bind_address.split(':')[-1]}"
        assert settings.broker_address == at
        assert BROKERS[which] in service["depends_on"]
        assert settings.unsafe_no_sandbox is False
        tcp = broker.listen_port + 4 + index
        view = {}
        for port in (tcp, tcp + 10_000):
            view |= {port: published(composed, name, f"0.0.0.0:{port}")}
        assert service["environment"]["KOUROU_ADVERTISED_LISTENERS"].split(";") == [
            f"internal={name}:{tcp + 10_000}",
            f"host=127.0.0.1:{view[tcp + 10_000]}",
            f"tcp:internal={name}:{tcp}",
            f"tcp:host=127.0.0.1:{view[tcp]}",
        ]
        admin = settings.admin_port
        assert published(composed, name, f"0.0.0.0:{admin}") in ("18181", "18182", "18183")
        assert service["healthcheck"]["test"][-1] == f"http://127.0.0.1:{admin}/readyz"


@pytest.mark.feature("F243")
def test_what_runs_strangers_code_is_alone(composed: dict[str, Any], root: Path) -> None:
    """Its own user, our profile, no secret, no volume, no way to the database or the store."""
    for name in FILTER_SERVERS:
        service = composed["services"][name]
        assert service["user"] == "10002:10002"
        assert set(service["networks"]) == {"default"}
        assert "network_mode" not in service
        assert "pid" not in service
        assert "ipc" not in service
        assert int(service["mem_limit"]) == 2 << 30
        assert not service.get("secrets")
        assert {one["target"] for one in service["volumes"]} == {f"{RUN}/keys", f"{RUN}/public"}
        assert all(one["read_only"] for one in service["volumes"])
        _, profile = service["security_opt"]
        assert root / profile.removeprefix("seccomp=") == root / PROFILE
    others = [each for name, each in composed["services"].items() if name not in FILTER_SERVERS]
    assert [each for each in others if each.get("user") == "10002:10002"] == []
    text = (root / "Dockerfile").read_text(encoding="utf-8")
    assert "useradd --uid 10002 --gid 10002" in text


def test_what_runs_of_ours_is_the_image_without_java(composed: dict[str, Any]) -> None:
    """All but Spark. That there is no Java in the target `runtime` is in test_dockerfile.py."""
    for name in set(composed["services"]) - OTHERS:
        service = composed["services"][name]
        target, image = ("spark", "kourou-spark") if name in SPARK else ("runtime", "kourou")
        assert service["build"]["target"] == target, name
        assert service["image"] == f"{image}:0.1.0", name


def test_all_else_starts_where_the_jail_cannot_be_built(composed: dict[str, Any]) -> None:
    """Nobody waits for a filter server."""
    for name, service in composed["services"].items():
        assert not set(service.get("depends_on") or {}) & set(FILTER_SERVERS), name


def test_nothing_in_it_can_do_more_than_it_must(composed: dict[str, Any]) -> None:
    for name, service in composed["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert not service.get("cap_add"), name
        assert not service.get("privileged"), name
        profile = [f"seccomp={PROFILE}"] if name in FILTER_SERVERS else []
        assert service["security_opt"] == ["no-new-privileges:true", *profile], name
        assert service["init"] is True, name
        assert service["restart"] == ("no" if name == "keys" else "unless-stopped"), name
        assert service["pids_limit"] == (2_048 if name in SPARK else 512), name
        assert service.get("user", "10001:10001").split(":")[0] != "0", name
        assert all("nosuid" in line and "nodev" in line for line in service["tmpfs"]), name
        assert any(line.startswith("/tmp:") for line in service["tmpfs"]), name
        assert "container_name" not in service, name
        if name not in {"keys", *NOBODY_TO_ASK}:
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


def test_grafana_is_for_who_has_its_secret(composed: dict[str, Any]) -> None:
    """No visitor without a login, no known password, and none that an old volume would keep."""
    grafana = composed["services"]["grafana"]
    settings = grafana["environment"]
    assert settings["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    assert settings["GF_USERS_ALLOW_SIGN_UP"] == "false"
    assert not settings.keys() & {"GF_SECURITY_ADMIN_PASSWORD", "GF_AUTH_DISABLE_LOGIN_FORM"}
    folder, _, file = settings["GF_SECURITY_ADMIN_PASSWORD__FILE"].rpartition("/")
    [mount] = [one for one in grafana["volumes"] if one["target"] == folder]
    assert mount["read_only"] is True
    assert mounted(composed, mount["source"]) == {"grafana": folder, "keys": "/keys/grafana"}
    command = composed["services"]["keys"]["command"]
    assert command[command.index(f"/keys/grafana/{file}") - 1] == "--secret"
    assert [one.split(":")[0] for one in grafana["tmpfs"]] == ["/tmp", "/var/lib/grafana"]
    assert "keys" in grafana["depends_on"]


def mounted(composed: dict[str, Any], volume: str) -> dict[str, str]:
    """Who sees a volume, and where."""
    return {
        name: one["target"]
        for name, service in composed["services"].items()
        for one in service.get("volumes") or []
        if one["source"] == volume
    }


def test_passwords_are_files(composed: dict[str, Any]) -> None:
    for name, service in composed["services"].items():
        for key, value in (service.get("environment") or {}).items():
            secret = re.search("PASSWORD|SECRET|TOKEN", key)
            assert not secret or value.startswith("/run/kourou/"), f"{name}: {key}"
    assert "secrets" not in composed, "each is made at the first start"


def test_the_database_and_its_clients_share_a_secret_that_is_made(composed: dict[str, Any]) -> None:
    services = composed["services"]
    place = services["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"]
    folder, _, file = place.rpartition("/")
    users = ("postgres", *BROKERS)
    assert mounted(composed, "database-keys") == {
        "keys": "/keys/database",
        **dict.fromkeys(users, folder),
    }
    for name in users:
        [own] = [one for one in services[name]["volumes"] if one["source"] == "database-keys"]
        assert own["read_only"] is True, name
    for name in BROKERS:
        assert services[name]["environment"]["KOUROU_EVENT_STORE_PASSWORD_FILE"] == place
    command = services["keys"]["command"]
    assert command[command.index(f"/keys/database/{file}") - 1] == "--secret"
    assert command[command.index(file.removesuffix(".secret")) - 1] == "--readable"
    assert "keys" in services["postgres"]["depends_on"]


def test_it_waits_longer_than_a_service_needs_to_stop(composed: dict[str, Any]) -> None:
    from kourou.service.lifecycle import DRAIN_S_MAX, STOP_S_MAX

    for name in OTHERS:
        assert "stop_grace_period" in composed["services"][name], "engines' defaults differ"
    for name in set(composed["services"]) - OTHERS:
        grace = re.fullmatch(r"(?:(\d+)m)?(\d+)s", composed["services"][name]["stop_grace_period"])
        assert grace is not None
        assert 60 * int(grace[1] or 0) + int(grace[2]) > DRAIN_S_MAX + STOP_S_MAX


def seconds(duration: str) -> int:
    """What Compose makes of a duration: `5s`, `2m0s`."""
    matched = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", duration)
    assert matched, duration
    minutes, rest = (int(part or 0) for part in matched.groups())
    return minutes * 60 + rest


def test_nobody_is_called_unhealthy_while_it_waits_for_others(composed: dict[str, Any]) -> None:
    """The console is ready when a broker is registered, and waits for none; a query may fail."""
    health = {name: each.get("healthcheck") for name, each in composed["services"].items()}

    def start(name: str) -> int:
        return seconds(health[name]["start_period"])

    for broker in BROKERS:
        assert start("console") >= start("postgres") + start(broker)
    assert all(start(name) >= 60 for name in ("namesrv", *FILTER_SERVERS))
    etl = health["spark-etl"]
    assert int(etl["retries"]) * seconds(etl["interval"]) >= 60


def test_health_is_asked_where_the_service_says_it(composed: dict[str, Any], root: Path) -> None:
    ours = dict(zip(("namesrv", *BROKERS), loaded(composed, root), strict=True))
    for name, settings in ours.items():
        port = settings.admin_port
        test = composed["services"][name]["healthcheck"]["test"]
        assert test == ["CMD", "kourou", "health", f"http://127.0.0.1:{port}/readyz"]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("port", ["20911", "31111"])
def test_the_host_and_containers_are_told_what_each_can_dial(
    compose, root: Path, which: int, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a broker says of itself per listener is what is published, whatever port is chosen."""
    name = BROKERS[which]
    monkeypatch.setenv(("KOUROU_BROKER_PORT", "KOUROU_BROKER_B_PORT")[which], port)
    chosen = json.loads(compose("config", "--format", "json").stdout)
    namesrv, *brokers = loaded(chosen, root)
    broker = brokers[which]
    own = broker.listen_port
    assert (own, broker.broker_name) == ((10_911, "broker-a"), (11_011, "broker-b"))[which]
    assert broker.listeners({"zmq": "", "tcp": ""}) == {
        "zmq:internal": f"{name}:{own + 10_000}",
        "zmq:host": f"127.0.0.1:{port}",
        "tcp:internal": f"{name}:{own}",
        "tcp:host": f"127.0.0.1:{own}",
    }
    assert published(chosen, name, broker.zmq_bind_address) == port
    assert set(namesrv.listeners()) == {"internal", "host"}
    assert published(chosen, "namesrv", namesrv.listeners()["host"]) == "19876"
    assert published(chosen, name, broker.tcp_listeners["internal"]) == str(own)
    assert set(namesrv.tcp_listeners) == {"internal", "host"}
    assert published(chosen, "namesrv", namesrv.tcp_listeners["host"]) == "9876"
    internal = namesrv.listeners()["internal"].rpartition(":")[2]
    assert broker.name_server_endpoints == (f"namesrv:{internal}",)


def published(composed: dict[str, Any], service: str, bound: str) -> str:
    """The port of this machine that leads to what a service binds."""
    inside = int(bound.rpartition(":")[2])
    [port] = [each for each in composed["services"][service]["ports"] if each["target"] == inside]
    return str(port["published"])


def loaded(
    composed: dict[str, Any], root: Path
) -> tuple[NamesrvSettings, BrokerSettings, BrokerSettings]:
    """What the name server and both brokers are told."""
    namesrv, *brokers = [settings_of(composed, root, name) for name in ("namesrv", *BROKERS)]
    return namesrv, brokers[0], brokers[1]
