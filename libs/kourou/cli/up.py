"""`kourou up`: name server, brokers and those beside them on this machine, until Ctrl-C.

Lives here: what is printed, and waiting. May not live here: the processes
(kourou.service.local_cluster).
"""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from kourou.cli.trace_option import trace_from_here
from kourou.errors import ConfigError, KourouError, Unavailable
from kourou.service.local_cluster import ClusterSettings, LocalCluster, plain_address
from kourou.service.processes import Child

if TYPE_CHECKING:
    from kourou.cli.live_flights import LiveFlights

FILTER_SERVERS = 1
"""A broker, unless somebody says how many."""

GROUP_SIZES = (3, 5)
"""Of a Raft group: it goes on while the majority of it lives, so one more than an odd number is of
no use."""

FLIGHTS_LINE = (
    "flights    some are sent and consumed all the time, by the groups boards, duty-managers, ramp"
)

GROUNDED = "the flights have ended"

JOB_FILE = "spark-etl.toml"
"""In the folder: the queries of the Spark pipeline, unless somebody names another file."""

WATCH_S = 0.5
"""How often the processes are looked at."""

TAKEN = re.compile(r"port (\d+)\b.*(?:already in use|is taken)", re.DOTALL)
"""What a service says of a port that it did not get; its own advice is for those who configure."""

START_AGAIN = "to start it again, in another terminal; Ctrl-C there ends it, and not here:"

PORT_KEYS = {"http": "consolePort", "admin": "adminPort"}
"""Who knows the other addresses learns them anew: they are registered, and these are not."""

LABELS = {
    "http": "console",
    "zmq": "clients",
    "tcp": "RocketMQ",
    "tcp:vip": "  VIP",
    "admin": "pages",
    "replication": "members",
}
"""What services call their addresses, in words for people."""


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
    """Start, say where everything listens, wait for Ctrl-C or SIGTERM, drain, stop.

    One of them that was told to end (`kourou shutdown`) ends them all, as Ctrl-C does; a filter
    server or the Spark pipeline that ended is told, and the others go on; so is a broker or one of
    its `replicas`, where there are some: somebody tries what becomes of it. Without
    `filter_servers` there is one a broker; none where this machine lacks a layer of the jail, which
    is told.

    With `raft` every broker is a group of so many members, which elect their leader, and has no
    filter servers. One that ends is told, and the others go on.

    `spark`: the queries of the job file `jobs`, or of one in the folder, run as well. ConfigError
    where Java or a package is missing: it was asked for by name. `console`: the web console, too,
    whose address is printed first. `flights`: some are sent and consumed all the time, to look at;
    ConfigError where they are not installed.
    """
    collector = trace_from_here(os.environ, asked=trace)
    place = (folder or Path.home() / "kourou").absolute()
    check_group(raft)
    wanted = (0 if raft else FILTER_SERVERS) if filter_servers is None else filter_servers
    lacking = layers_lacking() if wanted else ()
    pipeline = spark_settings(place, jobs) if spark or jobs is not None else None
    stop = _StopRequest()
    settings = ClusterSettings(
        brokers=brokers,
        free_ports=free_ports,
        replicas=replicas,
        raft=raft,
        filter_servers=0 if lacking else wanted,
        spark_etl=pipeline,
        console={} if console else None,
    )
    if pipeline is not None:
        print("starting, and Java with Spark, which takes a while …", flush=True)
    with _started(place, settings) as cluster:
        told: list[str] = []
        with _flights(cluster.address, wanted=flights) as live:
            for line in introduction(cluster, collector, called_as, lacking, flights=flights):
                print(line, flush=True)
            ended = _wait(stop, cluster, told, called_as, live)
        if ended is None or ended.ended_in_peace:
            print(_why_drained(ended), flush=True)
            ended, codes = None, cluster.stop()
        else:
            pid, how, log = ended.pid, ended.how_it_ended(), ended.log_tail()
            codes = {name: code for name, code in cluster.stop().items() if name != ended.name}
            print(obituary(ended.name, pid, how, ended.log_path, log), flush=True)
    _judge(codes, told, place)
    if ended is not None:
        raise Unavailable(
            f"{ended.name} (pid {pid}) {how}; so the others were stopped, too. What was "
            f"acknowledged is kept: `{called_as} up` goes on with it"
        )
    print("stopped; what was stored stays in", place)
    return 0


def _why_drained(ended: Child | None) -> str:
    if ended is None:
        return "draining …"
    return f"{ended.name} (pid {ended.pid}) was told to end; so all are drained …"


def _judge(codes: Mapping[str, int], told: Sequence[str], place: Path) -> None:
    bad = {name: code for name, code in codes.items() if code and name not in told}
    if bad:
        raise Unavailable(f"not everything stopped cleanly: {bad}", hint=f"logs are in {place}")


@contextmanager
def _flights(address: str, *, wanted: bool) -> Iterator[LiveFlights | None]:
    """They land before anybody drains: who sends on meanwhile is in the way."""
    live = take_off(address) if wanted else None
    try:
        yield live
    finally:
        if live is not None:
            live.stop()


def take_off(address: str) -> LiveFlights:
    """Flights, from now on. Raises ConfigError where they are not installed."""
    from kourou.cli.live_flights import LiveFlights

    live = LiveFlights(address)
    live.start()
    return live


def check_group(members: int) -> None:
    """Refuse a Raft group of a size that is of no use; 0 is none."""
    if members and members not in GROUP_SIZES:
        raise ConfigError(f"--raft {members}: a Raft group has 3 members, or 5")


def _started(place: Path, settings: ClusterSettings) -> LocalCluster:
    try:
        return LocalCluster(place, settings)
    except ConfigError as refused:
        taken = TAKEN.search(str(refused))
        if settings.free_ports or taken is None:
            raise
        raise ConfigError(
            f"port {taken[1]} is used already, perhaps by another name server, broker or console",
            hint="stop that one, or let --free-ports take any others",
        ) from refused


class _StopRequest:
    """Remembers Ctrl-C and SIGTERM instead of breaking off what is being done."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def _wait(
    stop: _StopRequest,
    cluster: LocalCluster,
    told: list[str],
    called_as: str,
    live: LiveFlights | None,
) -> Child | None:
    """Until a stop is asked for (None) or name server or broker has ended by itself (that one).

    Those beside that have ended are told, with the command that starts them again, and their names
    added to `told`; so are flights that have ended.
    """
    while not stop.asked:
        if cluster.namesrv.wait_for_exit(WATCH_S) is not None:
            return cluster.namesrv
        copied = cluster.settings.replicas > 0
        for child in () if copied else cluster.brokers:
            if not child.running:
                return child
        for child in (*(cluster.brokers if copied else ()), *cluster.beside):
            if not child.running and child.name not in told:
                told.append(child.name)
                again = start_again(child, called_as, pinned=cluster.settings.free_ports)
                print(f"{_farewell(child)}\n{START_AGAIN}\n    {again}", flush=True)
        if live is not None and live.failure is not None and GROUNDED not in told:
            told.append(GROUNDED)
            print(_why_grounded(live.failure, called_as), flush=True)
    return None


def _why_grounded(failure: BaseException, called_as: str) -> str:
    """What is said of flights that nobody will send any more."""
    why = str(failure) if isinstance(failure, KourouError) else repr(failure)
    return (
        f"{GROUNDED}: {why}\n"
        f"all else goes on; for flights stop it, and type {called_as} up --flights again"
    )


def _farewell(child: Child) -> str:
    """What is said of one that is no more, and without whom the others go on."""
    if child.ended_in_peace:
        return f"{child.name} (pid {child.pid}) was told to end; the others go on"
    told = obituary(child.name, child.pid, child.how_it_ended(), child.log_path, child.log_tail())
    return f"{told}\nthe others go on"


def start_again(child: Child, called_as: str, *, pinned: bool) -> str:
    """The command that starts such a process once more, with the settings that it had.

    `pinned`: the system chose its ports, and those that people and other services have been told
    are named, so that it is found where it was.
    """
    module, *arguments = child.command[child.command.index("-m") + 1 :]
    service = module.removeprefix("kourou_").replace("_", "-")
    for what, key in PORT_KEYS.items():
        if pinned and what in child.ready:
            port = str(child.ready[what]).rpartition(":")[2]
            arguments += ["--set", f"{key}={port}"]
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
    """Where to look, what runs where, what does not and why, and what to type now."""
    lines = []
    if cluster.console is not None:
        lines += [f"look at    {cluster.console.ready['http']}", ""]
    if flights:
        lines += [FLIGHTS_LINE, ""]
    for child in (cluster.namesrv, *cluster.brokers, *cluster.beside):
        lines.append(f"{child.name:<10} pid {child.pid}")
        for what, where in child.ready.items():
            if what not in {"pid", "service"}:
                shown = plain_address(where) if what == "zmq" else where
                lines.append(f"           {LABELS.get(what, what):<10} {shown}")
        if child is cluster.spark_etl and cluster.settings.spark_etl is not None:
            lines.append(f"           {'tables':<10} {child.ready['admin']}/tables")
            lines.append(f"           {'queries':<10} {cluster.settings.spark_etl['jobFile']}")
    if lacking:
        lines.append("no filter servers: their jail cannot be built on this machine, which lacks")
        lines += [f"           {layer}" for layer in lacking]
        lines.append(f"           `{called_as} doctor` says what to do; all else runs")
    if cluster.settings.raft:
        lines.append("groups     who leads: " + f"{called_as} admin replicas")
    lines.append(f"store      {cluster.folder}")
    if collector:
        lines.append(f"traces     {collector}")
    return [
        *lines,
        "",
        f"    export NAMESRV_ADDR={plain_address(cluster.address)}",
        f"    {called_as} send greetings hello",
        f"    {called_as} tail greetings --first",
        "",
        "Ctrl-C stops it.",
    ]


def obituary(name: str, pid: int, how: str, log_path: Path, log: str) -> str:
    """What is known of a process that ended though nobody told it to."""
    lines = [f"{name} (pid {pid}) {how}; its log is {log_path}"]
    if log:
        lines += ["which ends with:", *(f"    {line}" for line in log.splitlines())]
    return "\n".join(lines)
