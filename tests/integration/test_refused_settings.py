"""What RocketMQ's users rely on for safety and Kourou does not do: no service starts with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou_rigs.forked_starts import run_kourou

SERVICES = ("namesrv", "broker", "ha-replica")


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("source", ["file", "argument", "environment"])
def test_no_service_starts_with_a_promise_that_it_does_not_keep(
    service: str, source: str, tmp_path: Path
) -> None:
    file = tmp_path / "service.conf"
    file.write_text("tls.test.mode.enable=true\n", encoding="utf-8")
    if source == "file":
        done = run_kourou(service, "-c", str(file))
        told = f"in {file}: tls.test.mode.enable=true is refused: Kourou never makes a self-signed"
    elif source == "argument":
        done = run_kourou(service, "--set", "enableControllerMode=true")
        told = "on the command line: enableControllerMode=true is refused: Kourou has no controller"
    else:
        done = run_kourou(service, variables={"KOUROU_USE_TLS": "true"})
        told = "in the environment: useTLS=true is refused: Kourou does not use TLS in its own"
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert told in line


def test_services_start_where_the_same_keys_promise_nothing(tmp_path: Path) -> None:
    nothing = {"aclEnable": "false", "useTLS": "false", "tls.server.mode": "disabled"}
    with LocalCluster(tmp_path, ClusterSettings(broker=nothing, namesrv=nothing)) as cluster:
        assert cluster.namesrv.ready


def test_a_name_server_decides_no_requests_and_says_so() -> None:
    done = run_kourou("namesrv", "--set", "aclEnable=true")
    assert (done.returncode, done.stdout) == (2, "")
    assert "aclEnable=true is refused: Kourou does not need it: a broker decides" in done.stderr


@pytest.mark.parametrize("key", ["aclEnable", "authenticationEnabled", "authorizationEnabled"])
def test_a_broker_that_must_decide_requests_does_not_start_without_users(
    key: str, tmp_path: Path
) -> None:
    store = f"storePathRootDir={tmp_path}"
    done = run_kourou("broker", "--set", f"{key}=true", "--set", store, "--set", "listenPort=0")
    assert done.returncode == 2, done.stderr
    assert f"{key}=true, but this broker has no users" in done.stderr
    assert "initialAdminFile" in done.stderr
