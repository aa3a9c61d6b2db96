"""The keys of docker-compose.yml: made once, seen by their owners, found at every address."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.containers.suite import (
    BROKERS,
    FILTER_SERVERS,
    RAFT,
    REPLICAS,
    SPARK_CLUSTER,
    WATCHING,
)

from kourou.authorization.access_table import AccessAggregate, evolve
from kourou.broker.administrators import InitialUsersFile
from kourou.cli.main import main
from kourou.events.control_events import AccessEventBase
from kourou.service.secret_keys import SecretKeys
from kourou.transport.curve_keys import ServerKeys, read_pair, read_public

RUN = "/run/kourou"
SPARK = {"spark-etl", *SPARK_CLUSTER}
"""One party, whose parts have one pair."""

MEMBERS = {*BROKERS, *REPLICAS, *RAFT}
READERS = MEMBERS | {"namesrv"}
"""Who checks that a key is that of a member, and signatures of users."""

DIALLED = {
    "namesrv": ["namesrv:19876", "127.0.0.1:19876"],
    "broker": ["broker:20911", "broker:20912", "127.0.0.1:20911", "10.89.0.7:20911"],
    "broker-b": ["broker-b:21011", "127.0.0.1:21011", "10.89.0.8:21012"],
    "ha-replica": ["ha-replica:20931", "127.0.0.1:20931", "10.89.0.9:20932"],
    "ha-replica-b": ["ha-replica-b:21031", "127.0.0.1:21031"],
    "raft-n0": ["raft-n0:20952", "127.0.0.1:20951"],
    "raft-n1": ["raft-n1:20972", "127.0.0.1:20971"],
    "raft-n2": ["raft-n2:20992", "127.0.0.1:20991", "10.89.0.4:20992"],
    "filter-server": ["filter-server:20915", "127.0.0.1:20915"],
    "filter-server-2": ["filter-server-2:20916", "127.0.0.1:20916"],
    "filter-server-b": ["filter-server-b:21015", "127.0.0.1:21015"],
}
"""What others dial: names among containers, addresses in messages, what this machine is told."""


def key_file(name: str) -> str:
    """What the pair of a service is called; images without Java know no such word."""
    return "pipeline" if name in SPARK else name


def of_ours(composed: dict[str, Any]) -> dict[str, Any]:
    others = {"keys", "postgres", *WATCHING}
    return {name: one for name, one in composed["services"].items() if name not in others}


def test_each_service_sees_its_own_pair_and_no_other(composed: dict[str, Any]) -> None:
    owners: dict[str, set[str]] = {}
    for name, service in of_ours(composed).items():
        mounts = {one["target"]: one for one in service["volumes"] if one["target"].startswith(RUN)}
        wanted = {f"{RUN}/keys", f"{RUN}/public"}
        if name in READERS:
            wanted |= {f"{RUN}/members", f"{RUN}/access"}
        if name in BROKERS:
            wanted.add(f"{RUN}/database")
        assert set(mounts) == wanted, name
        assert all(one["read_only"] for one in mounts.values()), name
        assert mounts[f"{RUN}/public"]["source"] == "public-keys"
        owners.setdefault(mounts[f"{RUN}/keys"]["source"], set()).add(name)
        if name in SPARK - {"spark-etl"}:
            continue
        view = service["environment"]
        assert view["KOUROU_CURVE_KEY_FILE"] == f"{RUN}/keys/{key_file(name)}.key_secret"
        assert view["KOUROU_CURVE_SERVER_KEY"] == f"{RUN}/public"
        assert view.get("KOUROU_CURVE_MEMBERS") == (f"{RUN}/members" if name in READERS else None)
        access = f"{RUN}/access/access.keys" if name in READERS else None
        assert view.get("KOUROU_ACCESS_KEY_FILE") == access, name
        clients = None if name in {"console", "spark-etl"} else f"{RUN}/public"
        assert view.get("KOUROU_CURVE_CLIENTS") == clients, name
        needs = service["depends_on"]["keys"]["condition"]
        assert needs == "service_completed_successfully", name
    assert SPARK in owners.values()
    assert all(len(names) == 1 or names == SPARK for names in owners.values())
    for name in (*WATCHING, "postgres"):
        volumes = composed["services"][name].get("volumes", [])
        keys = {one["source"] for one in volumes if str(one["source"]).endswith("-keys")}
        own = {"grafana": {"grafana-keys"}, "postgres": {"database-keys"}}
        assert keys == own.get(name, set()), name


def test_who_makes_them_has_no_network_and_its_folders_are_in_the_image(
    composed: dict[str, Any], root: Path
) -> None:
    service = composed["services"]["keys"]
    assert service["network_mode"] == "none"
    assert not service.get("ports")
    mounted = {Path(one["target"]).name: one["source"] for one in service["volumes"]}
    assert set(mounted.values()) == {
        name for name in composed["volumes"] if name.endswith("-keys")
    }, "every volume of keys"
    text = (root / "Dockerfile").read_text(encoding="utf-8")
    [names] = re.findall(r"for name in ((?:[^;]|\n)*);", text)
    assert set(names.replace("\\", " ").split()) == set(mounted), "owned by whom writes there"


def made(composed: dict[str, Any], tmp_path: Path) -> Path:
    """What the command of the service makes, in a folder of this machine."""
    command = composed["services"]["keys"]["command"]
    assert main([word.replace("/keys/", f"{tmp_path}/") for word in command]) == 0
    return tmp_path


def test_what_it_makes_fits_every_address_that_is_dialled(
    composed: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(composed, tmp_path)
    pairs = {
        name: read_pair(folder / name / f"{name}.key_secret")
        for name in (*DIALLED, "console", "pipeline", "host")
    }
    assert len({pair.public for pair in pairs.values()}) == len(pairs)
    ring = folder / "host" / "host.ring"
    assert read_pair(ring) == pairs["host"]
    assert ring.stat().st_mode & 0o777 == 0o600
    for servers in (ServerKeys(folder / "public"), ServerKeys(ring, ring=True)):
        for name, addresses in DIALLED.items():
            for address in addresses:
                assert servers.of(address) == (pairs[name].public,), address
    members = {path.stem for path in (folder / "members").iterdir()}
    assert members == MEMBERS
    for place in ("public", "members"):
        assert not list((folder / place).glob("*.key_secret"))
    modes = {name: (folder / name / f"{name}.key_secret").stat().st_mode & 0o777 for name in pairs}
    assert modes == {name: 0o444 if name in FILTER_SERVERS else 0o600 for name in pairs}
    admin = folder / "access" / "admin.secret"
    assert admin.stat().st_mode & 0o777 == 0o600
    SecretKeys.read(folder / "access" / "access.keys")
    given = [folder / "grafana" / "grafana.secret", folder / "database" / "postgres.secret"]
    assert [one.stat().st_mode & 0o777 for one in given] == [0o444] * 2
    spark = folder / "workers" / "spark-defaults.conf"
    assert spark.stat().st_mode & 0o777 == 0o600
    settings = dict(line.split() for line in spark.read_text("utf-8").splitlines())
    assert settings["spark.authenticate"] == "true"
    secrets = [one.read_text("utf-8").strip() for one in (admin, *given)]
    secrets.append(settings["spark.authenticate.secret"])
    assert len(set(secrets)) == 4
    assert min(map(len, secrets)) >= 16
    view = capsys.readouterr()
    assert not [one for one in secrets if one in view.out + view.err]
    assert not [pair for pair in pairs.values() if pair.secret in view.out + view.err]


def test_each_pair_is_that_of_one_user_whom_every_broker_accepts(
    composed: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    folder = made(composed, tmp_path)
    text = (root / "deploy" / "users.toml").read_text(encoding="utf-8")
    copy = tmp_path / "users.toml"
    copy.write_text(text.replace(f"{RUN}/", f"{folder}/"))
    file, access = InitialUsersFile(copy), AccessAggregate()
    secrets = SecretKeys.read(folder / "access" / "access.keys")
    for name, entry in file.users().items():
        for event in file.events(name, entry, access, secrets):
            assert isinstance(event, AccessEventBase)
            evolve(access, event)
    keys = {path.stem: read_public(path)[0].key for path in (folder / "public").iterdir()}
    owners = {name: access.user_of_key[key] for name, key in keys.items()}
    assert owners == {
        "host": "admin",
        **dict.fromkeys(READERS, "containers"),
        **{name: name for name in ("console", "pipeline", *FILTER_SERVERS)},
    }
    assert sorted(access.table.administrators) == ["admin", "containers"]
    assert list(access.secrets) == ["admin"]
    for name in FILTER_SERVERS:
        broker = "broker-b" if name.endswith("-b") else "broker-a"
        assert access.users[name].node == f"DefaultCluster/{broker}/{name}"


def private(folder: Path) -> list[Path]:
    """The secret files of all pairs, the key of secrets, and all secrets."""
    places = [folder / name for name in ("access", "grafana", "database", "workers")]
    return [*folder.glob("*/*.key_secret"), *(one for place in places for one in place.iterdir())]


def test_once_more_changes_no_pair_and_follows_another_port(
    compose, composed: dict[str, Any], tmp_path: Path
) -> None:
    folder = made(composed, tmp_path)
    before = {path: path.read_bytes() for path in private(folder)}
    assert len(before) == 19
    moved = {"KOUROU_BROKER_PORT": "31111"}
    chosen = json.loads(compose("config", "--format", "json", environment=moved).stdout)
    made(chosen, tmp_path)
    assert {path: path.read_bytes() for path in private(folder)} == before
    servers = ServerKeys(folder / "host" / "host.ring", ring=True)
    pair = read_pair(folder / "broker/broker.key_secret")
    assert servers.of("127.0.0.1:31111") == (pair.public,)
