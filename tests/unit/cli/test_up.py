"""What `kourou up` says: where things are, what to type, and what became of a broker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.cli import up
from kourou.cli.up import introduction, obituary, run_until_stopped
from kourou.errors import ConfigError, Unavailable
from kourou.service.local_cluster import ClusterSettings


class Pretender:
    """Plays a child."""

    ended_in_peace = False

    def __init__(self, name: str, zmq: str, runs: bool = True) -> None:
        self.name = name
        self.pid = 17
        tcp = zmq.removeprefix("tcp://").replace(":19876", ":9876")
        self.ready = {"service": name, "zmq": zmq, "tcp": tcp, "admin": "http://127.0.0.1:18080"}
        self.ready["pid"] = "17"
        self.running = runs
        self.log_path = Path(f"/logs/{name}.log")

    def wait_for_exit(self, timeout_s: float) -> int | None:
        return None if self.running else -9

    def how_it_ended(self) -> str:
        return "still runs" if self.running else "was killed by SIGKILL"

    def log_tail(self) -> str:
        return "one\ntwo"


class Cluster:
    """Plays a cluster whose broker was killed."""

    def __init__(self, folder: Path, settings: ClusterSettings) -> None:
        self.folder = folder
        self.address = "tcp://127.0.0.1:19876"
        self.namesrv = Pretender("namesrv", self.address)
        self.brokers = [Pretender("broker-a", "tcp://127.0.0.1:20911", runs=False)]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stop(self) -> dict[str, int]:
        return {"broker-a": -9, "namesrv": 0}


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_it_shows_what_to_type_as_it_was_typed_with_the_address_of_the_readme(
    tmp_path: Path,
) -> None:
    text = "\n".join(introduction(Cluster(tmp_path, ClusterSettings()), "", "./kourou"))
    assert "    export NAMESRV_ADDR=127.0.0.1:9876\n" in text
    assert "    ./kourou send greetings hello\n" in text
    assert "    ./kourou tail greetings --first\n" in text
    assert "clients    127.0.0.1:9876" in text
    assert "pages      http://127.0.0.1:18080" in text
    assert "RocketMQ   127.0.0.1:9876" in text
    assert "zmq" not in text
    assert "traces" not in text
    traced = introduction(Cluster(tmp_path, ClusterSettings()), "http://here:4318", "kourou")
    assert "traces     http://here:4318" in traced


def test_a_broker_that_was_killed_is_told_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "LocalCluster", Cluster)
    with pytest.raises(Unavailable) as told:
        run_until_stopped(tmp_path, brokers=1, free_ports=True, called_as="./kourou")
    assert str(told.value) == (
        "broker-a (pid 17) was killed by SIGKILL; so the others were stopped, too. What was "
        "acknowledged is kept: `./kourou up` goes on with it"
    )
    assert capsys.readouterr().out.endswith(
        "broker-a (pid 17) was killed by SIGKILL; its log is /logs/broker-a.log\n"
        "which ends with:\n    one\n    two\n"
    )


def test_a_broker_that_was_told_to_end_ends_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Told(Cluster):
        def __init__(self, folder: Path, settings: ClusterSettings) -> None:
            super().__init__(folder, settings)
            self.brokers[0].ended_in_peace = True

        def stop(self) -> dict[str, int]:
            return {"broker-a": 0, "namesrv": 0}

    monkeypatch.setattr(up, "LocalCluster", Told)
    assert run_until_stopped(tmp_path, brokers=1, free_ports=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "broker-a (pid 17) was told to end; so all are drained …"
    assert lines[-1].startswith("stopped; what was stored stays in")


def test_a_process_without_a_word_has_no_last_words() -> None:
    told = obituary("broker-a", 17, "was killed by SIGKILL", Path("/a.log"), "")
    assert told == "broker-a (pid 17) was killed by SIGKILL; its log is /a.log"


@pytest.mark.parametrize(
    "told",
    [
        "broker-a does not start: port 20911 on 127.0.0.1 is taken (choose another port)",
        "namesrv does not start: admin port 20911 on 127.0.0.1 cannot be used: address already in "
        "use (choose another adminPort, or 0 for any)",
    ],
)
def test_a_taken_port_is_told_without_settings_that_it_does_not_have(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, settings: ClusterSettings) -> Cluster:
        raise ConfigError(told)

    monkeypatch.setattr(up, "LocalCluster", refuse)
    with pytest.raises(ConfigError) as refused:
        run_until_stopped(tmp_path, brokers=1, free_ports=False)
    assert str(refused.value) == (
        "port 20911 is used already, perhaps by another name server or broker "
        "(stop that one, or let --free-ports take any others)"
    )


def test_another_refusal_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path, settings: ClusterSettings) -> Cluster:
        raise ConfigError("/a is in use: process 17 runs name server and brokers there")

    monkeypatch.setattr(up, "LocalCluster", refuse)
    with pytest.raises(ConfigError, match="process 17"):
        run_until_stopped(tmp_path, brokers=1, free_ports=False)
