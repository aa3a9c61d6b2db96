"""The job of the chart that makes keys and secrets, against an API server that this test plays."""

from __future__ import annotations

import base64
import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.containers.helm_chart import CHART, EVERYTHING, NAMESPACE, RELEASE, Helm, Release, host

from kourou.authorization.access_table import AccessAggregate, evolve
from kourou.broker.administrators import InitialUsersFile
from kourou.events.control_events import AccessEventBase
from kourou.service.secret_keys import SecretKeys
from kourou.transport.curve_keys import ServerKeys, read_pair, read_public

TOKEN = "of-the-job"
RUN = "/run/kourou"
PATH = f"/api/v1/namespaces/{NAMESPACE}/secrets"
STORES = ("broker", "ha-replica", "raft")


class SecretsApi:
    """What the API server does with Secrets, as far as the job's role allows it."""

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, Any]] = {}
        self.names: set[str] = set()
        self.requests: list[str] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                status, reply = 401, {}
                if self.headers["Authorization"] == f"Bearer {TOKEN}":
                    kind = self.headers["Content-Type"]
                    status, reply = api.handle(self.command, self.path, kind, body)
                content = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                """Nothing: the server's own lines would be in the output of the test."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def handle(
        self, method: str, path: str, kind: str, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        folder, slash, name = path.partition(f"{PATH}/")
        if path == PATH and method == "POST":
            name = body["metadata"]["name"]
            if name in self.secrets:
                return 409, {"message": "it exists"}
            self.requests.append(f"POST {name}")
            self.secrets[name] = body
            return 201, body
        if folder or not slash or name not in self.names or method not in ("GET", "PATCH"):
            return 403, {"message": f"no right to {method} {path}"}
        if name not in self.secrets:
            return 404, {"message": "not found"}
        if method == "PATCH":
            if kind != "application/merge-patch+json" or set(body) != {"data"}:
                return 415, {"message": kind}
            self.requests.append(f"PATCH {name}: {' '.join(sorted(body['data']))}")
            self.secrets[name]["data"].update(body["data"])
        return 200, self.secrets[name]

    def data(self, name: str) -> dict[str, bytes]:
        """What a Secret of the release holds."""
        found = self.secrets[f"{RELEASE}-{name}"]["data"]
        return {key: base64.b64decode(text) for key, text in found.items()}

    def everything(self) -> dict[str, dict[str, bytes]]:
        names = [name.removeprefix(f"{RELEASE}-") for name in self.secrets]
        return {name: self.data(name) for name in names}


@pytest.fixture
def api() -> Iterator[SecretsApi]:
    found = SecretsApi()
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture(scope="module")
def job(root: Path) -> ModuleType:
    """The program of the job, as a module."""
    path = root / CHART / "files" / "make_keys.py"
    spec = importlib.util.spec_from_file_location("make_keys", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(job: ModuleType, api: SecretsApi, release: Release, folder: Path) -> None:
    """The job of a release, with what its pod is told and may."""
    [role] = release.named("Role").values()
    [_, existing] = role["rules"]
    api.names = set(existing["resourceNames"])
    variables = {one["name"]: one["value"] for one in release.container("keys")["env"]}
    store = job.SecretStore(api.url, variables["NAMESPACE"], TOKEN)
    folder.mkdir()
    job.make(store, json.loads(variables["PLAN"]), folder)


@pytest.fixture
def made(job: ModuleType, api: SecretsApi, rendered: Release, tmp_path: Path) -> SecretsApi:
    """The Secrets of a release with every service, whose job has run once."""
    run(job, api, rendered, tmp_path / "job")
    return api


def placed(contents: dict[str, bytes], folder: Path) -> Path:
    """A volume with these files, which only their owner can read."""
    folder.mkdir(parents=True)
    for name, data in contents.items():
        (folder / name).touch(0o600)
        (folder / name).write_bytes(data)
    return folder


def test_each_pod_finds_its_pair_and_everybody_s_public_key(
    made: SecretsApi, rendered: Release, tmp_path: Path
) -> None:
    assert set(made.everything()) == {
        *("public", "access", "spark", "keys-host", "keys-namesrv", "keys-console"),
        *(f"keys-{name}" for name in (*STORES, "filter-server", "spark-etl")),
    }
    for one in made.secrets.values():
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == RELEASE, "found by it for their removal"
    public = placed(made.data("public"), tmp_path / "public")
    servers = ServerKeys(public)
    for name in ("namesrv", *STORES, "filter-server", "console", "spark-etl"):
        [place] = [
            one["secret"]["secretName"]
            for one in rendered.pods()[name]["volumes"]
            if one["name"] == "secret-keys"
        ]
        for index in range(2 if name in ("broker", "filter-server") else 1):
            named = Path(rendered.environment(name, index)["KOUROU_CURVE_KEY_FILE"]).name
            own = made.data(place.removeprefix(f"{RELEASE}-"))[named]
            folder = placed({named: own}, tmp_path / f"{name}-{index}")
            pair = read_pair(folder / named)
            [shown] = read_public(public / f"{Path(named).stem}.key")
            assert shown.key == pair.public
            numbers = {
                one["name"]: one["containerPort"] for one in rendered.container(name)["ports"]
            }
            for port in {"zmq", "members"} & set(numbers):
                assert servers.of(f"{host(name, index)}:{numbers[port]}") == (pair.public,), name
                if name != "filter-server":  # addresses in message IDs
                    assert servers.of(f"10.1.2.3:{numbers[port]}") == (pair.public,), name
    ring = placed(made.data("keys-host"), tmp_path / "host") / "host.ring"
    assert ServerKeys(ring, ring=True).of(f"{host('broker', 7)}:20911")
    assert not [key for key in made.data("public") if not key.endswith(".key")]


def test_each_pair_is_that_of_one_user_whom_every_broker_accepts(
    made: SecretsApi, rendered: Release, tmp_path: Path
) -> None:
    public = placed(made.data("public"), tmp_path / "public")
    access_files = placed(made.data("access"), tmp_path / "access")
    file = tmp_path / "users.toml"
    file.write_text(rendered.files()["users.toml"].replace(f"{RUN}/", f"{tmp_path}/"), "utf-8")
    users, access = InitialUsersFile(file), AccessAggregate()
    secrets = SecretKeys.read(access_files / "access.keys")
    for name, entry in users.users().items():
        for event in users.events(name, entry, access, secrets):
            assert isinstance(event, AccessEventBase)
            evolve(access, event)
    keys = {path.stem: read_public(path)[0].key for path in public.iterdir()}
    filter_servers = ("filter-server-0", "filter-server-1")
    assert {name: access.user_of_key[key] for name, key in keys.items()} == {
        "host": "admin",
        **dict.fromkeys(("namesrv", *STORES), "containers"),
        **{name: name for name in ("console", "pipeline", *filter_servers)},
    }
    assert sorted(access.table.administrators) == ["admin", "containers"]
    assert len(made.data("access")["admin.secret"].strip()) >= 32


def test_once_more_changes_nothing(
    job: ModuleType, made: SecretsApi, rendered: Release, tmp_path: Path
) -> None:
    before = made.everything()
    assert all(one.startswith("POST ") for one in made.requests)
    made.requests.clear()
    run(job, made, rendered, tmp_path / "again")
    assert made.requests == []
    assert made.everything() == before


def test_an_upgrade_adds_what_is_missing_and_keeps_what_others_added(
    job: ModuleType, api: SecretsApi, helm: Helm, tmp_path: Path
) -> None:
    """Two more filter servers: nothing else gets another key."""
    run(job, api, helm.render(), tmp_path / "first")
    api.secrets[f"{RELEASE}-public"]["data"]["app.key"] = base64.b64encode(b"x").decode()
    before = api.everything()
    assert "keys-filter-server" not in before
    api.requests.clear()
    run(job, api, helm.render(EVERYTHING), tmp_path / "again")
    pairs = [f"filter-server-{index}" for index in range(2)]
    assert sorted(api.requests) == [
        f"PATCH {RELEASE}-keys-host: host.ring",
        f"PATCH {RELEASE}-public: {' '.join(f'{pair}.key' for pair in pairs)}",
        f"POST {RELEASE}-keys-filter-server",
    ]
    after = api.everything()
    assert set(after["keys-filter-server"]) == {f"{pair}.key_secret" for pair in pairs}
    for name, contents in before.items():
        kept = {key: data for key, data in after[name].items() if key in contents}
        assert {key: data for key, data in kept.items() if key != "host.ring"} == {
            key: data for key, data in contents.items() if key != "host.ring"
        }, name


def test_a_run_that_was_interrupted_is_completed(
    job: ModuleType, made: SecretsApi, rendered: Release, tmp_path: Path
) -> None:
    """Some Secrets are there, others are not: pairs and public keys fit again."""
    whole = made.everything()
    for name in ("public", "spark", "keys-host"):
        del made.secrets[f"{RELEASE}-{name}"]
    run(job, made, rendered, tmp_path / "again")
    after = made.everything()
    changed = {"public", "spark", "keys-host"}
    assert {key: one for key, one in after.items() if key not in changed} == {
        key: one for key, one in whole.items() if key not in changed
    }
    assert after["keys-host"] != whole["keys-host"]
    without = {"host.key"}
    assert {key: one for key, one in after["public"].items() if key not in without} == {
        key: one for key, one in whole["public"].items() if key not in without
    }


def test_a_damaged_key_ends_the_job_and_stays(
    job: ModuleType, made: SecretsApi, rendered: Release, tmp_path: Path
) -> None:
    """An administrator decides what becomes of what the key protects."""
    data = made.secrets[f"{RELEASE}-keys-broker"]["data"]
    data["broker.key_secret"] = base64.b64encode(b"damaged").decode()
    made.requests.clear()
    with pytest.raises(SystemExit, match="kourou keys make"):
        run(job, made, rendered, tmp_path / "again")
    assert made.requests == []
    assert base64.b64decode(data["broker.key_secret"]) == b"damaged"


def test_the_secret_of_spark_is_random(made: SecretsApi) -> None:
    lines = made.data("spark")["spark-defaults.conf"].decode().splitlines()
    settings = dict(line.split() for line in lines)
    assert settings["spark.authenticate"] == "true"
    assert len(settings["spark.authenticate.secret"]) == 32


def test_no_secret_is_printed(capfd: pytest.CaptureFixture[str], made: SecretsApi) -> None:
    output = "".join(capfd.readouterr())
    assert f"created Secret {RELEASE}-access" in output
    private = [made.data("access")["admin.secret"], *made.data("access")["access.keys"].split(b":")]
    private += [read_pair_secret(data) for data in made.data("keys-broker").values()]
    private.append(made.data("spark")["spark-defaults.conf"].split()[3])
    shown = [one for one in private if len(one.strip()) > 8 and one.strip().decode() in output]
    assert shown == []


def read_pair_secret(data: bytes) -> bytes:
    """The secret key in a file of a pair."""
    [line] = [line for line in data.splitlines() if b"secret-key" in line]
    return line.split(b'"')[1]


def test_without_a_right_the_job_says_what_was_refused(
    job: ModuleType, api: SecretsApi, tmp_path: Path
) -> None:
    store = job.SecretStore(api.url, NAMESPACE, TOKEN)
    with pytest.raises(SystemExit, match="GET shop-access: 403"):
        job.make(store, {"prefix": RELEASE, "pairs": {}}, tmp_path)
    other = job.SecretStore(api.url, NAMESPACE, "another")
    with pytest.raises(SystemExit, match="401"):
        other.read("shop-access")
