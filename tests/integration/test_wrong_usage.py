"""What a service does with what it must refuse: one sentence, exit code 2, nothing touched."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.sync import Client


def start(service: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a service that is expected not to come up."""
    return subprocess.run(
        [sys.executable, "-m", "kourou.cli", service, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence on stderr; everything else about the refusal is checked here."""
    lines = done.stderr.splitlines()
    sentences = [line for line in lines if line.startswith("kourou")]
    assert done.returncode == 2, done.stderr
    assert len(sentences) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "is ready" not in done.stdout
    return sentences[0]


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder with what is in it."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


SMALL = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxMessageSize=65536")


def broker_arguments(store: Path) -> tuple[str, ...]:
    places = ("--set", f"storePathRootDir={store}", "--set", "listenPort=0")
    return (*places, "--set", "brokerIP1=127.0.0.1")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("service", ["namesrv", "broker"])
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--frobnicate",), "frobnicate"),
        (("--set", "listenPort"), "="),
        (("--set", "listenPort=high"), "listenPort"),
        (("--set", "listenPort=70000"), "listenPort"),
        (("--set", "listnPort=9876"), "listenPort"),
        (("-c", "/nowhere/at-all.conf"), "at-all.conf"),
        (("-c", "/"), "/"),
    ],
)
def test_arguments_and_settings(service: str, arguments: tuple[str, ...], word: str) -> None:
    assert word in refused(start(service, *arguments))


@pytest.mark.parametrize("text", ["listenPort=1\nlistnPort=2\n", "\x00\xff", "just words\n"])
def test_unreadable_settings_files(tmp_path: Path, store: Path, text: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(text.encode("latin-1"))
    refused(start("broker", *broker_arguments(store), "-c", str(path)))
    assert not store.exists()


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_taken_port_of_a_broker(store: Path, taken: int) -> None:
    arguments = (*broker_arguments(store), *SMALL)
    sentence = refused(start("broker", *arguments, "--set", f"zmqPort={taken}"))
    assert str(taken) in sentence
    assert not any(path.endswith("abort") for path in contents(store))


def test_a_taken_port_of_a_name_server(tmp_path: Path, taken: int) -> None:
    kept = tmp_path / "kv.json"
    arguments = ("--set", f"kvConfigPath={kept}", "--set", f"zmqPort={taken}")
    assert str(taken) in refused(start("namesrv", *arguments, "--set", "adminPort=0"))


def test_a_second_broker_on_the_same_store(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ClusterSettings()) as cluster:
        with Client(cluster.address, group="g") as client:
            client.send("t", "before")
        second = start("broker", *broker_arguments(cluster.store_folder(0)))
        assert str(cluster.store_folder(0)) in refused(second)
        with Client(cluster.address, group="g") as client:
            assert client.send("t", "after").status == "SEND_OK"
        assert cluster.stop() == {"broker-a": 0, "namesrv": 0}


def test_a_store_of_a_newer_version(tmp_path: Path) -> None:
    settings = ClusterSettings(
        broker={"mappedFileSizeCommitLog": "1048576", "maxMessageSize": "65536"}
    )
    with LocalCluster(tmp_path, settings) as cluster:
        store = cluster.store_folder(0)
        with Client(cluster.address, group="g") as client:
            client.send("t", "before")
    path = store / "kourou" / "format.json"
    path.write_text(json.dumps({"format": 1_000}))
    before = contents(store)
    assert "format 1000" in refused(start("broker", *broker_arguments(store), *SMALL))
    assert contents(store) == before
