"""What `kourou up` prints, and its one rule for services that end. Fake children play here."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kourou.cli import up
from kourou.cli.up import LOCAL_COLLECTOR, Supervisor, line_of, run_until_stopped, trace_from_here
from kourou.errors import ConfigError, Unavailable
from kourou.service.lifecycle import OPEN
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child
from kourou_filter_server import zygote_link as layers
from kourou_filter_server.zygote_link import Layer
from kourou_rigs.interrupting import interrupted_after
from kourou_spark_etl import machine
from kourou_spark_etl.job_file import load_job_file
from kourou_spark_etl.machine import Lack


class FakeChild:
    """Plays a child."""

    ended_in_peace = False
    ready_after_ms = 1_250

    def __init__(self, name: str, pid: int, **ready: str) -> None:
        self.name = name
        self.pid = pid
        self.ready = ready
        self.running = True
        self.log_path = Path(f"/logs/{name}.log")
        self.command = ("/bin/python", "-m", "kourou_broker", "-c", f"/a folder/{name}.conf")

    def check_ready(self, timeout_ms: int) -> bool:
        assert timeout_ms == 7
        return bool(self.ready)

    def how_it_ended(self) -> str:
        return "was killed by SIGKILL"

    def log_tail(self) -> str:
        return "one\ntwo"


NAMESRV = {
    "zmq": "tcp://127.0.0.1:19876",
    "tcp": "127.0.0.1:9876",
    "admin": "http://127.0.0.1:18080",
}
BROKER = {"zmq": "tcp://127.0.0.1:20911", "tcp": "127.0.0.1:10911", "admin": "http://127.0.0.1:1"}


class Cluster:
    """Plays a cluster; the first look at it asks for a stop."""

    made: ClusterSettings
    codes = {"broker-a": 0, "namesrv": 0}

    def __init__(self, folder: Path, settings: ClusterSettings, on_ready: Any) -> None:
        Cluster.made = settings
        self.folder = folder
        self.settings = settings
        self.address = "tcp://127.0.0.1:19876"
        self.namesrv = FakeChild("namesrv", 16, **NAMESRV)
        self.brokers = [FakeChild("broker-a", 17, **BROKER)]
        self.console = self.spark_etl = None
        if settings.console is not None:
            self.console = FakeChild("console", 18, http="http://127.0.0.1:8080")
        if settings.spark_etl is not None:
            self.spark_etl = FakeChild("spark-etl", 19, admin="http://127.0.0.1:18281")
        self.again: list[FakeChild] = []

    @property
    def all(self) -> list[FakeChild]:
        late = [one for one in (self.spark_etl, self.console) if one is not None]
        return [self.namesrv, *self.brokers, *late]

    def ready_timeout_ms(self, child: FakeChild) -> int:
        return 7

    def begin_again(self, child: FakeChild) -> FakeChild:
        new = FakeChild(child.name, child.pid + 100)
        self.brokers = [new if one is child else one for one in self.brokers]
        return new

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stop(self) -> dict[str, int]:
        return self.codes


def cluster_of(folder: Path, settings: ClusterSettings | None = None) -> Cluster:
    return Cluster(folder, settings or ClusterSettings(), None)


def real(cluster: Cluster) -> LocalCluster:
    return cast("LocalCluster", cluster)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine lacks nothing; as soon as all runs, SIGTERM comes."""
    monkeypatch.setattr(up, "layers_lacking", lambda: ())
    monkeypatch.setattr(up, "LocalCluster", Cluster)
    monkeypatch.setattr(Supervisor, "run", lambda _: signal.raise_signal(signal.SIGTERM))


@pytest.mark.parametrize("console", [True, False])
def test_the_console_starts_unless_it_is_switched_off(console: bool, tmp_path: Path) -> None:
    assert run_until_stopped(tmp_path, brokers=1, free_ports=True, console=console) == 0
    assert Cluster.made.console == ({} if console else None)
    assert Cluster.made.small_segments


# -- what starts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("without_users", "line"),
    [
        ((), ""),
        (("broker-a",), "open to everybody who reaches it: broker-a (docs/security.md)"),
        (
            ("namesrv", "broker-a"),
            "open to everybody who reaches it: name server, broker-a (docs/security.md)",
        ),
        (
            ("namesrv", "broker-a", "console"),
            "open to everybody who reaches it: all services (docs/security.md)",
        ),
    ],
)
def test_one_line_says_which_services_decide_nothing(
    without_users: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    cluster = cluster_of(tmp_path, ClusterSettings(console={}))
    for child in cluster.all:
        if child.name in without_users:
            child.ready = {**child.ready, OPEN: "there are no users"}
    lines = [one for one in up.introduction(real(cluster), "", "kourou") if "access" in one]
    assert lines == ([f"access     {line}"] if line else [])


@pytest.mark.feature("F239")
@pytest.mark.parametrize(("wanted", "started"), [(None, 1), (0, 0), (3, 3)])
def test_so_many_filter_servers_a_broker(wanted: int | None, started: int, tmp_path: Path) -> None:
    assert run_until_stopped(tmp_path, brokers=2, free_ports=True, filter_servers=wanted) == 0
    assert (Cluster.made.brokers, Cluster.made.filter_servers) == (2, started)


@pytest.mark.feature("F243")
@pytest.mark.parametrize("wanted", [None, 2])
def test_where_the_sandbox_cannot_be_built_all_else_starts_and_the_reason_is_printed(
    wanted: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(up, "layers_lacking", lambda: ("user namespaces (not permitted)",))
    assert run_until_stopped(tmp_path, brokers=1, free_ports=True, filter_servers=wanted) == 0
    assert Cluster.made.filter_servers == 0
    assert (
        "no filter servers: this machine lacks layers of their sandbox\n"
        "           user namespaces (not permitted)\n"
        "           `kourou doctor` says what to do; everything else runs\n"
    ) in capsys.readouterr().out


def test_the_sandbox_is_not_probed_where_no_filter_server_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> tuple[str, ...]:
        raise AssertionError("probed")

    monkeypatch.setattr(up, "layers_lacking", refuse)
    assert run_until_stopped(tmp_path, brokers=1, free_ports=True, filter_servers=0) == 0
    assert run_until_stopped(tmp_path, brokers=1, free_ports=True, raft=3) == 0


@pytest.mark.parametrize("wanted", [1, 2, 4, 6])
def test_a_group_has_three_members_or_five(wanted: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--raft {wanted}: a Raft group has 3 members, or 5"):
        run_until_stopped(tmp_path, brokers=1, free_ports=True, raft=wanted)


def test_what_is_lacking_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = (Layer("Landlock", False, "ABI 0"), Layer("pidfd", True, ""))
    monkeypatch.setattr(layers, "probe", lambda: found)
    assert up.layers_lacking() == ("Landlock (ABI 0)",)

    def refuse() -> tuple[Layer, ...]:
        raise Unavailable("not tried")

    monkeypatch.setattr(layers, "probe", refuse)
    assert up.layers_lacking() == ("not tried",)


def test_a_pipeline_that_cannot_run_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> Cluster:
        raise AssertionError("started")

    monkeypatch.setattr(machine, "lacking_java", lambda: (Lack("no Java", machine.JAVA_LINE),))
    monkeypatch.setattr(up, "LocalCluster", start)
    with pytest.raises(ConfigError, match=r"has no Java \(sudo apt install -y openjdk-17"):
        run_until_stopped(tmp_path / "new", brokers=1, free_ports=True, spark=True)
    assert not (tmp_path / "new").exists()


def test_the_first_start_writes_the_usual_queries_and_later_ones_keep_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "check_machine", lambda: None)
    place = tmp_path / "new"
    text = up.spark_settings(place, None)
    assert text == {"jobFile": str(place / "spark-etl.toml")}
    assert [spec.name for spec in load_job_file(place / "spark-etl.toml")] == [
        *("lake", "dead-letters", "backlog")
    ]
    own = '[queries.mine]\njob = "lake"\nsubscribe = "mine"\n'
    (place / "spark-etl.toml").write_text(own, encoding="utf-8")
    up.spark_settings(place, None)
    assert (place / "spark-etl.toml").read_text(encoding="utf-8") == own
    other = tmp_path / "other.toml"
    with pytest.raises(ConfigError, match="cannot read job file"):
        up.spark_settings(place, other)
    other.write_text(own, encoding="utf-8")
    assert up.spark_settings(place, other) == {"jobFile": str(other)}


@pytest.mark.parametrize(
    "text",
    [
        "broker-a does not start: port 20911 on 127.0.0.1 is taken (choose another port)",
        "namesrv does not start: admin port 20911 on 127.0.0.1 cannot be used: address already in "
        "use (choose another adminPort, or 0 for any)",
    ],
)
def test_a_port_in_use_is_reported_without_settings_that_it_does_not_have(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Cluster:
        raise ConfigError(text)

    monkeypatch.setattr(up, "LocalCluster", refuse)
    with pytest.raises(ConfigError) as refused:
        run_until_stopped(tmp_path, brokers=1, free_ports=False)
    assert str(refused.value) == (
        "port 20911 is used already, perhaps by another name server, broker or console "
        "(stop that one, or let --free-ports take any others)"
    )


# -- one rule for services that end ---------------------------------------------------------------


class Clock:
    """Says what time it is."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_killed_service_is_started_again_and_reported_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = cluster_of(tmp_path)
    watch = Supervisor(real(cluster), "./kourou", up.Interruption())
    assert watch.step()
    assert capsys.readouterr().out == ""
    cluster.brokers[0].running = False
    assert watch.step()
    said = "broker-a (pid 17) was killed by SIGKILL; starting it again\n"
    assert capsys.readouterr().out == said
    watch.step()
    assert capsys.readouterr().out == ""
    cluster.brokers[0].ready = BROKER
    watch.step()
    assert capsys.readouterr().out == f"{line_of(cast('Child', cluster.brokers[0]))}\n"
    watch.step()
    assert capsys.readouterr().out == ""
    assert watch.down == set()


@pytest.mark.parametrize(("passed_s", "restarts"), [(59.9, 1), (60.0, 2)])
def test_one_that_dies_again_soon_stays_down(
    passed_s: float, restarts: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, clock = cluster_of(tmp_path), Clock()
    watch = Supervisor(real(cluster), "./kourou", up.Interruption(), clock)
    cluster.brokers[0].running = False
    watch.step()
    clock.now += passed_s
    cluster.brokers[0].running = False
    for _ in range(3):
        assert watch.step(), "the others go on"
    said = capsys.readouterr().out
    assert said.count("starting it again") == restarts
    if restarts == 1:
        assert said.endswith(
            "broker-a (pid 117) was killed by SIGKILL, again within 60 s of its restart; "
            "its log is /logs/broker-a.log\n"
            "It ends with:\n    one\n    two\n"
            "The other services keep running. To start it again, type in another terminal:\n"
            "    ./kourou broker -c '/a folder/broker-a.conf'\n"
        )
        assert watch.down == {"broker-a"}


def test_a_signal_in_the_middle_of_a_fork_interrupts_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signalled = up.Interruption()
    before = signal.signal(signal.SIGUSR1, signalled)
    try:
        raised = f"kill -USR1 {os.getpid()}"
        monkeypatch.setattr(up.Interruption, "forking", True)
        subprocess.run(["sh", "-c", raised], check=True)
        monkeypatch.setattr(up.Interruption, "forking", False)
        with pytest.raises(KeyboardInterrupt):
            signalled.check()
        command = ["sh", "-c", f"read _; {raised}"]
        with (
            subprocess.Popen(command, stdin=subprocess.PIPE) as child,
            pytest.raises(KeyboardInterrupt),
        ):
            child.communicate(b"\n")
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A child that ends when its input does."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        yield child


def test_a_signal_just_before_the_wait_ends_it(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    class Late(up.Interruption):
        def check(self) -> None:
            super().check()
            os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(up.Interruption, "forking", True)  # the handler itself raises nothing
    signalled = Late()
    before = signal.signal(signal.SIGUSR1, signalled)
    try:
        with pytest.raises(KeyboardInterrupt):
            signalled.wait([sleeper.pid])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert signal.set_wakeup_fd(-1) == -1, "it is as it was before"


def test_the_wait_ends_when_a_child_ends_and_leaves_it_to_be_reaped(
    sleeper: subprocess.Popen[bytes],
) -> None:
    assert sleeper.stdin is not None
    sleeper.stdin.close()
    up.Interruption().wait([sleeper.pid])
    assert sleeper.wait() == 0


@pytest.mark.fault
def test_an_interruption_between_any_two_instructions_of_the_wait_leaves_an_open_pipe(
    sleeper: subprocess.Popen[bytes],
) -> None:
    """Python writes signals to it, and would write them to another file under its number."""
    assert sleeper.stdin is not None
    sleeper.stdin.close()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    step = 0
    while interrupted_after(step := step + 1, lambda: up.Interruption().wait([sleeper.pid])):
        left = signal.set_wakeup_fd(-1)
        assert left == -1 or os.fstat(left)
    assert step > 20
    assert signal.set_wakeup_fd(-1) == -1


def test_one_that_was_asked_to_stop_stays_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = cluster_of(tmp_path)
    watch = Supervisor(real(cluster), "kourou", up.Interruption())
    cluster.brokers[0].running, cluster.brokers[0].ended_in_peace = False, True
    assert watch.step()
    assert capsys.readouterr().out.startswith("broker-a (pid 17) was asked to stop\n")
    cluster.namesrv.running, cluster.namesrv.ended_in_peace = False, True
    assert not watch.step(), "no service is left"


def test_what_stays_down_is_no_unclean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Cluster, "codes", {"broker-a": -9, "namesrv": 0})
    with pytest.raises(Unavailable, match=r"not everything stopped cleanly: \{'broker-a': -9\}"):
        run_until_stopped(tmp_path, brokers=1, free_ports=True)

    def run(watch: Supervisor) -> None:
        watch.down.add("broker-a")

    monkeypatch.setattr(Supervisor, "run", run)
    assert run_until_stopped(tmp_path, brokers=1, free_ports=True) == 0
    assert capsys.readouterr().out.endswith(
        f"no service is left\nstopped; all messages are kept in {tmp_path}\n"
    )


# -- what `--trace` puts into the environment ------------------------------------------------------


TRACES = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}
SAMPLED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_SAMPLER": "always_on"}
RATIO = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}


@pytest.mark.parametrize(
    ("there", "asked", "endpoint", "added"),
    [
        ({}, False, "", {}),
        ({}, True, LOCAL_COLLECTOR, {"OTEL_EXPORTER_OTLP_ENDPOINT": LOCAL_COLLECTOR, **RATIO}),
        (TRACES, False, "http://c:4318/v1/traces", RATIO),
        (SAMPLED, True, "http://c", {}),
        ({**TRACES, "OTEL_TRACES_EXPORTER": "none"}, True, "", {}),
        ({**TRACES, "OTEL_SDK_DISABLED": "true"}, True, "", {}),
    ],
    ids=["not asked for", "asked for", "an endpoint", "a sampler", "no exporter", "disabled"],
)
def test_traces_go_where_the_environment_or_the_option_says(
    there: dict[str, str], asked: bool, endpoint: str, added: dict[str, str]
) -> None:
    environment = dict(there)
    assert trace_from_here(environment, asked=asked, ratio=0.01) == endpoint
    assert environment == {**there, **added}
