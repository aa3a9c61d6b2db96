"""`kourou up`: runs name server, brokers and other services on this machine until Ctrl-C.

All services start at once; each prints a line when it is ready. A service that dies is reported
immediately and restarted. If it dies again within RESTART_S seconds, it stays down and the others
continue. A service that exits with code 0 was stopped on purpose and stays down.

Exit codes: 0 stopped by Ctrl-C or SIGTERM, everything drained · 1 a service failed to start or to
stop cleanly · 2 wrong usage, a port or folder in use · 130 interrupted before all were ready, or
killed by a second Ctrl-C.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Protocol

from kourou.cli.checkout import load
from kourou.errors import ConfigError, KourouError, Unavailable
from kourou.service.lifecycle import OPEN
from kourou.service.local_cluster import ClusterSettings, LocalCluster, plain_address
from kourou.service.process_setup import require_group
from kourou.service.processes import POLL_S, Child

PIPE_BYTES = 65_536
"""One read empties the pipe that signals are written to: its capacity, a byte a signal."""

LOCAL_COLLECTOR = "http://127.0.0.1:4318"
"""The default endpoint of a local collector or Jaeger."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTER, _SAMPLER, _RATIO = (
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
)


def trace_from_here(
    environment: MutableMapping[str, str], *, asked: bool, ratio: float | None = None
) -> str:
    """Prepare the environment for tracing; returns the endpoint, or "" if tracing is disabled.

    An endpoint in the environment is sufficient; `asked` without one selects the local collector.
    `ratio` applies to traces that start here, unless the environment names a sampler.
    """
    endpoint = next((environment[name] for name in _ENDPOINTS if environment.get(name)), "")
    if not endpoint:
        if not asked:
            return ""
        endpoint = environment[_ENDPOINTS[1]] = LOCAL_COLLECTOR
    if environment.get(_EXPORTER) == "none" or environment.get("OTEL_SDK_DISABLED") == "true":
        return ""
    require_group("otlp", "exporting traces")
    if ratio is not None and not environment.get(_SAMPLER):
        environment[_SAMPLER] = "parentbased_traceidratio"
        environment[_RATIO] = str(ratio)
    return endpoint


FILTER_SERVERS = 1
"""Filter servers per broker, unless --filter-servers is given."""

GROUP_SIZES = (3, 5)
"""Sizes of a Raft group: a quorum is a majority, so an even number adds no fault tolerance."""

WITH_FLIGHTS = "kourou up --flights"
FLIGHTS_LINE = "sent and consumed all the time, by the groups boards, duty-managers, ramp"

JOB_FILE = "spark-etl.toml"
"""In the folder: the queries of the Spark pipeline, unless --jobs names another file."""

RESTART_S = 60.0
"""A service that dies within this time after a restart is not restarted again."""

TAKEN = re.compile(r"port (\d+)\b.*(?:already in use|is taken)", re.DOTALL)
"""Matches the log of a service whose port is in use; the service's own hint names settings."""


def run_until_stopped(
    folder: Path | None,
    *,
    brokers: int,
    free_ports: bool,
    replicas: int = 0,
    raft: int = 0,
    filter_servers: int | None = None,
    spark: bool = False,
    jobs: Path | None = None,
    trace: bool = False,
    console: bool = True,
    flights: bool = False,
    called_as: str = "kourou",
) -> int:
    """Start, print addresses, supervise until Ctrl-C or SIGTERM, drain, stop.

    By default there is one filter server per broker, or none if this machine lacks a layer of the
    sandbox, which is reported. With `raft` every broker is a Raft group of so many members, which
    elect their leader, and has no filter servers.

    `spark`: also run the queries of the job file `jobs`, or of the one in the folder. `console`:
    also run the web console. `flights`: send and consume sample traffic. Packages, Java and files
    that these need are checked before anything starts.
    """
    began, interruption = time.monotonic(), Interruption()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interruption)
    collector = trace_from_here(os.environ, asked=trace)
    place = (folder or Path.home() / "kourou").absolute()
    check_folder(place)
    check_group(raft)
    _require_flights(flights)
    wanted = (0 if raft else FILTER_SERVERS) if filter_servers is None else filter_servers
    pipeline = spark_settings(place, jobs) if spark or jobs is not None else None
    lacking = layers_lacking() if wanted else ()
    settings = ClusterSettings(
        brokers=brokers,
        free_ports=free_ports,
        replicas=replicas,
        raft=raft,
        filter_servers=0 if lacking else wanted,
        spark_etl=pipeline,
        console={} if console else None,
        small_segments=True,
    )
    _print(f"starting in {place}" + (" (Spark takes half a minute)" if pipeline else ""))
    with _started(place, settings, interruption) as cluster:
        watch = Supervisor(cluster, called_as, interruption)
        try:
            with _flights(cluster.address, called_as, wanted=flights):
                try:
                    for line in introduction(
                        cluster, collector, called_as, lacking, flights=flights
                    ):
                        _print(line)
                    _print(f"Ready in {time.monotonic() - began:.1f} s. Ctrl-C stops it.")
                    watch.run()
                    _print("no service is left")
                except KeyboardInterrupt:
                    interruption.asked = False
                    _print("stopping; a second Ctrl-C kills …")
            codes = cluster.stop()
        except KeyboardInterrupt:
            if interruption.count > 1:
                cluster.children.kill_all()
            raise
    _require_clean({name: code for name, code in codes.items() if name not in watch.down}, place)
    _print(f"stopped; all messages are kept in {place}")
    return 0


def _require_clean(codes: Mapping[str, int | None], place: Path) -> None:
    """Raises Unavailable, with the exit codes that are not 0."""
    bad = {name: code for name, code in codes.items() if code}
    if bad:
        raise Unavailable(f"not everything stopped cleanly: {bad}", hint=f"logs are in {place}")


def _require_flights(wanted: bool) -> None:
    """Raises MissingPackages before anything is started."""
    if wanted:
        load("kourou_demo.flights", WITH_FLIGHTS).find_data()


class Interruption:
    """A signal handler: SIGINT and SIGTERM raise KeyboardInterrupt.

    Python prints and drops an exception that is raised in a fork callback, that is, while a service
    is being started. The handler raises none in that case; `check` raises it afterwards.
    """

    forking = False

    def __init__(self) -> None:
        self.asked = False
        self.count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record the signal and interrupt the running code."""
        self.asked = True
        self.count += 1
        if not Interruption.forking:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has not been handled yet."""
        if self.asked:
            raise KeyboardInterrupt

    def wait(self, pids: Iterable[int]) -> None:
        """Wait until one of these child processes has ended, without reaping it.

        A signal raises KeyboardInterrupt, even if it arrives just before the wait starts: the
        system does not interrupt the wait then, but Python writes every signal to a pipe.
        """
        readable, writable = _signal_pipe()
        with ExitStack() as stack:
            stack.callback(signal.set_wakeup_fd, -1)
            signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
            with suppress(BlockingIOError):
                os.read(readable, PIPE_BYTES)  # of signals that were handled
            waiting = select.poll()
            waiting.register(readable, select.POLLIN)
            for pid in pids:
                ended = os.pidfd_open(pid)
                stack.callback(os.close, ended)
                waiting.register(ended, select.POLLIN)
            self.check()
            waiting.poll()
        self.check()


@cache
def _signal_pipe() -> tuple[int, int]:
    """Never closed: an interruption at a bad moment leaves it in use for signals."""
    return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)


def _note_fork(*, under_way: bool) -> None:
    Interruption.forking = under_way


# Registered last: the first callback runs before those of other modules, the second after them.
os.register_at_fork(
    before=partial(_note_fork, under_way=True), after_in_parent=partial(_note_fork, under_way=False)
)


def _print(line: str) -> None:
    print(line, flush=True)


class Supervisor:
    """Supervises the processes of a running cluster.

    `down`: the names of services that stay down and have been reported.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        called_as: str,
        interruption: Interruption,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._interruption = interruption
        self._called_as = called_as
        self._now = now
        self._restarted: dict[str, float] = {}
        self._starting: list[Child] = []
        self.down: set[str] = set()

    def run(self) -> None:
        """Supervise until no service runs, or until an exception such as KeyboardInterrupt."""
        while self.step():
            self._wait()

    def step(self) -> bool:
        """Report changes; returns False if no service is left."""
        for child in self._cluster.all:
            if child.name not in self.down and not child.running:
                self._ended(child)
        for child in [one for one in self._starting if one.running]:
            if child.check_ready(self._cluster.ready_timeout_ms(child)):
                self._starting.remove(child)
                _print(line_of(child))
        return any(child.name not in self.down for child in self._cluster.all)

    def _wait(self) -> None:
        """Wait until a child has ended, or for a short time if one is starting."""
        self._interruption.check()
        if self._starting:
            self._starting[0].wait_for_exit(POLL_S)
        else:
            up = [child for child in self._cluster.all if child.name not in self.down]
            self._interruption.wait(child.pid for child in up)

    def _ended(self, child: Child) -> None:
        self._starting = [one for one in self._starting if one is not child]
        if child.ended_in_peace:
            self._leave_down(f"{child.name} (pid {child.pid}) was asked to stop", child)
            return
        how = f"{child.name} (pid {child.pid}) {child.how_it_ended()}"
        before = self._restarted.get(child.name)
        if before is not None and self._now() - before < RESTART_S:
            log = log_of(child)
            self._leave_down(f"{how}, again within {RESTART_S:.0f} s of its restart{log}", child)
            return
        _print(f"{how}; starting it again")
        self._restarted[child.name] = self._now()
        self._starting.append(self._cluster.begin_again(child))

    def _leave_down(self, what: str, child: Child) -> None:
        self.down.add(child.name)
        again = start_again(child, self._called_as)
        _print(
            f"{what}\nThe other services keep running. "
            f"To start it again, type in another terminal:\n    {again}"
        )


@contextmanager
def _flights(address: str, called_as: str, *, wanted: bool) -> Iterator[None]:
    """Run the sample traffic; it stops before the brokers drain."""
    live = take_off(address, called_as) if wanted else None
    try:
        yield
    finally:
        if live is not None:
            live.stop()


class Flights(Protocol):
    """Sample traffic that runs in the background."""

    def start(self) -> None:
        """Start."""

    def stop(self) -> None:
        """Stop; returns when all clients are closed."""


def take_off(address: str, called_as: str) -> Flights:
    """Start the sample traffic."""

    def report(failure: BaseException) -> None:
        why = str(failure) if isinstance(failure, KourouError) else repr(failure)
        again = (
            "The services keep running. To send flights again, stop them and type "
            f"{called_as} up --flights"
        )
        _print(f"the flights have ended: {why}\n{again}")

    flights = load("kourou_demo.live_flights", WITH_FLIGHTS)
    live: Flights = flights.LiveFlights(address, on_failure=report)
    live.start()
    return live


def check_folder(place: Path) -> None:
    """Raises ConfigError if a file is in the place of the folder."""
    for part in (place, *place.parents):
        if part.exists() and not part.is_dir():
            raise ConfigError(
                f"{part} is not a folder",
                hint="choose another --folder; one that does not exist is created",
            )


def check_group(members: int) -> None:
    """Raises ConfigError for an unsupported size of a Raft group; 0 means no Raft group."""
    if members and members not in GROUP_SIZES:
        raise ConfigError(f"--raft {members}: a Raft group has 3 members, or 5")


def _started(place: Path, settings: ClusterSettings, interruption: Interruption) -> LocalCluster:
    def report(child: Child) -> None:
        interruption.check()
        _print(line_of(child))

    try:
        return LocalCluster(place, settings, report)
    except ConfigError as refused:
        taken = TAKEN.search(str(refused))
        if settings.free_ports or taken is None:
            raise
        raise ConfigError(
            f"port {taken[1]} is used already, perhaps by another name server, broker or console",
            hint="stop that one, or let --free-ports take any others",
        ) from refused


def line_of(child: Child) -> str:
    """The line about a started service: address, name, start time."""
    ready = child.ready
    address = str(ready.get("http") or ready.get("admin") or "")
    more = ""
    if "zmq" in ready:
        address = plain_address(ready["zmq"])
        more = "" if ready.get("tcp", address) == address else f"   RocketMQ {ready['tcp']}"
    if ready.get("admin", address) != address:
        more += f"   pages {ready['admin']}"
    seconds = child.ready_after_ms / 1_000
    return f"{address:<22} {name_of(child):<17} ready in {seconds:4.1f} s   pid {child.pid}{more}"


def access_lines(children: Sequence[Child]) -> list[str]:
    """The line about services that handle requests of everybody; none without such."""
    names = [name_of(child) for child in children if OPEN in child.ready]
    if not names:
        return []
    which = "all services" if len(names) == len(children) else ", ".join(names)
    return [f"access     open to everybody who reaches it: {which} (docs/security.md)"]


def name_of(child: Child) -> str:
    """A service's name for people."""
    return "name server" if child.name == "namesrv" else child.name


def log_of(child: Child) -> str:
    """The location of a process's log, and its last lines."""
    tail = child.log_tail()
    lines = [f"; its log is {child.log_path}"]
    if tail:
        lines += ["It ends with:", *(f"    {line}" for line in tail.splitlines())]
    return "\n".join(lines)


def start_again(child: Child, called_as: str) -> str:
    """The command that starts such a process again with the same settings."""
    module, *arguments = child.command[child.command.index("-m") + 1 :]
    service = module.removeprefix("kourou_").replace("_", "-")
    return f"{called_as} {shlex.join([service, *arguments])}"


def spark_settings(place: Path, jobs: Path | None) -> dict[str, str]:
    """The settings of the pipeline: its job file, which is checked; the first run creates one in
    `place`.

    Raises ConfigError, with the command to type, before anything is started, if it cannot run.
    """
    from kourou_spark_etl.job_file import USUAL_JOBS, load_job_file
    from kourou_spark_etl.machine import check_machine

    check_machine()
    file = (place / JOB_FILE if jobs is None else jobs).absolute()
    if jobs is None and not file.exists():
        place.mkdir(parents=True, exist_ok=True)
        file.write_text(USUAL_JOBS.read_text(encoding="utf-8"), encoding="utf-8")
    load_job_file(file)
    return {"jobFile": str(file)}


def layers_lacking() -> tuple[str, ...]:
    """The layers of the filter sandbox that this machine lacks, with details; empty if none."""
    from kourou_filter_server.zygote_link import missing

    try:
        return tuple(f"{layer.name} ({layer.detail})" for layer in missing())
    except Unavailable as trouble:  # not tested: a zygote could not be started either
        return (str(trouble),)


def introduction(
    cluster: LocalCluster,
    collector: str,
    called_as: str,
    lacking: Sequence[str] = (),
    *,
    flights: bool = False,
) -> list[str]:
    """Addresses to open, who may do everything, services that do not run, and commands to try."""
    lines = [""]
    if lacking:
        lines.append("no filter servers: this machine lacks layers of their sandbox")
        lines += [f"           {layer}" for layer in lacking]
        lines += [f"           `{called_as} doctor` says what to do; everything else runs", ""]
    if cluster.console is not None:
        lines.append(f"console    {cluster.console.ready['http']}")
    lines.append(f"store      {cluster.folder}")
    if cluster.spark_etl is not None and cluster.settings.spark_etl is not None:
        lines.append(f"tables     {cluster.spark_etl.ready['admin']}/tables")
        lines.append(f"queries    {cluster.settings.spark_etl['jobFile']}")
    if cluster.settings.raft:
        lines.append(f"leaders    {called_as} admin replicas")
    if flights:
        lines.append(f"flights    {FLIGHTS_LINE}")
    if collector:
        lines.append(f"traces     {collector}")
    lines += access_lines(cluster.all)
    return [
        *lines,
        "",
        f"    export NAMESRV_ADDR={plain_address(cluster.address)}",
        f"    {called_as} send greetings hello",
        f"    {called_as} tail greetings --first",
        "",
    ]
