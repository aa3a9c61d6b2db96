"""The systems of a comparison: what each needs, how it is started, how it is told to be safe.

Servers are started for one row, on free ports of the loopback interface, in a folder of their own,
and are gone after it. `serve` returns when the server says that it serves.

State: soft.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kourou import __version__
from kourou.errors import MissingPackages, TimedOut, Unavailable
from kourou.service.kept_ports import free_port
from kourou.service.local_cluster import HOST, ClusterSettings, LocalCluster
from kourou.service.processes import READY_TIMEOUT_MS, Child, Children
from kourou_bench.driving import DriverOptions
from kourou_bench.rows import Name, Work

LAG_BUCKET = re.compile(r'^kourou_gateway_loop_lag_bucket\{le="([^"]+)".*\} (\S+)$', re.MULTILINE)
POLL_S = 0.02
LOG_LINES = 200
COMPLAINT_LINES = 3
NATS_VERSION = "v2.15.2"
NATS_LINE = f"go install github.com/nats-io/nats-server/v2@{NATS_VERSION}"
NATS_SYNCS_SINCE = (2, 10)
"""The first nats-server that can be told how often it syncs its files."""

FLUSH_TYPES = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}
PACKAGES_LINE = MissingPackages("", "bench").hint


class Running(Protocol):
    """Servers that serve."""

    @property
    def pids(self) -> list[int]:
        """Their processes."""

    def start_again_after_kill(self) -> None:
        """Kill what stores, without a word, and start it on the same files."""

    def loop_lags(self) -> Mapping[float, int]:
        """How late the gateway's event loop was since its start; empty where there is none.

        Upper bound in ms -> how many timers were at most so late.
        """


class System(Protocol):
    """What is compared."""

    @property
    def name(self) -> Name:
        """How tables call it."""

    def missing(self) -> str:
        """What this machine lacks to run it and what to type about it; empty: nothing."""

    def cannot(self, work: Work) -> str:
        """Why it cannot do this work; empty: it can."""

    def title(self) -> str:
        """Its name and version."""

    def settings(self) -> Mapping[str, object]:
        """What was set otherwise than by default, and what matters of the rest."""

    def address(self, port: int) -> str:
        """What its clients are given."""

    def driver(self, options: DriverOptions) -> list[str]:
        """The command that does the work."""

    def serve(self, folder: Path, port: int, flush: str) -> AbstractContextManager[Running]:
        """Its servers, for as long as the block lasts."""


# -- processes -----------------------------------------------------------------------------------
def complaint(child: Child) -> str:
    """The last lines of a child's output that say something: no stack frames of Java."""
    lines = child.log_tail(LOG_LINES).splitlines()
    words = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", "   "))]
    return " | ".join(words[-COMPLAINT_LINES:])


def wait_for_port(child: Child, port: int) -> None:
    """Until somebody listens there; Unavailable when the child ends first."""
    for _ in range(int(READY_TIMEOUT_MS / 1_000 / POLL_S)):
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        code = child.wait_for_exit(POLL_S)
        if code is not None:
            raise Unavailable(f"{child.name} ended with {code}: {complaint(child)}")
    raise TimedOut(f"{child.name} does not listen at port {port}: {complaint(child)}")


@dataclass(frozen=True, slots=True)
class Processes:
    """Children that serve together."""

    children: list[Child]

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [child.pid for child in self.children]

    def start_again_after_kill(self) -> None:
        """Nothing that is measured of a peer."""
        raise Unavailable("only Kourou's restart is measured")

    def loop_lags(self) -> Mapping[float, int]:
        """A peer has no gateway."""
        return {}


def go_program(name: str) -> str:
    """A program that `go install` has put where it puts them, else one on PATH; empty: neither."""
    home = os.environ.get("GOPATH") or str(Path.home() / "go")
    folders = (os.environ.get("GOBIN", ""), f"{home}/bin", os.environ.get("PATH", ""))
    return shutil.which(name, path=os.pathsep.join(filter(None, folders))) or ""


def version_of(command: str) -> str:
    """The first version number that a command's --version prints; empty if there is none."""
    place = shutil.which(command)
    if place is None:
        return ""
    done = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else ""


def python_driver(script: Path, options: DriverOptions) -> list[str]:
    """A driver of benchmarks/peers, run by the Python that runs this."""
    return [sys.executable, str(script), *options.as_arguments()]


# -- Kourou ---------------------------------------------------------------------------------------
class Kourou:
    """Ours: a name server and a broker, and the asynchronous client."""

    name = Name.KOUROU

    def missing(self) -> str:
        """Nothing: it runs already."""
        return ""

    def cannot(self, work: Work) -> str:
        """It can do all of it."""
        return ""

    def title(self) -> str:
        """Kourou and its version."""
        return f"Kourou {__version__}"

    def settings(self) -> Mapping[str, object]:
        """Its defaults."""
        return {"python": platform.python_version(), "server": "defaults", "client": "defaults"}

    def address(self, port: int) -> str:
        """The name server's ZeroMQ address."""
        return f"tcp://{HOST}:{port}"

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver beside this module."""
        return [sys.executable, "-m", "kourou_bench.driver", *options.as_arguments()]

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        """A name server and a broker."""
        settings = ClusterSettings(
            broker={"flushDiskType": FLUSH_TYPES[flush]}, namesrv={"zmqPort": str(port)}
        )
        with LocalCluster(folder, settings) as cluster:
            yield RunningKourou(cluster)


@contextmanager
def kourou_for_java(folder: Path, port: int, flush: str) -> Iterator[Running]:
    """The same, with the name server at this port for RocketMQ's clients."""
    settings = ClusterSettings(
        broker={"flushDiskType": FLUSH_TYPES[flush]},
        namesrv={"listenPort": str(port), "zmqPort": str(free_port()), "adminPort": "0"},
    )
    with LocalCluster(folder, settings) as cluster:
        yield RunningKourou(cluster)


@dataclass(frozen=True, slots=True)
class RunningKourou:
    """A local cluster, as the comparison sees it."""

    cluster: LocalCluster

    @property
    def pids(self) -> list[int]:
        """Name server, broker, and the gateway where there is one."""
        console = [] if self.cluster.console is None else [self.cluster.console]
        return [one.pid for one in (self.cluster.namesrv, *self.cluster.brokers, *console)]

    def start_again_after_kill(self) -> None:
        """Kill the broker and start it on its store."""
        self.cluster.brokers[0].kill()
        self.cluster.start_broker(0)

    def loop_lags(self) -> Mapping[float, int]:
        """From the page of metrics."""
        if self.cluster.console is None:
            return {}
        with urllib.request.urlopen(f"{self.cluster.console.ready['admin']}/metrics") as page:
            found = LAG_BUCKET.findall(page.read().decode())
        return {float(bound): int(float(count)) for bound, count in found}


class Gateway(Kourou):
    """The HTTP gateway in front of the same servers, and a driver that speaks HTTP."""

    name = Name.GATEWAY

    def __init__(self) -> None:
        self._gateways: dict[int, str] = {}

    def title(self) -> str:
        """What is added."""
        return "HTTP gateway"

    def address(self, port: int) -> str:
        """The gateway's address, a bar, the name server's."""
        return f"{self._gateways[port]}|{super().address(port)}"

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver beside this module."""
        module = "kourou_bench.gateway_driver"
        return [sys.executable, "-m", module, *options.as_arguments()]

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        """A name server, a broker and the gateway."""
        settings = ClusterSettings(
            broker={"flushDiskType": FLUSH_TYPES[flush]}, namesrv={"zmqPort": str(port)}, console={}
        )
        with LocalCluster(folder, settings) as cluster:
            assert cluster.console is not None
            self._gateways[port] = str(cluster.console.ready["http"]).removeprefix("http://")
            yield RunningKourou(cluster)


# -- NATS JetStream -------------------------------------------------------------------------------
class Nats:
    """nats-server with streams in files, and nats-py."""

    name = Name.NATS

    def __init__(self, drivers: Path) -> None:
        self._driver = drivers / "nats_driver.py"
        self._server = go_program("nats-server")
        self._version = version_of(self._server)

    @property
    def _syncs(self) -> bool:
        return tuple(int(part) for part in self._version.split(".")[:2]) >= NATS_SYNCS_SINCE

    def missing(self) -> str:
        """The server's or the client's package."""
        if not self._version:
            return f"nats-server is not installed: {NATS_LINE} (or sudo apt install -y nats-server)"
        return "" if importlib.util.find_spec("nats") else f"nats-py is missing: {PACKAGES_LINE}"

    def cannot(self, work: Work) -> str:
        """Old servers cannot sync before they answer."""
        if work.flush == "sync" and not self._syncs:
            return f"nats-server {self._version} cannot sync before it answers; 2.10 and newer can"
        return ""

    def title(self) -> str:
        """The server and its version."""
        return f"NATS {self._version}"

    def settings(self) -> Mapping[str, object]:
        """How it syncs, above all."""
        how = "sync_interval 500ms, or always" if self._syncs else "every 2 minutes (fixed)"
        client = f"nats-py {importlib.metadata.version('nats-py')}, uvloop"
        return {"storage": "file", "sync": how, "client": client}

    def address(self, port: int) -> str:
        """The server's own address."""
        return f"nats://{HOST}:{port}"

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver of benchmarks/peers."""
        return python_driver(self._driver, options)

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        """One server with JetStream."""
        folder.mkdir(parents=True, exist_ok=True)
        interval = "always" if flush == "sync" else '"500ms"'
        sync = f", sync_interval: {interval}" if self._syncs else ""
        settings = folder / "nats.conf"
        settings.write_text(
            f'listen: "{HOST}:{port}"\njetstream {{ store_dir: "{folder}/store"{sync} }}\n',
            encoding="utf-8",
        )
        with Children(folder) as children:
            command = [self._server, "-c", str(settings)]
            server = children.start("nats-server", command, says_ready=False)
            wait_for_port(server, port)
            yield Processes([server])


# -- Redis Streams --------------------------------------------------------------------------------
class Redis:
    """redis-server with an append-only file, and redis-py."""

    name = Name.REDIS

    def __init__(self, drivers: Path) -> None:
        self._driver = drivers / "redis_driver.py"
        self._version = version_of("redis-server")

    def missing(self) -> str:
        """The server's or the client's package."""
        if not self._version:
            return "redis-server is not installed: sudo apt install -y redis-server"
        return "" if importlib.util.find_spec("redis") else f"redis is missing: {PACKAGES_LINE}"

    def cannot(self, work: Work) -> str:
        """It can do all of it."""
        return ""

    def title(self) -> str:
        """The server and its version."""
        return f"Redis {self._version}"

    def settings(self) -> Mapping[str, object]:
        """How it syncs, above all."""
        client = f"redis-py {importlib.metadata.version('redis')}"
        if importlib.util.find_spec("hiredis"):
            client += " with hiredis"
        return {
            "appendonly": "yes, never rewritten",
            "appendfsync": "everysec, or always",
            "client": f"{client}, uvloop",
        }

    def address(self, port: int) -> str:
        """The server's own address."""
        return f"{HOST}:{port}"

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver of benchmarks/peers."""
        return python_driver(self._driver, options)

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        """One server; its file is synced each second, or before each answer."""
        folder.mkdir(parents=True, exist_ok=True)
        sync = "always" if flush == "sync" else "everysec"
        command = [
            *("redis-server", "--bind", HOST, "--port", str(port), "--dir", str(folder)),
            *("--save", "", "--appendonly", "yes", "--appendfsync", sync),
            *("--auto-aof-rewrite-percentage", "0"),
        ]
        with Children(folder) as children:
            server = children.start("redis-server", command, says_ready=False)
            wait_for_port(server, port)
            yield Processes([server])
