"""Systems say what they lack; a server that does not start is an error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kourou.errors import Unavailable
from kourou.service.processes import Children, free_port
from kourou_bench.rows import Work
from kourou_bench.systems import (
    NATS_LINE,
    Nats,
    Redis,
    complaint,
    version_of,
    wait_for_port,
)


def test_a_server_that_ends_is_quoted(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("server", [sys.executable, "-c", "exit('no')"], says_ready=False)
        with pytest.raises(Unavailable, match="server ended with 1: no"):
            wait_for_port(child, free_port())


def test_a_complaint_leaves_out_where_java_was(tmp_path: Path) -> None:
    text = "boot\\nIOException: taken\\n\\tat a.b(C.java:1)\\n\\tat a.c(C.java:2)\\n"
    with Children(tmp_path) as children:
        child = children.start(
            "server", [sys.executable, "-c", f"print('{text}')"], says_ready=False
        )
        assert child.wait_for_exit(30) == 0
        assert complaint(child) == "boot | IOException: taken"


def fake_command(folder: Path, name: str, output: str) -> None:
    script = folder / name
    script.write_text(f"#!/bin/sh\necho '{output}'\n")
    script.chmod(0o755)


def test_missing_servers_say_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GOPATH", str(tmp_path))
    assert version_of("nats-server") == ""
    assert NATS_LINE in Nats(tmp_path).missing()
    assert "sudo apt install -y nats-server" in Nats(tmp_path).missing()
    assert "sudo apt install -y redis-server" in Redis(tmp_path).missing()


def test_what_go_has_installed_goes_before_what_is_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, version in (("path", "v2.9.10"), ("bin", "v2.15.2")):
        (tmp_path / folder).mkdir()
        fake_command(tmp_path / folder, "nats-server", f"nats-server: {version}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    monkeypatch.setenv("GOPATH", str(tmp_path))
    monkeypatch.delenv("GOBIN", raising=False)
    assert Nats(tmp_path).title() == "NATS 2.15.2"


@pytest.mark.parametrize(
    ("version", "complaint"),
    [("v2.9.10", "nats-server 2.9.10 cannot sync before it answers"), ("v2.10.0", "")],
)
def test_old_servers_of_nats_cannot_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, complaint: str
) -> None:
    fake_command(tmp_path, "nats-server", f"nats-server: {version}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("GOPATH", str(tmp_path / "none"))
    nats = Nats(tmp_path)
    assert nats.cannot(Work("send", flush="sync")).startswith(complaint)
    assert bool(nats.cannot(Work("send", flush="sync"))) == bool(complaint)
    assert nats.cannot(Work("send")) == ""
