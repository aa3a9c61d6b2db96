"""`kourou up`: name server, brokers and the other services on this machine, until Ctrl-C.

All services start at once; each prints a line when it is ready. One rule holds for every service
that dies: it is reported at once and started again; if it dies again within RESTART_S seconds, it
stays down and the others go on. A service that ended with exit code 0 was asked to stop, and stays
down.

Exit codes: 0 stopped by Ctrl-C or SIGTERM, everything drained · 1 a service failed to start or to
stop cleanly · 2 wrong usage, a taken port, a folder in use · 130 interrupted before all was ready,
or killed by a second Ctrl-C.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

from kourou.cli.checkout import load
from kourou.cli.trace_option import trace_from_here
from kourou.errors import ConfigError, KourouError, Unavailable
from kourou.service.local_cluster import ClusterSettings, LocalCluster, plain_address
from kourou.service.processes import POLL_S, Child

FILTER_SERVERS = 1
"""A broker, unless --filter-servers says how many."""

GROUP_SIZES = (3, 5)
"""Of a Raft group: a majority must live, so an even number adds nothing."""

WITH_FLIGHTS = "kourou up --flights"
FLIGHTS_LINE = "sent and consumed all the time, by the groups boards, duty-managers, ramp"

JOB_FILE = "spark-etl.toml"
"""In the folder: the queries of the Spark pipeline, unless --jobs names another file."""

RESTART_S = 60.0
"""A service that dies again so soon after a restart is not started a second time."""

TAKEN = re.compile(r"port (\d+)\b.*(?:already in use|is taken)", re.DOTALL)
"""What a service reports of a port that is in use; its own advice names settings."""


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
    """Start, print where everything listens, supervise until Ctrl-C or SIGTERM, drain, stop.

    Without `filter_servers` there is one a broker; none where this machine lacks a layer of the
    sandbox, which is reported. With `raft` every broker is a group of so many members, which elect
    their leader, and has no filter servers.

    `spark`: the queries of the job file `jobs`, or of one in the folder, run as well. `console`:
    the web console, too. `flights`: some are sent and consumed all the time. Packages, Java and
    files that these need are checked before anything starts.
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
        watch = Watch(cluster, called_as, interruption)
        with _flights(cluster.address, called_as, wanted=flights):
            try:
                for line in introduction(cluster, collector, called_as, lacking, flights=flights):
                    _print(line)
                _print(f"Ready in {time.monotonic() - began:.1f} s. Ctrl-C stops it.")
                watch.run()
                _print("no service is left")
            except KeyboardInterrupt:
                interruption.asked = False
                _print("stopping; a second Ctrl-C kills …")
        try:
            codes = cluster.stop()
        except KeyboardInterrupt:
            cluster.children.kill_all()
            raise
    bad = {name: code for name, code in codes.items() if code and name not in watch.down}
    if bad:
        raise Unavailable(f"not everything stopped cleanly: {bad}", hint=f"logs are in {place}")
    _print(f"stopped; all messages are kept in {place}")
    return 0


def _require_flights(wanted: bool) -> None:
    """MissingPackages before anything is started."""
    if wanted:
        load("kourou_demo.flights", WITH_FLIGHTS).find_data()


class Interruption:
    """A signal handler: SIGINT and SIGTERM raise KeyboardInterrupt.

    Python prints and drops an exception that is raised in a callback of a fork, that is, while a
    service is started. The handler raises none there; `check` raises it afterwards.
    """

    forking = False

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the signal and interrupt whatever runs."""
        self.asked = True
        if not Interruption.forking:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came and was not dealt with."""
        if self.asked:
            raise KeyboardInterrupt

    def wait(self, pids: Iterable[int]) -> None:
        """Wait until one of these child processes has ended; it is not reaped.

        A signal raises KeyboardInterrupt, also one that comes just before the wait begins: the
        system does not end a wait for that, but Python writes each signal to a pipe.
        """
        with ExitStack() as stack:
            told, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, told)
            stack.callback(os.close, tell)
            stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(tell))
            waiting = select.poll()
            waiting.register(told, select.POLLIN)
            for pid in pids:
                ended = os.pidfd_open(pid)
                stack.callback(os.close, ended)
                waiting.register(ended, select.POLLIN)
            self.check()
            waiting.poll()
        self.check()


def _note_fork(*, under_way: bool) -> None:
    Interruption.forking = under_way


# The last one registered: its first call precedes those of other modules, its second follows them.
os.register_at_fork(
    before=partial(_note_fork, under_way=True), after_in_parent=partial(_note_fork, under_way=False)
)


def _print(line: str) -> None:
    print(line, flush=True)


class Watch:
    """Supervises the processes of a cluster that has started.

    `down`: the names of those that stay down, and have been reported.
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
        """Until no service runs, or an exception such as KeyboardInterrupt ends it."""
        while self.step():
            self._wait()

    def step(self) -> bool:
        """Report what has changed; False if no service is left."""
        for child in self._cluster.all:
            if child.name not in self.down and not child.running:
                self._ended(child)
        for child in [one for one in self._starting if one.running]:
            if child.check_ready(self._cluster.patience_ms(child)):
                self._starting.remove(child)
                _print(line_of(child))
        return any(child.name not in self.down for child in self._cluster.all)

    def _wait(self) -> None:
        """Until a child has ended; or a moment, where one is starting."""
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
    """They end before the brokers drain: nothing is sent to a broker that stops."""
    live = take_off(address, called_as) if wanted else None
    try:
        yield
    finally:
        if live is not None:
            live.stop()


class Flights(Protocol):
    """Flights that are sent and consumed in the background."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End; returns when all clients are closed."""


def take_off(address: str, called_as: str) -> Flights:
    """Flights, from now on."""

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
    """Refuse a path on which a file is in the way of the folder."""
    for part in (place, *place.parents):
        if part.exists() and not part.is_dir():
            raise ConfigError(
                f"{part} is not a folder",
                hint="choose another --folder; one that does not exist is created",
            )


def check_group(members: int) -> None:
    """Refuse a Raft group of a size that is of no use; 0 is none."""
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
    """One service: its address, its name, how long it took to start."""
    ready = child.ready
    address = str(ready.get("http") or ready.get("admin") or "")
    more = ""
    if "zmq" in ready:
        address = plain_address(ready["zmq"])
        more = "" if ready.get("tcp", address) == address else f"   RocketMQ {ready['tcp']}"
    if ready.get("admin", address) != address:
        more += f"   pages {ready['admin']}"
    seconds = child.ready_after_ms / 1_000
    name = "name server" if child.name == "namesrv" else child.name
    return f"{address:<22} {name:<17} ready in {seconds:4.1f} s   pid {child.pid}{more}"


def log_of(child: Child) -> str:
    """Where a process's log is, and how it ends."""
    tail = child.log_tail()
    lines = [f"; its log is {child.log_path}"]
    if tail:
        lines += ["It ends with:", *(f"    {line}" for line in tail.splitlines())]
    return "\n".join(lines)


def start_again(child: Child, called_as: str) -> str:
    """The command that starts such a process once more, with the settings that it had."""
    module, *arguments = child.command[child.command.index("-m") + 1 :]
    service = module.removeprefix("kourou_").replace("_", "-")
    return f"{called_as} {shlex.join([service, *arguments])}"


def spark_settings(place: Path, jobs: Path | None) -> dict[str, str]:
    """What the pipeline is told: its job file, which is checked; at first one is made in `place`.

    ConfigError, before anything is started, where it could not run: with the one line to type.
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
    """What this machine lacks of the filters' jail, and why that is known; empty if nothing."""
    from kourou_filter_server.layers import missing

    try:
        return tuple(f"{layer.name} ({layer.detail})" for layer in missing())
    except Unavailable as trouble:  # not even tried: then no zygote could be started either
        return (str(trouble),)


def introduction(
    cluster: LocalCluster,
    collector: str,
    called_as: str,
    lacking: Sequence[str] = (),
    *,
    flights: bool = False,
) -> list[str]:
    """Where to look, what does not run and why, and what to type now."""
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
    return [
        *lines,
        "",
        f"    export NAMESRV_ADDR={plain_address(cluster.address)}",
        f"    {called_as} send greetings hello",
        f"    {called_as} tail greetings --first",
        "",
    ]
