"""The chart of deploy/helm, rendered by the real Helm and compared with docker-compose.yml."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.containers.compose_settings import KINDS
from tests.containers.helm_chart import (
    CHART,
    EVERYTHING,
    NAMESPACE,
    RELEASE,
    WORKLOADS,
    Helm,
    Release,
    host,
)
from tests.containers.suite import SPARK_CLUSTER
from tests.containers.test_compose_file import COUNTED, OTHERS, seconds
from tests.containers.test_systemd import limits_of_memory

from kourou.broker.administrators import InitialUsersFile
from kourou.broker.config import BrokerSettings
from kourou.service.command_line import parse_arguments
from kourou.settings.sources import load_settings
from kourou_console.config import ConsoleSettings
from kourou_filter_server.config import FilterServerSettings
from kourou_namesrv.config import NamesrvSettings
from kourou_rigs.certificates import Authority
from kourou_spark_etl.commands import with_jobs
from kourou_spark_etl.config import EtlSettings

NOT_IN_IT = {*OTHERS, *SPARK_CLUSTER}
"""A cluster has its own database, monitoring and Spark."""

STORES = ("broker", "ha-replica", "raft")
SERVICES = {"namesrv", *STORES, "filter-server", "console", "spark-etl"}
LEFT_OUT = {"KOUROU_PROCESS_CORES", "KOUROU_SPARK_OPTIONS", "KOUROU_LISTEN_PORT"}
"""Empty unless a user of the compose file sets them, or another port on the same machine."""

ADDED = {
    *("POD_NAME", "POD_INDEX", "KOUROU_BROKER_NAME", "KOUROU_CONNECT_WHICH_BROKER"),
    *("KOUROU_D_LEGER_PEERS", "KOUROU_CONSOLE_NAMES", "KOUROU_SPARK_ETL_ADDRESS"),
}
"""What the files of deploy have, with the names and addresses of the compose file."""

OTHER_VALUES = {
    *("NAMESRV_ADDR", "KOUROU_ADVERTISED_LISTENERS", "KOUROU_CONNECT_WHICH_BROKER"),
    *("KOUROU_BROKER_NAME", "KOUROU_LISTEN_PORT", "KOUROU_FILTER_SERVER_INDEX"),
    *("KOUROU_CURVE_KEY_FILE", "KOUROU_EVENT_STORE_PASSWORD_FILE"),
}
"""Variables about names and addresses: the tests below load them."""

NAMESPACE_NAME = "kubernetes.io/metadata.name"
UNITS = {"Mi": 20, "Gi": 30}
EXPLAINED = {"resources", "environment"}
"""The comment above all services explains them."""


def role(name: str) -> str:
    """The service of the chart that stands for one of the compose file."""
    return "raft" if name.startswith("raft-") else COUNTED.sub("", name)


def ours(composed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = composed["services"]
    return {name: one for name, one in services.items() if name not in {*NOT_IN_IT, "keys"}}


def size(text: str) -> int:
    """`64Mi` in bytes."""
    return int(text[:-2]) << UNITS[text[-2:]]


def mounts(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["mountPath"]: one for one in container["volumeMounts"]}


def volumes(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in pod["volumes"]}


# -- the same as the compose file -----------------------------------------------------------------


def test_helm_finds_nothing_wrong(helm: Helm) -> None:
    for values in ({}, EVERYTHING):
        done = helm.run("lint", CHART, "--strict", values=values)
        assert done.returncode == 0, done.stdout + done.stderr


def test_it_runs_the_services_of_the_compose_file(
    composed: dict[str, Any], rendered: Release
) -> None:
    assert set(rendered.named(*WORKLOADS)) == set(map(role, ours(composed))) == SERVICES
    assert set(rendered.named("Job")) == {"keys"}
    assert set(rendered.named("Service")) == SERVICES


def test_services_are_started_with_the_same_words_and_files(
    composed: dict[str, Any], rendered: Release, root: Path
) -> None:
    files = rendered.files()
    used = set()
    for name, service in ours(composed).items():
        container = rendered.container(role(name))
        assert "command" not in container, "the entry point of the image"
        assert container["args"] == service["command"], name
        assert container.get("workingDir") == service.get("working_dir"), name
        items = volumes(rendered.pods()[role(name)])["settings"]["configMap"]["items"]
        assert mounts(container)["/etc/kourou"] == {
            "name": "settings",
            "mountPath": "/etc/kourou",
            "readOnly": True,
        }
        placed = {f"/etc/kourou/{one['path']}": one["key"] for one in items}
        assert set(placed) == {one["target"] for one in service["configs"]}, name
        for one in service["configs"]:
            used.add(placed[one["target"]])
            source = Path(composed["configs"][one["source"]]["file"])
            assert source.name == placed[one["target"]]
            if source.name != "users.toml":
                assert files[source.name] == source.read_text("utf-8"), name
    assert set(files) == used
    linked = {path.name: path for path in (root / CHART / "files").iterdir() if path.is_symlink()}
    assert set(linked) == used, "no file is there twice"
    assert {path.resolve().parent for path in linked.values()} == {root / "deploy"}


def test_variables_are_those_of_the_compose_file(
    composed: dict[str, Any], rendered: Release
) -> None:
    for name, service in ours(composed).items():
        index = int(name[-1]) if name.startswith("raft-") else 0
        found = rendered.environment(role(name), index)
        wanted: dict[str, str] = service["environment"]
        assert set(wanted) - set(found) <= LEFT_OUT, name
        assert set(found) - set(wanted) <= ADDED, name
        for key in set(wanted) & set(found) - OTHER_VALUES:
            assert found[key] == wanted[key], (name, key)


def test_users_are_those_of_the_compose_file(
    rendered: Release, helm: Helm, root: Path, tmp_path: Path
) -> None:
    """Who they are and what they may; only keys and nodes are those of the release."""
    text = (root / "deploy" / "users.toml").read_text("utf-8")
    wanted = tomllib.loads(text)
    found = tomllib.loads(rendered.files()["users.toml"])
    nodes = {f"filter-server-{index}": index for index in range(2)}
    assert set(found) == {name for name in wanted if not name.startswith("filter-")} | set(nodes)
    for name, user in found.items():
        model = wanted["filter-server" if name in nodes else name]
        assert set(user) == set(model), name
        own = {"node", "curve-key-files"}
        assert {key: user[key] for key in set(user) - own} == {
            key: model[key] for key in set(model) - own
        }, name
        if name in nodes:
            assert user["node"] == f"DefaultCluster/broker-{nodes[name]}/{name}"
    assert list(found["containers"]["curve-key-files"]) == [
        f"/run/kourou/public/{name}.key" for name in ("namesrv", *STORES)
    ]
    plain = helm.render().files()["users.toml"]
    assert set(tomllib.loads(plain)) == set(found) - set(nodes), "no filter servers by default"
    for content in (plain, rendered.files()["users.toml"]):
        file = tmp_path / "users.toml"
        file.write_text(content, "utf-8")
        assert "admin" in InitialUsersFile(file).users()


def test_images_are_those_of_the_compose_file_and_have_a_tag(
    composed: dict[str, Any], rendered: Release, root: Path
) -> None:
    for name, service in ours(composed).items():
        assert rendered.container(role(name))["image"] == service["image"], name
    images = {one["image"] for _, one in rendered.containers()}
    assert images == {"kourou:0.1.0", "kourou-spark:0.1.0"}
    assert "latest" not in rendered.text
    chart = yaml.safe_load((root / CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["appVersion"] == project["version"]


def test_a_pod_may_do_what_a_container_of_the_compose_file_may(
    composed: dict[str, Any], rendered: Release
) -> None:
    for name, service in ours(composed).items():
        pod = rendered.pods()[role(name)]
        options = service["security_opt"]
        user, group = map(int, service.get("user", "10001:10001").split(":"))
        context = dict(pod["securityContext"])
        profile = context.pop("seccompProfile")
        assert context == {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": group,
            "fsGroup": group,
            "fsGroupChangePolicy": "OnRootMismatch",
        }, name
        own = [Path(one.removeprefix("seccomp=")) for one in options if one.startswith("seccomp=")]
        if own:
            assert profile["type"] == "Localhost", name
            assert Path(profile["localhostProfile"]).name == own[0].name, name
        else:
            assert profile == {"type": "RuntimeDefault"}, name
        assert pod["shareProcessNamespace"] is service["init"], name
        assert pod["terminationGracePeriodSeconds"] == seconds(service["stop_grace_period"]), name
        [tmp] = [one for one in service["tmpfs"] if one.startswith("/tmp:")]
        memory = volumes(pod)["tmp"]["emptyDir"]
        assert memory["medium"] == "Memory"
        assert size(memory["sizeLimit"]) == int(re.findall(r"size=(\d+)m", tmp)[0]) << 20, name
        limits = rendered.container(role(name))["resources"].get("limits", {})
        limit = service.get("mem_limit")
        assert set(limits) == {"memory"}, name
        assert not limit or size(limits["memory"]) == int(limit), name


# -- closed ---------------------------------------------------------------------------------------


def test_every_container_is_hardened(rendered: Release) -> None:
    """As in the compose file (test_compose_file.py), and the job that has no counterpart there."""
    for name, pod in rendered.pods().items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["automountServiceAccountToken"] is (name == "keys"), name
        assert pod["enableServiceLinks"] is False, f"{name}: KOUROU_CONSOLE_PORT is a setting"
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), name
        kinds = {kind for one in pod["volumes"] for kind in one if kind != "name"}
        assert kinds <= {"configMap", "secret", "emptyDir"}, name
    checked = 0
    for name, container in rendered.containers():
        checked += 1
        context = dict(container["securityContext"])
        copies = name.endswith(": keys") and name != "keys: keys"
        assert context.pop("seccompProfile", None) == (
            {"type": "RuntimeDefault"} if copies else None
        ), f"{name}: the profile of filter servers refuses to change modes"
        assert context == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
    assert checked == 2 * len(SERVICES) + 1


def test_no_secret_is_in_what_helm_keeps(rendered: Release) -> None:
    """Helm stores the objects of a release; the job makes the secrets in the cluster."""
    assert "Secret" not in {one["kind"] for one in rendered.objects}
    for name, container in rendered.containers():
        for one in container.get("env", []):
            if re.search("PASSWORD|SECRET|TOKEN", one["name"]):
                assert one["value"].startswith("/run/kourou/"), f"{name}: {one['name']}"


def test_a_pod_has_its_own_pair_only(composed: dict[str, Any], rendered: Release) -> None:
    for name, pod in rendered.pods().items():
        if name == "keys":
            continue
        of_pod = volumes(pod)
        assert of_pod["secret-keys"]["secret"]["secretName"] == f"{RELEASE}-keys-{name}"
        container = rendered.container(name)
        found = mounts(container)
        wanted = {"/run/kourou/keys", "/run/kourou/public"}
        readers = {"/run/kourou/members", "/run/kourou/access"}
        inside = {path for path in found if path.startswith("/run/")}
        assert inside == wanted | (readers if name in ("namesrv", *STORES) else set()), name
        assert all(found[path]["readOnly"] for path in inside), name
        for path in ("keys", "access"):
            if f"/run/kourou/{path}" in inside:
                assert of_pod[path]["emptyDir"]["medium"] == "Memory", "copies, by the first one"
        assert not [one for one in found if one.startswith("/secrets")], name
        if "/run/kourou/members" in inside:
            items = of_pod["members"]["secret"]["items"]
            assert [one["key"] for one in items] == [f"{one}.key" for one in STORES]
    command = composed["services"]["keys"]["command"]
    [members] = [word for word in command if word.startswith("/keys/members=")]
    assert set(map(role, members.partition("=")[2].split(","))) == set(STORES)
    access = {
        name: [one["key"] for one in volumes(pod)["secret-access"]["secret"]["items"]]
        for name, pod in rendered.pods().items()
        if "secret-access" in volumes(pod)
    }
    both = ["access.keys", "admin.secret"]
    assert access == {"namesrv": ["access.keys"], **dict.fromkeys(STORES, both)}


def test_copies_of_secrets_are_where_the_service_reads_them(rendered: Release) -> None:
    """And each belongs to its user alone, as services demand."""
    for name in SERVICES:
        [first] = rendered.pods()[name]["initContainers"]
        environment = rendered.environment(name, 1 if name in STORES else 0)
        [script] = first["args"]
        script = script.replace("$(POD_INDEX)", environment.get("POD_INDEX", ""))
        lines = script.splitlines()
        assert all(line.startswith("install -m 0600 ") for line in lines), name
        copied = set()
        for line in lines:
            source, target = line.replace('"', "").split()[3:]
            source_folder = str(Path(source).parent)
            assert mounts(first)[source_folder]["readOnly"] is True, name
            place = f"{target}{Path(source).name}" if target.endswith("/") else target
            assert str(Path(place).parent) in mounts(first)
            copied.add(place)
        named = {
            value
            for key, value in environment.items()
            if key.endswith("_FILE") and value.startswith("/run/")
        }
        assert named <= copied, name
        assert copied - named <= {"/run/kourou/access/admin.secret"}, name


def test_only_who_is_named_can_connect(composed: dict[str, Any], rendered: Release) -> None:
    policies = rendered.named("NetworkPolicy")
    assert set(policies) == SERVICES
    for name, policy in policies.items():
        spec = policy["spec"]
        workload = rendered.named(*WORKLOADS)[name]
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()
        assert "Ingress" in spec["policyTypes"]
        declared = {one["name"]: one["containerPort"] for one in rendered.container(name)["ports"]}
        reached: dict[int, list[dict[str, Any]]] = {}
        for rule in spec["ingress"]:
            assert rule["from"], f"{name}: a rule without peers admits everybody"
            assert all(rule["from"]), f"{name}: an empty peer"
            for port in rule["ports"]:
                reached.setdefault(port["port"], []).extend(rule["from"])
        assert set(reached) == set(declared.values()), name
        clients = {"podSelector": {"matchLabels": {"kourou-client": "true"}}}
        for port, number in declared.items():
            assert (clients in reached[number]) is (port not in {"members", "admin"}), (name, port)
        of = "app.kubernetes.io/component"
        for port in {"members", "admin"} & set(declared):
            peers = [one["podSelector"]["matchLabels"][of] for one in reached[declared[port]]]
            assert peers == (list(STORES) if port == "members" else ["console"]), name
    assert "database" not in ours(composed)["filter-server"]["networks"]
    spec = policies["filter-server"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    to_broker, names, collector = spec["egress"]
    [peer] = to_broker["to"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "broker"
    assert [one["port"] for one in to_broker["ports"]] == [20_911]
    assert [one["port"] for one in names["ports"]] == [53, 53]
    [servers] = names["to"]
    assert servers["podSelector"]["matchLabels"] == {"k8s-app": "kube-dns"}
    assert servers["namespaceSelector"]["matchLabels"] == {NAMESPACE_NAME: "kube-system"}
    assert [one["port"] for one in collector["ports"]] == [4_318]
    assert collector["to"] == [{"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: NAMESPACE}}}]
    others = [one["spec"]["policyTypes"] for key, one in policies.items() if key != "filter-server"]
    assert all(one == ["Ingress"] for one in others)


def in_namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: name}}}


OUTSIDE = {"ipBlock": {"cidr": "198.51.100.0/24"}}


@pytest.mark.parametrize(
    ("endpoint", "more", "peers", "port"),
    [
        ("http://10.1.2.3:4318", [], [{"ipBlock": {"cidr": "10.1.2.3/32"}}], 4_318),
        ("http://otel.traces:4318", [], [in_namespace("traces")], 4_318),
        ("https://otel.traces.svc", [], [in_namespace("traces")], 443),
        ("http://otel.traces.svc.cluster.local/v1", [], [in_namespace("traces")], 80),
        ("https://otel.example.org:4318", [OUTSIDE], [OUTSIDE], 4_318),
        ("http://10.1.2.3:4318", [OUTSIDE], [OUTSIDE], 4_318),
    ],
)
def test_filter_servers_reach_the_collector_and_nothing_else_on_its_port(
    helm: Helm, endpoint: str, more: list[Any], peers: list[Any], port: int
) -> None:
    values = {
        "filterServer": {"enabled": True},
        "tracing": {"endpoint": endpoint},
        "networkPolicy": {"collector": more, "dns": [OUTSIDE]},
    }
    spec = helm.render(values).named("NetworkPolicy")["filter-server"]["spec"]
    _, names, collector = spec["egress"]
    assert names["to"] == [OUTSIDE]
    assert collector == {"to": peers, "ports": [{"port": port}]}


def test_filter_servers_without_traces_and_names_reach_their_broker_only(helm: Helm) -> None:
    values = {"filterServer": {"enabled": True}, "networkPolicy": {"dns": []}}
    [rule] = helm.render(values).named("NetworkPolicy")["filter-server"]["spec"]["egress"]
    assert rule["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "broker"


TLS_FOLDER = "/run/kourou/tls"


@pytest.mark.parametrize("mode", ["enforcing", "permissive"])
@pytest.mark.parametrize("client_auth", ["none", "optional"])
def test_tls_reaches_every_service_that_can_have_it(
    helm: Helm, tmp_path: Path, mode: str, client_auth: str
) -> None:
    tls = {"secret": "shop-tls", "mode": mode, "clientAuth": client_auth}
    release = helm.render({**EVERYTHING, "tls": tls})
    enforcing = mode == "enforcing"
    with_tls = SERVICES if enforcing else SERVICES - {"console", "spark-etl"}
    for name in sorted(SERVICES):
        pod, container = release.pods()[name], release.container(name)
        own = name in with_tls
        assert (TLS_FOLDER in mounts(container)) is own, name
        assert ("tls" in volumes(pod)) is own, name
        scheme = "HTTPS" if enforcing else "HTTP"
        for kind in ("readiness", "startup", "liveness"):
            assert container[f"{kind}Probe"]["httpGet"]["scheme"] == scheme, name
        if own:
            assert mounts(container)[TLS_FOLDER]["readOnly"] is True
            mode_of = volumes(pod)["tls"]["secret"]
            assert mode_of == {"secretName": "shop-tls", "defaultMode": 0o440}, name
            assert "tls" not in str(pod["initContainers"]), "a copy would not be renewed"
        settings = loaded(release, name, 0, tmp_path)
        assert str(settings.tls_mode) == (mode if own else "disabled"), name
        if own:
            assert settings.tls_cert_path == Path(TLS_FOLDER, "tls.crt")
            assert settings.tls_key_path == Path(TLS_FOLDER, "tls.key")
            assert str(settings.tls_client_auth) == client_auth
            trust = None if client_auth == "none" else Path(TLS_FOLDER, "ca.crt")
            assert settings.tls_trust_cert_path == trust
    console = release.environment("console")
    scheme = "https://" if enforcing else ""
    assert console["KOUROU_SPARK_ETL_ADDRESS"] == f"{scheme}{RELEASE}-spark-etl:18281"
    assert ("KOUROU_TLS_CLIENT_TRUST_CERT_PATH" in console) is enforcing


def test_without_a_certificate_nothing_has_tls(helm: Helm, rendered: Release) -> None:
    assert "TLS_SERVER" not in rendered.text
    assert "HTTPS" not in rendered.text
    assert TLS_FOLDER not in rendered.text


def test_limits_of_memory_are_those_that_the_page_explains(rendered: Release, root: Path) -> None:
    wanted = limits_of_memory(root)
    for name in SERVICES - {"raft"}:
        resources = rendered.container(name)["resources"]
        assert resources["limits"]["memory"] == wanted[name][1], name
        assert size(resources["requests"]["memory"]) <= size(wanted[name][1]), name
    assert rendered.container("raft")["resources"]["limits"]["memory"] == wanted["broker"][1]


def test_without_more_values_it_is_closed_and_needs_nothing_of_nodes(helm: Helm) -> None:
    plain = helm.render()
    assert set(plain.named(*WORKLOADS)) == {"namesrv", "broker", "ha-replica", "console"}
    assert set(plain.named("NetworkPolicy")) == set(plain.named(*WORKLOADS))
    assert "Localhost" not in plain.text
    assert plain.environment("console")["KOUROU_SIGN_IN"] == "users"
    assert plain.environment("console")["KOUROU_SPARK_ETL_ADDRESS"] == ""
    assert plain.environment("broker")["OTEL_TRACES_EXPORTER"] == "none"
    for name in ("broker", "ha-replica"):
        found = plain.environment(name)
        assert found["KOUROU_INITIAL_USERS_FILE"] == "/etc/kourou/users.toml"
        assert "KOUROU_EVENT_STORE_URL" not in found
    off = helm.render({"networkPolicy": {"enabled": False}})
    assert not off.named("NetworkPolicy")


# -- what services are told -----------------------------------------------------------------------


def loaded(release: Release, name: str, index: int, tmp_path: Path) -> Any:
    """The settings that a pod gets: arguments, environment, file. None of them gives a warning."""
    folder = tmp_path / f"{name}-{index}"
    folder.mkdir()
    for file, text in release.files().items():
        (folder / file).write_text(text, "utf-8")
    password = folder / "password"
    password.touch(0o600)
    password.write_text("x", "utf-8")
    environment = release.environment(name, index) | {"KOUROU_ACCESS_KEY_FILE": ""}
    for variable, path in (
        ("KOUROU_INITIAL_USERS_FILE", folder / "users.toml"),
        ("KOUROU_EVENT_STORE_PASSWORD_FILE", password),
        ("KOUROU_TLS_CLIENT_TRUST_CERT_PATH", Authority(folder, "ca").path),
    ):
        if variable in environment:
            environment[variable] = str(path)
    words = [word for word in release.container(name)["args"] if word != "run"]
    service, flag, inside, *rest = words
    assert flag == "-c"
    file = folder / Path(inside).name
    arguments = parse_arguments(service, "", ["-c", str(file), *with_jobs(rest)])
    result = load_settings(
        KINDS[service], arguments=arguments.settings, environment=environment, file=file
    )
    assert result.warnings == (), name
    return result.settings


def ports(release: Release, name: str) -> dict[str, int]:
    return {one["name"]: one["containerPort"] for one in release.container(name)["ports"]}


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("name", STORES)
def test_clients_and_replicas_find_each_pod_by_its_own_name(
    rendered: Release, tmp_path: Path, name: str, index: int
) -> None:
    settings: BrokerSettings = loaded(rendered, name, index, tmp_path)
    numbers = ports(rendered, name)
    assert settings.broker_name == ("raft-a" if name == "raft" else f"broker-{index}")
    assert settings.is_replica is (name != "broker")
    assert settings.listeners({"zmq": "", "tcp": ""}) == {
        "zmq:internal": f"{host(name, index)}:{numbers['zmq']}",
        "tcp:internal": f"{host(name, index)}:{numbers['tcp']}",
    }
    assert settings.zmq_bind_address == f"0.0.0.0:{numbers['zmq']}"
    assert settings.tcp_listeners["internal"] == f"0.0.0.0:{numbers['tcp']}"
    assert settings.members_bind_address == f"0.0.0.0:{numbers['members']}"
    assert settings.admin_port == numbers["admin"]
    assert settings.knows_replicas
    assert settings.name_server_endpoints == tuple(
        f"{host('namesrv', number)}:{ports(rendered, 'namesrv')['zmq']}" for number in range(2)
    )
    assert (settings.event_store_url is not None) is (name == "broker")
    data = mounts(rendered.container(name))["/var/lib/kourou"]["name"]
    [claim] = rendered.named("StatefulSet")[name]["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == data
    assert settings.store_root.is_relative_to("/var/lib/kourou")
    if name == "raft":
        assert settings.raft_self == f"n{index}"
        assert settings.raft_peers == {
            f"n{number}": f"{host(name, number)}:{numbers['members']}" for number in range(3)
        }


def test_other_services_find_what_they_serve(rendered: Release, tmp_path: Path) -> None:
    namesrv: NamesrvSettings = loaded(rendered, "namesrv", 0, tmp_path)
    numbers = ports(rendered, "namesrv")
    assert namesrv.listeners()["internal"] == f"0.0.0.0:{numbers['zmq']}"
    assert namesrv.tcp_listeners["internal"] == f"0.0.0.0:{numbers['tcp']}"
    assert namesrv.kv_config_path.is_relative_to("/var/lib/kourou")
    for index in range(2):
        settings: FilterServerSettings = loaded(rendered, "filter-server", index, tmp_path)
        numbers = ports(rendered, "filter-server")
        at = f"{host('broker', index)}:{ports(rendered, 'broker')['zmq']}"
        assert settings.broker_address == at
        assert settings.unsafe_no_sandbox is False
        assert settings.zmq_bind_address == f"0.0.0.0:{numbers['zmq']}"
        assert settings.listeners({"zmq": "", "tcp": ""}) == {
            "zmq:internal": f"{host('filter-server', index)}:{numbers['zmq']}",
            "tcp:internal": f"{host('filter-server', index)}:{numbers['tcp']}",
        }
        assert settings.admin_port == numbers["admin"]
    console: ConsoleSettings = loaded(rendered, "console", 0, tmp_path)
    pages = ports(rendered, "spark-etl")["admin"]
    assert console.spark_etl_address == f"{RELEASE}-spark-etl:{pages}"
    assert (console.port, console.admin_port) == tuple(ports(rendered, "console").values())
    assert f"{RELEASE}-console.{NAMESPACE}.svc" in console.host_names
    etl: EtlSettings = loaded(rendered, "spark-etl", 0, tmp_path)
    assert etl.admin_port == pages
    assert etl.wanted_job_file == Path("/etc/kourou/spark-etl.toml")
    assert etl.folder.is_relative_to("/var/lib/kourou")


def test_health_pages_are_asked_as_in_the_compose_file(
    composed: dict[str, Any], rendered: Release
) -> None:
    for name, service in ours(composed).items():
        if name == "filter-server-2":
            continue  # the second one of a broker, on another port
        container = rendered.container(role(name))
        numbers = ports(rendered, role(name))
        check = service["healthcheck"]
        ready, start, alive = (
            container[f"{kind}Probe"] for kind in ("readiness", "startup", "liveness")
        )
        page = ready["httpGet"]
        url = f"http://127.0.0.1:{numbers[page['port']]}{page['path']}"
        assert check["test"][-1] == url, name
        assert ready["periodSeconds"] == seconds(check["interval"]), name
        assert ready["timeoutSeconds"] == seconds(check["timeout"]), name
        assert ready["failureThreshold"] == int(check["retries"]), name
        assert page["scheme"] == "HTTP", name
        for probe in (start, alive):
            assert probe["httpGet"] == {**page, "path": "/healthz"}, name
        allowed = start["periodSeconds"] * start["failureThreshold"]
        assert allowed == seconds(check["start_period"]), name


def test_services_lead_to_the_ports_of_pods(rendered: Release) -> None:
    for name, service in rendered.named("Service").items():
        spec = service["spec"]
        workload = rendered.named(*WORKLOADS)[name]
        template = workload["spec"]["template"]["metadata"]["labels"]
        assert spec["selector"] == workload["spec"]["selector"]["matchLabels"]
        assert spec["selector"].items() <= template.items()
        assert {one["name"]: one["port"] for one in spec["ports"]} == ports(rendered, name)
        assert all(one["targetPort"] == one["name"] for one in spec["ports"])
        assert spec.get("type", "ClusterIP") == "ClusterIP", "nothing outside can connect"
        if workload["kind"] == "StatefulSet":
            assert workload["spec"]["serviceName"] == service["metadata"]["name"]
            assert spec["clusterIP"] == "None"
            assert spec["publishNotReadyAddresses"] is True


def test_an_eviction_takes_one_pod_of_a_service_at_a_time(rendered: Release) -> None:
    budgets = rendered.named("PodDisruptionBudget")
    several = {
        name
        for name, workload in rendered.named(*WORKLOADS).items()
        if workload["spec"]["replicas"] > 1
    }
    assert set(budgets) == several >= {"namesrv", *STORES}
    for name, budget in budgets.items():
        workload = rendered.named(*WORKLOADS)[name]
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"] == workload["spec"]["selector"]


def test_numbers_and_values_reach_what_they_are_about(helm: Helm) -> None:
    values: dict[str, Any] = {
        "broker": {"replicas": 3, "environment": {"KOUROU_DELETE_WHEN": "02"}, "storage": "7Gi"},
        "namesrv": {"replicas": 1},
        "filterServer": {"enabled": True, "seccompProfile": "here/f.json"},
        "console": {"names": ["mq.example"]},
        "storageClass": "fast",
        "imagePullSecrets": [{"name": "registry"}],
        "networkPolicy": {"monitoring": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]},
    }
    chosen, before = helm.render(values), helm.render(EVERYTHING)
    counts = {
        name: workload["spec"]["replicas"] for name, workload in chosen.named(*WORKLOADS).items()
    }
    assert counts == {"namesrv": 1, "broker": 3, "ha-replica": 3, "filter-server": 3, "console": 1}
    assert "filter-server-2" in tomllib.loads(chosen.files()["users.toml"])
    assert chosen.environment("broker")["KOUROU_DELETE_WHEN"] == "02"
    assert chosen.environment("broker")["NAMESRV_ADDR"] == f"{host('namesrv', 0)}:9876"
    assert "mq.example" in chosen.environment("console")["KOUROU_CONSOLE_NAMES"].split(";")
    [claim] = chosen.named("StatefulSet")["broker"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "7Gi"
    assert all(pod["imagePullSecrets"] == [{"name": "registry"}] for pod in chosen.pods().values())
    profile = chosen.pods()["filter-server"]["securityContext"]["seccompProfile"]
    assert profile["localhostProfile"] == "here/f.json"
    *_, admin = chosen.named("NetworkPolicy")["broker"]["spec"]["ingress"]
    assert values["networkPolicy"]["monitoring"][0] in admin["from"]

    def checksum(release: Release, name: str) -> str:
        template = release.named(*WORKLOADS)[name]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/settings"])

    assert checksum(chosen, "broker") != checksum(before, "broker"), "brokers read users at a start"
    assert checksum(chosen, "console") == checksum(before, "console")


# -- the job --------------------------------------------------------------------------------------


def test_keys_are_made_before_anything_of_the_release_starts(rendered: Release, root: Path) -> None:
    hooks = ("ServiceAccount", "Role", "RoleBinding", "Job")
    weights = []
    for kind in hooks:
        [annotations] = [one["metadata"]["annotations"] for one in rendered.named(kind).values()]
        assert annotations["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert "hook-succeeded" in annotations["helm.sh/hook-delete-policy"], "no right remains"
        weights.append(int(annotations["helm.sh/hook-weight"]))
    assert weights == sorted(weights)
    assert weights[-1] > max(weights[:-1])
    of_release = [one for one in rendered.objects if one["kind"] not in hooks]
    assert not [one for one in of_release if "helm.sh/hook" in str(one["metadata"])]
    pod = rendered.pods()["keys"]
    [container] = pod["containers"]
    [script] = container["args"]
    assert container["command"] == ["python3", "-c"]
    assert script == (root / CHART / "files" / "make_keys.py").read_text("utf-8")
    assert "$(" not in script, "Kubernetes would replace it"
    assert pod["serviceAccountName"] == rendered.named("ServiceAccount")["keys"]["metadata"]["name"]
    [role_of_it] = rendered.named("Role").values()
    create, existing = role_of_it["rules"]
    assert (create["verbs"], create["resources"]) == (["create"], ["secrets"])
    assert (existing["verbs"], existing["resources"]) == (["get", "patch"], ["secrets"])
    used = {
        one["secret"]["secretName"]
        for each in rendered.pods().values()
        for one in each["volumes"]
        if "secret" in one
    }
    assert used - {"database"} == set(existing["resourceNames"]) - {f"{RELEASE}-keys-host"}


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"image": "kourou:latest"}, "image"),
        ({"image": "kourou"}, "image"),
        ({"image": "registry.example:5000/kourou"}, "image"),
        ({"sparkImage": "kourou-spark@sha256:12"}, "sparkImage"),
        ({"broker": {"replicas": 0}}, "replicas"),
        ({"broker": {"storage": "much"}}, "storage"),
        ({"broker": {"environment": {"KOUROU_DELETE_WHEN": 2}}}, "KOUROU_DELETE_WHEN"),
        ({"brokers": {"replicas": 3}}, "brokers"),
        ({"haReplica": {"enabled": "no"}}, "enabled"),
        ({"filterServer": {"seccompProfile": "../profile.json"}}, "seccompProfile"),
        ({"networkPolicy": {"clients": [{}]}}, "clients"),
        ({"eventStore": {"url": "postgresql://kourou:open@db/kourou"}}, "url"),
        ({"eventStore": {"url": "postgresql://kourou:o/pen@db/kourou"}}, "url"),
        ({"eventStore": {"url": "postgresql://kourou@db/kourou?password=open"}}, "url"),
        (
            {"broker": {"environment": {"KOUROU_EVENT_STORE_URL": "postgresql://a:b@db/c"}}},
            "KOUROU_EVENT_STORE_URL",
        ),
        ({"tracing": {"share": 2}}, "share"),
        (
            {
                "filterServer": {"enabled": True},
                "tracing": {"endpoint": "https://otel.example.org:4318"},
            },
            "networkPolicy.collector must say where",
        ),
    ],
)
def test_a_wrong_value_is_refused(helm: Helm, values: dict[str, Any], word: str) -> None:
    done = helm.run("template", RELEASE, CHART, values=values)
    assert done.returncode != 0
    assert word in done.stderr


@pytest.mark.parametrize(
    "image", ["registry.example:5000/a/kourou:0.1.0", f"kourou:1@sha256:{'0' * 64}"]
)
def test_an_image_can_be_in_any_registry(helm: Helm, image: str) -> None:
    release = helm.render({"image": image})
    assert {one["image"] for _, one in release.containers()} == {image}


def test_a_long_name_is_refused(helm: Helm) -> None:
    """Labels of pods have the name of the release, of the service and a checksum."""
    done = helm.run("template", "r" * 31, CHART)
    assert done.returncode != 0
    assert "more than 30 characters" in done.stderr


def test_a_cluster_without_numbers_of_pods_is_refused(helm: Helm) -> None:
    """Names of brokers and keys of filter servers follow from a label of 1.28."""
    done = helm.run("template", RELEASE, CHART, kubernetes="1.27.9")
    assert done.returncode != 0
    assert "kubeVersion" in done.stderr


def test_each_value_has_a_comment_and_a_rule(root: Path) -> None:
    text = (root / CHART / "values.yaml").read_text("utf-8")
    values = yaml.safe_load(text)
    schema = json.loads((root / CHART / "values.schema.json").read_text("utf-8"))
    assert set(schema["properties"]) == {*values, "global"}
    lines = text.splitlines()
    for key, value in values.items():
        rule = schema["properties"][key]
        if isinstance(value, dict):
            assert set(rule["properties"]) == set(value), key
            assert rule["additionalProperties"] is False, key
            inner = [one for one in value if one not in EXPLAINED]
            at = lines.index(f"{key}:")
        else:
            inner, at = [key], -1
        for name in inner:
            indent = "" if name is key else "  "
            [place, *_] = [
                number
                for number, line in enumerate(lines)
                if number > at and re.match(rf"{indent}{name}:", line)
            ]
            assert lines[place - 1].strip().startswith("#"), f"{key}: {name}"
    assert len(lines) < 150
