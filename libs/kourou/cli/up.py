"""`kourou up`: a name server and brokers on this machine, until Ctrl-C.

Lives here: what is printed, and waiting. May not live here: the processes
(kourou.service.local_cluster).
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from types import FrameType

from kourou.cli.trace_option import trace_from_here
from kourou.errors import ConfigError, Unavailable
from kourou.service.local_cluster import ClusterSettings, LocalCluster, plain_address
from kourou.service.processes import Child

WATCH_S = 0.5
"""How often the processes are looked at."""

TAKEN = re.compile(r"port (\d+)\b.*(?:already in use|is taken)", re.DOTALL)
"""What a service says of a port that it did not get; its own advice is for those who configure."""

LABELS = {"zmq": "clients", "tcp": "RocketMQ", "tcp:vip": "  VIP", "admin": "pages"}
"""What services call their addresses, in words for people."""


def run_until_stopped(
    folder: Path | None,
    *,
    brokers: int,
    free_ports: bool,
    trace: bool = False,
    called_as: str = "kourou",
) -> int:
    """Start, say where everything listens, wait for Ctrl-C or SIGTERM, drain, stop.

    One of them that was told to end (`kourou shutdown`) ends them all, as Ctrl-C does.
    """
    collector = trace_from_here(os.environ, asked=trace)
    place = (Path.home() / "kourou" if folder is None else folder).absolute()
    stop = _StopRequest()
    with _started(place, ClusterSettings(brokers=brokers, free_ports=free_ports)) as cluster:
        print("\n".join(introduction(cluster, collector, called_as)), flush=True)
        ended = _wait(stop, [cluster.namesrv, *cluster.brokers])
        if ended is None:
            print("draining …", flush=True)
            codes = cluster.stop()
        elif ended.ended_in_peace:
            print(
                f"{ended.name} (pid {ended.pid}) was told to end; so all are drained …", flush=True
            )
            ended = None
            codes = cluster.stop()
        else:
            pid, how, log = ended.pid, ended.how_it_ended(), ended.log_tail()
            codes = {name: code for name, code in cluster.stop().items() if name != ended.name}
            print(obituary(ended.name, pid, how, ended.log_path, log), flush=True)
    bad = {name: code for name, code in codes.items() if code}
    if bad:
        raise Unavailable(f"not everything stopped cleanly: {bad}", hint=f"logs are in {place}")
    if ended is not None:
        raise Unavailable(
            f"{ended.name} (pid {pid}) {how}; so the others were stopped, too. What was "
            f"acknowledged is kept: `{called_as} up` goes on with it"
        )
    print("stopped; what was stored stays in", place)
    return 0


def _started(place: Path, settings: ClusterSettings) -> LocalCluster:
    try:
        return LocalCluster(place, settings)
    except ConfigError as refused:
        taken = TAKEN.search(str(refused))
        if settings.free_ports or taken is None:
            raise
        raise ConfigError(
            f"port {taken[1]} is used already, perhaps by another name server or broker",
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


def _wait(stop: _StopRequest, children: list[Child]) -> Child | None:
    """Until a stop is asked for (None) or a child has ended by itself (that child)."""
    while not stop.asked:
        if children[0].wait_for_exit(WATCH_S) is not None:
            return children[0]
        for child in children[1:]:
            if not child.running:
                return child
    return None


def introduction(cluster: LocalCluster, collector: str, called_as: str) -> list[str]:
    """What runs where, and what to type now."""
    lines = []
    for child in (cluster.namesrv, *cluster.brokers):
        lines.append(f"{child.name:<10} pid {child.pid}")
        for what, where in child.ready.items():
            if what not in {"pid", "service"}:
                shown = plain_address(where) if what == "zmq" else where
                lines.append(f"           {LABELS.get(what, what):<10} {shown}")
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
