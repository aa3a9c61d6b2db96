"""What `kourou up` says: where things are, what to type, and what became of a broker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from kourou.cli import live_flights, up
from kourou.cli.live_flights import LiveFlights
from kourou.cli.up import introduction, obituary, run_until_stopped
from kourou.errors import ConfigError, Unavailable
from kourou.service.local_cluster import ClusterSettings
from kourou.service.processes import Child
from kourou_filter_server import layers
from kourou_filter_server.layers import Layer
from kourou_spark_etl import machine
from kourou_spark_etl.job_file import load_job_file
from kourou_spark_etl.machine import Lack


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
        module = f"kourou_{name.rpartition('-')[0].replace('-', '_') or name}"
        self.command = ("/bin/python", "-m", module, "-c", f"/a folder/{name}.conf")

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
        self.settings = settings
        self.spark_etl: Pretender | None = None
        self.console: Pretender | None = None
        if settings.console is not None:
            self.console = Pretender("console", "tcp://127.0.0.1:2")
            self.console.ready = {"http": "http://127.0.0.1:8080"}
        if settings.spark_etl is not None:
            self.spark_etl = Pretender("spark-etl", "tcp://127.0.0.1:1")
            self.spark_etl.ready = {"admin": "http://127.0.0.1:18281"}
        self.address = "tcp://127.0.0.1:19876"
        self.namesrv = Pretender("namesrv", self.address)
        self.brokers = [Pretender("broker-a", "tcp://127.0.0.1:20911", runs=False)]
        self.filter_servers = [
            Pretender(f"filter-server-a{index}", f"tcp://127.0.0.1:{20915 + index}")
            for index in range(settings.filter_servers)
        ]

    @property
    def beside(self) -> list[Pretender]:
        late = [one for one in (self.spark_etl, self.console) if one]
        return [*self.filter_servers, *late]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stop(self) -> dict[str, int]:
        return {"broker-a": -9, "namesrv": 0}


class Going(Cluster):
    """Its name server is looked at so many times, then a stop is asked for."""

    looks = 2

    def __init__(self, folder: Path, settings: ClusterSettings) -> None:
        super().__init__(folder, settings)
        self.namesrv.wait_for_exit = self.look  # type: ignore[method-assign]  # a pretender's

    def look(self, timeout_s: float) -> int | None:
        self.looks -= 1
        if not self.looks:
            signal.raise_signal(signal.SIGTERM)
        return None


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def whole_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine lacks nothing."""
    monkeypatch.setattr(up, "layers_lacking", lambda: ())


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


@pytest.mark.feature("F239")
@pytest.mark.parametrize(("wanted", "started"), [(None, 1), (0, 0), (3, 3)])
def test_so_many_filter_servers_a_broker(
    wanted: int | None, started: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Asked(Cluster):
        def __init__(self, folder: Path, settings: ClusterSettings) -> None:
            super().__init__(folder, settings)
            asked.append((settings.brokers, settings.filter_servers))

    monkeypatch.setattr(up, "LocalCluster", Asked)
    with pytest.raises(Unavailable):  # the broker of these clusters is dead
        run_until_stopped(tmp_path, brokers=2, free_ports=True, filter_servers=wanted)
    assert asked == [(2, started)]


@pytest.mark.feature("F243")
@pytest.mark.parametrize("wanted", [None, 2])
def test_where_the_jail_cannot_be_built_all_else_starts_and_it_says_why(
    wanted: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(up, "layers_lacking", lambda: ("user namespaces (not permitted)",))
    monkeypatch.setattr(up, "LocalCluster", Cluster)
    with pytest.raises(Unavailable, match="broker-a"):
        run_until_stopped(tmp_path, brokers=1, free_ports=True, filter_servers=wanted)
    told = capsys.readouterr().out
    assert "filter-server-a0" not in told
    assert (
        "no filter servers: their jail cannot be built on this machine, which lacks\n"
        "           user namespaces (not permitted)\n"
        "           `kourou doctor` says what to do; all else runs\n"
    ) in told
    assert "broker-a   pid 17" in told


def test_nobody_looks_at_the_jail_where_no_filter_server_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> tuple[str, ...]:
        raise AssertionError("looked")

    monkeypatch.setattr(up, "layers_lacking", refuse)
    monkeypatch.setattr(up, "LocalCluster", Cluster)
    with pytest.raises(Unavailable):
        run_until_stopped(tmp_path, brokers=1, free_ports=True, filter_servers=0)


def test_what_is_lacking_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = (Layer("Landlock", False, "ABI 0"), Layer("pidfd", True, ""))
    monkeypatch.setattr(layers, "probe", lambda: found)
    assert up.layers_lacking() == ("Landlock (ABI 0)",)

    def refuse() -> tuple[Layer, ...]:
        raise Unavailable("not tried")

    monkeypatch.setattr(layers, "probe", refuse)
    assert up.layers_lacking() == ("not tried",)


@pytest.mark.parametrize(
    ("peace", "said"),
    [
        (True, "filter-server-a1 (pid 17) was told to end; the others go on\n"),
        (False, "filter-server-a1 (pid 17) was killed by SIGKILL; its log is /logs/filter-server-"),
    ],
)
def test_a_filter_server_that_ended_is_told_once_and_the_others_go_on(
    peace: bool,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class WithoutFilters(Going):
        """Its broker runs."""

        looks = 4

        def __init__(self, folder: Path, settings: ClusterSettings) -> None:
            super().__init__(folder, settings)
            self.brokers[0].running = True
            self.filter_servers[1].running = False
            self.filter_servers[1].ended_in_peace = peace

        def stop(self) -> dict[str, int]:
            return {"filter-server-a1": 0 if peace else -9, "broker-a": 0, "namesrv": 0}

    monkeypatch.setattr(up, "LocalCluster", WithoutFilters)
    quick = {"brokers": 1, "free_ports": True, "filter_servers": 2}
    assert run_until_stopped(tmp_path, called_as="./kourou", **quick) == 0
    told = capsys.readouterr().out
    assert told.count(said) == 1
    assert told.count("the others go on") == 1
    again = "./kourou filter-server -c '/a folder/filter-server-a1.conf' --set adminPort=18080"
    start = "to start it again, in another terminal; Ctrl-C there ends it, and not here:"
    assert told.count(f"{start}\n    {again}\n") == 1
    assert "draining" in told


@pytest.mark.parametrize(
    ("pinned", "ports"), [(True, " --set consolePort=8080 --set adminPort=8181"), (False, "")]
)
def test_a_console_comes_again_where_it_was(pinned: bool, ports: str) -> None:
    """Where its ports were chosen by the system they are named; else they are the usual ones."""
    console = Pretender("console", "tcp://127.0.0.1:1", runs=False)
    console.ready = {"http": "http://127.0.0.1:8080", "admin": "http://127.0.0.1:8181"}
    told = up.start_again(cast("Child", console), "kourou", pinned=pinned)
    assert told == f"kourou console -c '/a folder/console.conf'{ports}"


def test_a_leader_with_followers_may_die_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that whoever tries a promotion on one machine can."""

    monkeypatch.setattr(up, "LocalCluster", Going)  # its leader is dead
    assert run_until_stopped(tmp_path, brokers=1, free_ports=True, replicas=1) == 0
    told = capsys.readouterr().out
    assert told.count("broker-a (pid 17) was killed by SIGKILL") == 1
    assert "the others go on" in told


def test_the_pipeline_is_shown_with_its_tables_and_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "lacking", lambda: ())
    monkeypatch.setattr(up, "LocalCluster", Cluster)
    with pytest.raises(Unavailable):  # the broker of these clusters is dead
        run_until_stopped(tmp_path, brokers=1, free_ports=True, spark=True)
    told = capsys.readouterr().out
    assert (
        "spark-etl  pid 17\n           pages      http://127.0.0.1:18281\n"
        "           tables     http://127.0.0.1:18281/tables\n"
        f"           queries    {tmp_path}/spark-etl.toml\n"
    ) in told


def test_without_a_word_there_is_no_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> tuple[Lack, ...]:
        raise AssertionError("looked")

    monkeypatch.setattr(machine, "lacking", refuse)
    monkeypatch.setattr(up, "LocalCluster", Cluster)
    with pytest.raises(Unavailable):
        run_until_stopped(tmp_path, brokers=1, free_ports=True)
    assert "spark" not in capsys.readouterr().out


def test_the_first_start_writes_the_usual_queries_and_later_ones_keep_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "lacking", lambda: ())
    place = tmp_path / "new"
    told = up.spark_settings(place, None)
    assert told == {"jobFile": str(place / "spark-etl.toml")}
    assert [spec.name for spec in load_job_file(place / "spark-etl.toml")] == [
        *("lake", "dead-letters", "backlog")
    ]
    own = '[queries.mine]\njob = "lake"\nsubscribe = "mine"\n'
    (place / "spark-etl.toml").write_text(own, encoding="utf-8")
    up.spark_settings(place, None)
    assert (place / "spark-etl.toml").read_text(encoding="utf-8") == own
    other = tmp_path / "other.toml"
    with pytest.raises(ConfigError, match="cannot read the job file"):
        up.spark_settings(place, other)
    other.write_text(own, encoding="utf-8")
    assert up.spark_settings(place, other) == {"jobFile": str(other)}


def test_a_pipeline_that_cannot_run_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(folder: Path, settings: ClusterSettings) -> Cluster:
        raise AssertionError("started")

    monkeypatch.setattr(machine, "lacking", lambda: (Lack("no Java", machine.JAVA_LINE),))
    monkeypatch.setattr(up, "LocalCluster", start)
    with pytest.raises(ConfigError, match=r"here is no Java \(sudo apt install -y openjdk-17"):
        run_until_stopped(tmp_path / "new", brokers=1, free_ports=True, spark=True)
    assert not (tmp_path / "new").exists()


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
        "port 20911 is used already, perhaps by another name server, broker or console "
        "(stop that one, or let --free-ports take any others)"
    )


def test_another_refusal_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path, settings: ClusterSettings) -> Cluster:
        raise ConfigError("/a is in use: process 17 runs name server and brokers there")

    monkeypatch.setattr(up, "LocalCluster", refuse)
    with pytest.raises(ConfigError, match="process 17"):
        run_until_stopped(tmp_path, brokers=1, free_ports=False)


@pytest.mark.parametrize("wanted", [1, 2, 4, 6])
def test_a_group_has_three_members_or_five(wanted: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--raft {wanted}: a Raft group has 3 members, or 5"):
        run_until_stopped(tmp_path, brokers=1, free_ports=True, raft=wanted)


@pytest.mark.parametrize("size", [3, 5])
def test_members_are_told_and_one_may_die(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Group(Going):
        """A member is dead."""

        def __init__(self, folder: Path, settings: ClusterSettings) -> None:
            super().__init__(folder, settings)
            assert (settings.raft, settings.filter_servers) == (size, 0)
            self.brokers = []
            self.members = [Pretender(f"broker-a-n{n}", "tcp://127.0.0.1:1") for n in range(size)]
            self.members[1].running = False

        @property
        def beside(self) -> list[Pretender]:
            return self.members

        def stop(self) -> dict[str, int]:
            return {"broker-a-n1": -9, "broker-a-n0": 0, "namesrv": 0}

    monkeypatch.setattr(up, "LocalCluster", Group)
    assert run_until_stopped(tmp_path, brokers=1, free_ports=True, raft=size) == 0
    told = capsys.readouterr().out
    assert all(f"broker-a-n{n} pid 17" in told for n in range(size))
    assert "who leads: kourou admin replicas" in told
    assert told.count("broker-a-n1 (pid 17) was killed by SIGKILL") == 1
    assert told.count("the others go on") == 1


def test_the_console_is_what_one_sees_first(tmp_path: Path) -> None:
    lines = introduction(Cluster(tmp_path, ClusterSettings(console={})), "", "kourou")
    assert lines[0] == "look at    http://127.0.0.1:8080"
    without = introduction(Cluster(tmp_path, ClusterSettings()), "", "kourou")
    assert without[0].startswith("namesrv")


@pytest.mark.parametrize("console", [True, False])
def test_the_console_starts_unless_somebody_says_no(
    console: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ClusterSettings] = []

    def cluster(folder: Path, settings: ClusterSettings) -> Cluster:
        made.append(settings)
        return Cluster(folder, settings)

    monkeypatch.setattr(up, "LocalCluster", cluster)
    with pytest.raises(Unavailable):
        run_until_stopped(tmp_path, brokers=1, free_ports=True, console=console)
    assert [one.console for one in made] == [{} if console else None]


def test_flights_land_before_the_brokers_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    class Flights:
        failure = None

        def stop(self) -> None:
            order.append("landed")

    def stops(self: Cluster) -> dict[str, int]:
        order.append("stopped")
        return {}

    monkeypatch.setattr(up, "LocalCluster", Cluster)
    monkeypatch.setattr(Cluster, "stop", stops)
    monkeypatch.setattr(up, "take_off", lambda address: Flights())
    with pytest.raises(Unavailable):
        run_until_stopped(tmp_path, brokers=1, free_ports=True, flights=True)
    assert order[:2] == ["landed", "stopped"]
    assert "duty-managers" in capsys.readouterr().out


def test_flights_that_ended_are_told_once_and_all_else_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their address is none: they end before they have a topic."""
    monkeypatch.setattr(up, "LocalCluster", Going)
    monkeypatch.setattr(live_flights, "load_events", lambda count: ())
    take_off = up.take_off

    def grounded(address: str) -> LiveFlights:
        live = take_off("127.0.0.1:99999")
        live._thread.join()
        return live

    monkeypatch.setattr(up, "take_off", grounded)
    quick = {"brokers": 1, "free_ports": True, "replicas": 1, "called_as": "./kourou"}
    assert run_until_stopped(tmp_path, flights=True, **quick) == 0
    told = capsys.readouterr().out
    assert told.count("the flights have ended") == 1
    assert (
        "the flights have ended: '127.0.0.1:99999' is no address (write host:port, or [ipv6]:port)"
        "\nall else goes on; for flights stop it, and type ./kourou up --flights again\n"
    ) in told
