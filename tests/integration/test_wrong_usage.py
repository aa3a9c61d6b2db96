"""What a service does with what it must refuse: one sentence, exit code 2, nothing touched."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kourou.errors import TopicNotFound, Unavailable
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.sync import Client
from kourou_rigs.forked_starts import run_kourou


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence on stderr; everything else about the refusal is checked here."""
    lines = done.stderr.splitlines()
    sentences = [line for line in lines if line.startswith("kourou")]
    assert done.returncode == 2, done.stderr
    assert len(sentences) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "is ready" not in done.stdout
    return sentences[0]


Snapshot = dict[str, tuple[int, int, str]]


def contents(folder: Path) -> Snapshot:
    """Everything at and below a folder: size, time of the last change, bytes. Empty: not there."""
    found: Snapshot = {}
    for path in sorted([folder, *folder.rglob("*")]) if folder.exists() else []:
        about = path.stat()
        whole = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[path.relative_to(folder).as_posix()] = (about.st_size, about.st_mtime_ns, whole)
    return found


SIZES = {
    "mappedFileSizeCommitLog": "1048576",
    "maxMessageSize": "65536",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
"""Of stores that are copied and compared byte for byte."""

SMALL = [part for name, value in SIZES.items() for part in ("--set", f"{name}={value}")]


def broker_arguments(store: Path) -> tuple[str, ...]:
    places = ("--set", f"storePathRootDir={store}", "--set", "listenPort=0")
    return (*places, "--set", "brokerIP1=127.0.0.1")


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
    assert word in refused(run_kourou(service, *arguments))


SETTINGS = ClusterSettings(broker=SIZES)


def fill(cluster: LocalCluster) -> Path:
    """Send something; the first broker's store."""
    with Client(cluster.address, group="g") as client:
        client.send("t", "before")
    return cluster.store_folder(0)


def bodies(client: Client) -> list[bytes]:
    """Everything that lies in the topic."""
    puller = client.pull_consumer()
    pulled = [puller.pull(queue, 0) for queue in puller.queues("t")]
    return [bytes(message.body) for result in pulled for message in result.messages]


@pytest.fixture
def missing(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a broker that was killed: a log to recover, a database with a log of its own."""
    with LocalCluster(tmp_path_factory.mktemp("killed"), SETTINGS) as cluster:
        store = fill(cluster)
        cluster.brokers[0].kill()
    assert (store / "abort").exists()
    assert (store / "kourou" / "events.db-wal").stat().st_size > 0
    return store


@pytest.fixture
def crashed(killed: Path, tmp_path: Path) -> Path:
    """A copy of it, where a cluster in the same folder finds it."""
    return Path(shutil.copytree(killed, tmp_path / killed.name))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a broker that was stopped."""
    with LocalCluster(tmp_path_factory.mktemp("stopped"), SETTINGS) as cluster:
        return fill(cluster)


@pytest.fixture(params=["missing", "crashed"])
def store(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def refused_untouched(store: Path, *arguments: str) -> str:
    """A broker that is refused on a store, and leaves it as it was to the last byte and time."""
    before = contents(store)
    sentence = refused(run_kourou("broker", *broker_arguments(store), *SMALL, *arguments))
    assert contents(store) == before
    return sentence


@pytest.mark.parametrize("text", ["listenPort=1\nlistnPort=2\n", "\x00\xff", "just words\n"])
def test_unreadable_settings_files(tmp_path: Path, store: Path, text: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(text.encode("latin-1"))
    refused_untouched(store, "-c", str(path))


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.mark.parametrize("key", ["zmqPort", "adminPort"])
def test_a_taken_port_of_a_broker(store: Path, taken: int, key: str) -> None:
    assert str(taken) in refused_untouched(store, "--set", f"{key}={taken}")


@pytest.mark.parametrize("setting", ["brokerRole=SLAVE", "namesrvAddr=10.0.0.1:port"])
def test_what_no_broker_can_be(store: Path, setting: str) -> None:
    refused_untouched(store, "--set", setting)
    refused(run_kourou("broker", "-p", "--set", setting))


def test_a_crashed_store_that_was_refused_is_recovered_afterwards(
    tmp_path: Path, crashed: Path, taken: int
) -> None:
    refused_untouched(crashed, "--set", f"zmqPort={taken}")
    with LocalCluster(tmp_path, SETTINGS) as cluster, Client(cluster.address, group="g") as client:
        assert bodies(client) == [b"before"]


@pytest.mark.parametrize("key", ["zmqPort", "adminPort"])
def test_a_taken_port_of_a_name_server(tmp_path: Path, taken: int, key: str) -> None:
    kept = tmp_path / "kept" / "kv.json"
    kept.parent.mkdir()
    kept.write_text('{"configTable":{"n":{"k":"v"}}}')
    before = contents(kept.parent)
    ports = {"zmqPort": "0", "adminPort": "0", key: str(taken)}
    arguments = [part for name, port in ports.items() for part in ("--set", f"{name}={port}")]
    assert str(taken) in refused(run_kourou("namesrv", "--set", f"kvConfigPath={kept}", *arguments))
    assert contents(kept.parent) == before


def test_a_second_broker_on_the_same_store(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, SETTINGS) as cluster:
        store = fill(cluster)
        first = cluster.brokers[0]
        first.signal(signal.SIGSTOP)  # so that whatever changes meanwhile is the second one's doing
        os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)  # all its threads stand still now
        try:
            assert str(store) in refused_untouched(store)
        finally:
            first.signal(signal.SIGCONT)
        with Client(cluster.address, group="g") as client:
            assert sent_in_the_end(client) == "SEND_OK"
        assert cluster.stop() == {"broker-a": 0, "namesrv": 0}


def sent_in_the_end(client: Client) -> str:
    """The name server may have given up who stood still, and hears of it in a moment."""
    waiting = threading.Event()
    for _ in range(600):
        try:
            return client.send("t", "after").status
        except (TopicNotFound, Unavailable):
            waiting.wait(0.1)
    raise AssertionError("the broker is not back in a minute")


def damage(database: Path) -> str:
    database.write_bytes(b"\xa5" * 8_192)
    return "is damaged"


def make_newer(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE event_store_version SET version_num = '9999'")
    return "revision 9999"


@pytest.mark.parametrize(("left", "change"), [("killed", damage), ("stopped", make_newer)])
def test_an_event_store_that_cannot_be_used(
    request: pytest.FixtureRequest, tmp_path: Path, left: str, change: Callable[[Path], str]
) -> None:
    """Refused in a sentence that says which file, why, and what to do; which then works."""
    store = Path(shutil.copytree(request.getfixturevalue(left), tmp_path / "store-a"))
    database = store / "kourou" / "events.db"
    why = change(database)
    sentence = refused_untouched(store)
    assert str(database) in sentence
    assert why in sentence
    assert "move it away and restart" in sentence
    database.rename(tmp_path / "moved-away.db")
    with LocalCluster(tmp_path, SETTINGS) as cluster, Client(cluster.address, group="g") as client:
        assert bodies(client) == [b"before"]
        cluster.stop()
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM events").fetchone()
    assert count > 0, "rebuilt from the log"
