"""`kourou up`: a name server and brokers on this machine, until Ctrl-C.

Lives here: what is printed, and waiting. May not live here: the processes
(kourou.service.local_cluster).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

from kourou.cli.trace_option import trace_from_here
from kourou.errors import Unavailable
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child

WATCH_S = 0.5
"""How often the processes are looked at."""


def run_until_stopped(
    folder: Path | None, *, brokers: int, free_ports: bool, trace: bool = False
) -> int:
    """Start, say where everything listens, wait for Ctrl-C or SIGTERM, drain, stop."""
    collector = trace_from_here(os.environ, asked=trace)
    place = (Path.home() / "kourou" if folder is None else folder).absolute()
    stop = _StopRequest()
    with LocalCluster(place, ClusterSettings(brokers=brokers, free_ports=free_ports)) as cluster:
        _introduce(cluster, collector)
        ended = _wait(stop, [cluster.namesrv, *cluster.brokers])
        if ended is None:
            print("draining …", flush=True)
        codes = cluster.stop()
    if ended is not None:
        raise Unavailable(f"{ended.name} ended by itself: {ended.log_tail()}")
    bad = {name: code for name, code in codes.items() if code}
    if bad:
        raise Unavailable(f"not everything stopped cleanly: {bad}", hint=f"logs are in {place}")
    print("stopped; what was stored stays in", place)
    return 0


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


def _introduce(cluster: LocalCluster, collector: str) -> None:
    for child in (cluster.namesrv, *cluster.brokers):
        print(f"{child.name:<10} pid {child.pid}")
        for what, where in child.ready.items():
            if what not in {"pid", "service"}:
                print(f"           {what:<10} {where}")
    print(f"store      {cluster.folder}")
    if collector:
        print(f"spans      {collector}")
    print(f"\n    export NAMESRV_ADDR={cluster.address}")
    print("    kourou send greetings hello     kourou tail greetings --first\n")
    print("Ctrl-C stops it.", flush=True)
