"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kourou.sync
from kourou.cli.main import main
from kourou_rigs.wire_cluster import WireCluster

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster() -> WireCluster:
    """Two masters with the broker's own core, `broker-a` and `broker-b`."""
    found = WireCluster()
    found.broker("broker-a")
    found.broker("broker-b")
    return found


@pytest.fixture
def run_at_cluster(
    cluster: WireCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command whose client is connected to it; returns exit code, output, and errors."""
    client = kourou.sync.Client

    def opened(_: object, *, group: str) -> object:
        return client("127.0.0.1:9876", group=group, dial=cluster.dial)

    monkeypatch.setattr(kourou.sync, "Client", opened)

    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        output = capsys.readouterr()
        return code, output.out, output.err

    return command
