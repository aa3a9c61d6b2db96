"""What RocketMQ's users rely on for safety and Kourou does not do: no service starts with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.service.local_cluster import ClusterSettings, LocalCluster

SERVICES = ("namesrv", "broker", "ha-replica")


def started(service: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kourou.cli", service, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("source", ["file", "argument", "environment"])
def test_no_service_starts_with_a_promise_that_it_does_not_keep(
    service: str, source: str, tmp_path: Path
) -> None:
    file = tmp_path / "service.conf"
    file.write_text("tls.test.mode.enable=true\n", encoding="utf-8")
    if source == "file":
        done = started(service, "-c", str(file))
        told = f"in {file}: tls.test.mode.enable=true is refused: Kourou never makes a self-signed"
    elif source == "argument":
        done = started(service, "--set", "aclEnable=true")
        told = "on the command line: aclEnable=true is refused: Kourou does not check RocketMQ's"
    else:
        done = started(service, KOUROU_USE_TLS="true")
        told = "in the environment: useTLS=true is refused: Kourou does not use TLS in its own"
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert told in line


def test_services_start_where_the_same_keys_promise_nothing(tmp_path: Path) -> None:
    nothing = {"aclEnable": "false", "useTLS": "false", "tls.server.mode": "disabled"}
    with LocalCluster(tmp_path, ClusterSettings(broker=nothing, namesrv=nothing)) as cluster:
        assert cluster.namesrv.ready
