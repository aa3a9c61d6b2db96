"""`kourou bench memory`: the memory of each process of an idle suite.

The suite is what docker-compose.yml starts, without Spark and without third-party images: a name
server, two brokers with a replica and a filter server each, and the console.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kourou.errors import ConfigError
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.os_processes import family, resident_bytes
from kourou.service.processes import Child

MEGABYTE = 1_000_000
ROLLUP = "/proc/self/smaps_rollup"
KINDS = ("name server", "broker", "copy", "filter server", "console")


class _Row(NamedTuple):
    """A process; sizes are in bytes."""

    kind: str
    name: str
    resident: int
    share: int


def run_memory_bench(*, settle_seconds: float, as_json: bool) -> int:
    """Start the suite, wait, read and print; there is no goal."""
    if not Path(ROLLUP).exists():
        raise ConfigError("/proc is missing: memory of processes cannot be read")
    with (
        tempfile.TemporaryDirectory(prefix="kourou-bench-") as name,
        LocalCluster(
            Path(name), ClusterSettings(brokers=2, replicas=1, filter_servers=1)
        ) as cluster,
    ):
        cluster.start_console({})
        threading.Event().wait(settle_seconds)  # idle, as the servers are
        rows = [
            _Row(kind, child.name, resident_bytes(child.pid), share_bytes(child.pid))
            for kind, child in _children(cluster)
        ]
    resident, share = sum(row.resident for row in rows), sum(row.share for row in rows)
    if as_json:
        processes = [
            {"service": kind, "name": name, "resident_bytes": size, "share_bytes": part}
            for kind, name, size, part in rows
        ]
        found = {"kind": "memory", "processes": processes}
        print(json.dumps({**found, "resident_bytes": resident, "share_bytes": share}), flush=True)
        return 0
    print(f"memory of an idle suite without Spark, after {settle_seconds:g} s; MB")
    print(f"  {'':<14} {'':<18} {'resident':>9} {'share':>7}")
    for kind, name, size, part in rows:
        print(f"  {kind:<14} {name:<18} {size / MEGABYTE:>9.0f} {part / MEGABYTE:>7.0f}")
    print(f"  {'all':<33} {resident / MEGABYTE:>9.0f} {share / MEGABYTE:>7.0f}")
    print("  share: shared pages are divided among the processes that map them", flush=True)
    return 0


def _children(cluster: LocalCluster) -> Iterator[tuple[str, Child]]:
    console = [] if cluster.console is None else [cluster.console]
    every: tuple[list[Child], ...] = (
        [cluster.namesrv],
        cluster.brokers,
        cluster.replicas,
        cluster.filter_servers,
        console,
    )
    for kind, children in zip(KINDS, every, strict=True):
        for child in children:
            yield kind, child


def share_bytes(pid: int) -> int:
    """Memory of a process and its descendants; shared pages are divided among their users (PSS)."""
    found = 0
    for one in family(pid):
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has just ended
        (line,) = (each for each in text.splitlines() if each.startswith("Pss:"))
        found += int(line.split()[1]) << 10
    return found
