"""compose.core.yml on an engine: confirmed messages survive a kill and `down` and `up`.

As test_up.py, in another project: `./kourou test containers --compose`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.containers.docker_engine import DockerEngine
from tests.containers.suite import (
    START_S,
    Up,
    consumed,
    free_ports,
    inspected,
    kourou,
    sent_by_http,
    states,
    tailed,
)

PROJECT = "kourou-core-test"
SERVICES = ("namesrv", "broker", "console")
MESSAGES = 500

pytestmark = [pytest.mark.compose, pytest.mark.timeout(3_000)]


@pytest.fixture(scope="module")
def core_ports() -> dict[str, str]:
    return free_ports()


@pytest.fixture(scope="module")
def core(engine: DockerEngine, compose, root: Path, core_ports: dict[str, str]) -> Iterator[Up]:
    """`core("stop")`: Compose on the small suite, which must succeed; what it printed."""
    file, environment = root / "compose.core.yml", engine.environment | core_ports

    def run(*arguments: str) -> str:
        done = compose("-p", PROJECT, *arguments, file=file, environment=environment)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return str(done.stdout)

    yield run
    run("down", "--volumes", "--timeout", "0")


def test_all_that_was_confirmed_is_consumed_after_a_kill_and_after_down_and_up(
    core: Up, core_ports: dict[str, str], engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KOUROU_CURVE_KEY_FILE", raising=False)
    core_up = ("up", "--detach", "--no-build", "--wait", "--wait-timeout", START_S)
    core(*core_up)
    first = [f"first {number}" for number in range(MESSAGES)]
    assert len(kourou(core_ports, "send", "orders", given="\n".join(first))) == MESSAGES
    sent_by_http(core_ports, "by HTTP", "orders")
    first = sorted([*first, "by HTTP"])
    assert consumed(core_ports, "orders", "counters", len(first)) == first

    broker = inspected(engine, core, "broker")["Id"]
    engine.docker("kill", "--signal=KILL", broker)
    engine.docker("wait", broker)
    assert states(core)["broker"] == ("exited", 137)
    core(*core_up)
    assert tailed(core_ports, "orders", len(first)) == first
    second = [f"second {number}" for number in range(MESSAGES)]
    assert len(kourou(core_ports, "send", "orders", given="\n".join(second))) == MESSAGES

    core("down")
    core(*core_up)
    everything = sorted([*first, *second])
    assert tailed(core_ports, "orders", len(everything)) == everything
    assert consumed(core_ports, "orders", "auditors", len(everything)) == everything
    for service in SERVICES:
        assert not inspected(engine, core, service)["State"]["OOMKilled"], service
    core("stop")
    assert states(core) == dict.fromkeys(SERVICES, ("exited", 0))
