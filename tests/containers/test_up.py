"""`docker compose up`, for real: both sides send and receive, a stop drains, a second start keeps.

Minutes long, and it needs root and Debian packages (podman_engine.py says which), so it runs only
when asked for: `./kourou test --compose`, or `pytest --compose tests/containers/test_up.py`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.containers.podman_engine import PodmanEngine

PROJECT = "kourou-test"
MESSAGES = 200
PORTS = (
    "KOUROU_NAMESRV_PORT",
    "KOUROU_NAMESRV_TCP_PORT",
    "KOUROU_NAMESRV_ADMIN_PORT",
    "KOUROU_BROKER_PORT",
    "KOUROU_BROKER_TCP_PORT",
    "KOUROU_BROKER_ADMIN_PORT",
)

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1_200)]

JAVA_FILES = """
find / -xdev -not -path '/proc/*' \\( -iname 'java' -o -iname 'javac' -o -iname '*.jar' \\
    -o -iname 'libjvm*' -o -iname '*openjdk*' -o -iname 'jre*' -o -iname 'pyspark*' \\)
"""
STANDING = """
import json, os
facts = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
def writable(path):
    try:
        open(path + "/probe", "w").close()
    except OSError as error:
        return error.strerror
    return "yes"
print(json.dumps({"uid": os.getuid(), "gid": os.getgid(), "capabilities": int(facts["CapBnd"], 16),
    "no_new_privileges": int(facts["NoNewPrivs"]), "root": writable("/"),
    "programs": writable("/opt/kourou/bin"), "tmp": writable("/tmp")}))
"""

Up = Callable[..., str]


@pytest.fixture(scope="module")
def ports() -> dict[str, str]:
    """Free ports of this machine, by the variables that docker-compose.yml reads."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    try:
        return {name: str(each.getsockname()[1]) for name, each in zip(PORTS, sockets, strict=True)}
    finally:
        for each in sockets:
            each.close()


@pytest.fixture(scope="module")
def up(engine: PodmanEngine, compose: Any, ports: dict[str, str]) -> Iterator[Up]:
    """`up("stop")`: Compose on that engine, which must succeed; what it printed."""

    def run(*arguments: str) -> str:
        environment = engine.environment | ports
        done = compose("--project-name", PROJECT, *arguments, environment=environment)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return str(done.stdout)

    yield run
    run("down", "--volumes", "--timeout", "0")


@pytest.fixture(scope="module")
def started(up: Up) -> Up:
    """It is up, and every service is well."""
    up("up", "--detach", "--no-build", "--wait", "--wait-timeout", "180")
    return up


def kourou(ports: dict[str, str], *arguments: str, given: str = "") -> list[str]:
    """Our command line on this machine, told only the address that is published."""
    address = f"127.0.0.1:{ports['KOUROU_NAMESRV_PORT']}"
    done = subprocess.run(
        [sys.executable, "-m", "kourou.cli", *arguments],
        env=os.environ | {"NAMESRV_ADDR": address},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def bodies(lines: list[str]) -> list[str]:
    return sorted(json.loads(line)["body"] for line in lines)


def states(up: Up) -> dict[str, tuple[str, int]]:
    """Service -> its state and exit code."""
    rows = [json.loads(line) for line in up("ps", "--all", "--format", "json").splitlines()]
    return {row["Service"]: (row["State"], row["ExitCode"]) for row in rows}


def test_the_image_has_no_java(engine: PodmanEngine) -> None:
    def inside(entry: str, *rest: str) -> str:
        image = "docker.io/library/kourou:0.1.0"
        return engine.podman("run", "--rm", "--user=0", f"--entrypoint={entry}", image, *rest)

    assert inside("sh", "-c", JAVA_FILES) == ""
    packages = inside("dpkg-query", "--show", "--showformat=${Package}\n").split()
    assert [name for name in packages if "jre" in name or "jdk" in name or "java" in name] == []
    assert "python3" in inside("sh", "-c", "find / -xdev -name 'python3*'"), "the look sees files"
    assert inside("kourou", "version").startswith("kourou ")


def test_a_service_can_do_no_more_than_it_must(started: Up) -> None:
    for service in ("namesrv", "broker"):
        found = json.loads(started("exec", "-T", service, "python3", "-c", STANDING))
        assert found["uid"] == found["gid"] == 10001
        assert found["capabilities"] == 0
        assert found["no_new_privileges"] == 1
        assert found["root"] == found["programs"] == "Read-only file system"
        assert found["tmp"] == "yes"


def test_the_log_says_that_the_network_is_open(started: Up) -> None:
    for service in ("namesrv", "broker"):
        assert "in clear text" in started("logs", "--no-log-prefix", service)


def test_it_lives_through_sends_a_stop_and_a_second_start(
    started: Up, ports: dict[str, str]
) -> None:
    """One story, since each step stands on those before."""
    from_host = [f"from this machine {number}" for number in range(MESSAGES)]
    from_inside = [f"from a container {number}" for number in range(MESSAGES)]
    expected = sorted([*from_host, *from_inside])
    read = ("tail", "orders", "--first", "--json", "--count", str(len(expected)))

    def both_see(messages: list[str]) -> None:
        assert bodies(kourou(ports, *read)) == messages
        inside = started("exec", "-T", "namesrv", "kourou", *read, "--namesrv", "namesrv:9876")
        assert bodies(inside.splitlines()) == messages

    assert len(kourou(ports, "send", "orders", given="\n".join(from_host))) == MESSAGES
    started("exec", "-T", "broker", "kourou", "send", "orders", *from_inside)
    both_see(expected)

    started("stop")
    assert states(started) == dict.fromkeys(("namesrv", "broker", "postgres"), ("exited", 0))
    log = started("logs", "--no-log-prefix", "broker")
    assert "SIGTERM: draining" in log
    assert "broker-a (0)" in started("logs", "namesrv"), "it left its name server"

    started("up", "--detach", "--no-build", "--wait", "--wait-timeout", "180")
    both_see(expected)
    assert recorded(started) >= 1, "PostgreSQL has the control events"

    started("down", "--timeout", "40")
    started("up", "--detach", "--no-build", "--wait", "--wait-timeout", "180")
    both_see(expected)


def recorded(up: Up) -> int:
    """How often PostgreSQL has it that the topic was made."""
    question = "select count(*) from events where type = 'TopicPut' and body like '%orders%'"
    asked = ("psql", "--username", "kourou", "--tuples-only", "--command", question)
    return int(up("exec", "-T", "postgres", *asked))
