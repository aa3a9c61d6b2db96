"""The systems of a comparison: requirements, start, and settings that make them durable.

Servers are started for one row, on free ports of the loopback interface and in a folder of their
own, and are removed afterwards. `serve` returns when the server is ready.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kourou import __version__
from kourou.errors import MissingPackages, TimedOut, Unavailable
from kourou.service.local_cluster import HOST, ClusterSettings, LocalCluster
from kourou.service.processes import READY_TIMEOUT_MS, Child, Children, free_port
from kourou_bench.driving import DriverOptions
from kourou_bench.rows import Name, Work

LAG_BUCKET = re.compile(r'^kourou_gateway_loop_lag_bucket\{le="([^"]+)".*\} (\S+)$', re.MULTILINE)
POLL_S = 0.02
LOG_LINES = 200
COMPLAINT_LINES = 3
NATS_VERSION = "v2.15.2"
NATS_LINE = f"go install github.com/nats-io/nats-server/v2@{NATS_VERSION}"
NATS_SYNCS_SINCE = (2, 10)
"""The first nats-server with a configurable sync interval."""

FLUSH_TYPES = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}
PACKAGES_LINE = MissingPackages("", "bench").hint


class Running(Protocol):
    """Running servers."""

    @property
    def pids(self) -> list[int]:
        """The process IDs."""

    def start_again_after_kill(self) -> None:
        """Send SIGKILL to the server that stores messages, and restart it on the same files."""

    def loop_lags(self) -> Mapping[float, int]:
        """Lag of the gateway's event loop since its start; empty without a gateway.

        Upper bound in ms -> number of timers that were at most so late.
        """


class System(Protocol):
    """A system that can be compared."""

    @property
    def name(self) -> Name:
        """Its name in tables."""

    def missing(self) -> str:
        """What this machine lacks to run it, and the command that installs it; empty if nothing."""

    def cannot(self, work: Work) -> str:
        """Why it cannot run this workload; empty if it can."""

    def title(self) -> str:
        """Its name and version."""

    def settings(self) -> Mapping[str, object]:
        """Settings that differ from the defaults, and important ones that do not."""

    def address(self, port: int) -> str:
        """The address that its clients use."""

    def driver(self, options: DriverOptions) -> list[str]:
        """The command that runs the driver."""

    def serve(self, folder: Path, port: int, flush: str) -> AbstractContextManager[Running]:
        """Start its servers for the duration of the block."""


# -- processes -----------------------------------------------------------------------------------
def complaint(child: Child) -> str:
    """The last meaningful lines of a child's output, without Java's stack frames."""
    lines = child.log_tail(LOG_LINES).splitlines()
    words = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", "   "))]
    return " | ".join(words[-COMPLAINT_LINES:])


def wait_for_port(child: Child, port: int) -> None:
    """Wait until a server listens on the port; raises Unavailable if the child ends first."""

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, port)) == 0

    _wait(child, listens, f"does not listen at port {port}")


def wait_for_output(child: Child, text: str) -> None:
    """Wait until a child has printed `text`; raises Unavailable if the child ends first."""
    _wait(child, lambda: text in child.log_tail(LOG_LINES), f"does not print {text!r}")


def _wait(child: Child, ready: Callable[[], bool], failure: str) -> None:
    for _ in range(int(READY_TIMEOUT_MS / 1_000 / POLL_S)):
        if ready():
            return
        code = child.wait_for_exit(POLL_S)
        if code is not None:
            raise Unavailable(f"{child.name} ended with {code}: {complaint(child)}")
    raise TimedOut(f"{child.name} {failure}: {complaint(child)}")


@dataclass(frozen=True, slots=True)
class Processes:
    """Child processes that form one server."""

    children: list[Child]

    @property
    def pids(self) -> list[int]:
        """Their process IDs."""
        return [child.pid for child in self.children]

    def start_again_after_kill(self) -> None:
        """Not supported: restarts of peers are not measured."""
        raise Unavailable("only Kourou's restart is measured")

    def loop_lags(self) -> Mapping[float, int]:
        """A peer has no gateway."""
        return {}


def go_program(name: str) -> str:
    """The path of a program in Go's install folder, else on PATH; empty if it is in neither."""
    home = os.environ.get("GOPATH") or str(Path.home() / "go")
    folders = (os.environ.get("GOBIN", ""), f"{home}/bin", os.environ.get("PATH", ""))
    return shutil.which(name, path=os.pathsep.join(filter(None, folders))) or ""


def version_of(command: str) -> str:
    """The first version number in the output of `COMMAND --version`; empty if there is none."""
    place = shutil.which(command)
    if place is None:
        return ""
    done = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else ""


def python_driver(script: Path, options: DriverOptions) -> list[str]:
    """The command of a driver in benchmarks/peers, run by the current Python."""
    return [sys.executable, str(script), *options.as_arguments()]


# -- Kourou ---------------------------------------------------------------------------------------
class Kourou:
    """Kourou: a name server and a broker, and the asynchronous client."""

    name = Name.KOUROU

    def missing(self) -> str:
        """Nothing is missing, because Kourou is running this code."""
        return ""

    def cannot(self, work: Work) -> str:
        """Kourou supports all workloads."""
        return ""

    def title(self) -> str:
        """Kourou and its version."""
        return f"Kourou {__version__}"

    def settings(self) -> Mapping[str, object]:
        """The default settings."""
        return {"python": platform.python_version(), "server": "defaults", "client": "defaults"}

    def address(self, port: int) -> str:
        """The name server's ZeroMQ address."""
        return f"tcp://{HOST}:{port}"

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver in this package."""
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
    """The same, with the name server on this port for RocketMQ's clients."""
    settings = ClusterSettings(
        broker={"flushDiskType": FLUSH_TYPES[flush]},
        namesrv={"listenPort": str(port), "zmqPort": str(free_port()), "adminPort": "0"},
    )
    with LocalCluster(folder, settings) as cluster:
        yield RunningKourou(cluster)


@dataclass(frozen=True, slots=True)
class RunningKourou:
    """A local cluster as `Running`."""

    cluster: LocalCluster

    @property
    def pids(self) -> list[int]:
        """Name server, broker and, if there is one, the gateway."""
        console = [] if self.cluster.console is None else [self.cluster.console]
        return [one.pid for one in (self.cluster.namesrv, *self.cluster.brokers, *console)]

    def start_again_after_kill(self) -> None:
        """Kill the broker and start it on its store."""
        self.cluster.brokers[0].kill()
        self.cluster.start_broker(0)

    def loop_lags(self) -> Mapping[float, int]:
        """Read from the metrics page."""
        if self.cluster.console is None:
            return {}
        with urllib.request.urlopen(f"{self.cluster.console.ready['admin']}/metrics") as page:
            found = LAG_BUCKET.findall(page.read().decode())
        return {float(bound): int(float(count)) for bound, count in found}


class Gateway(Kourou):
    """The HTTP gateway in front of the same servers, and a driver that uses HTTP."""

    name = Name.GATEWAY

    def __init__(self) -> None:
        self._gateways: dict[int, str] = {}

    def title(self) -> str:
        """Kourou's title and the gateway."""
        return "HTTP gateway"

    def address(self, port: int) -> str:
        """The gateway's address, `|`, the name server's."""
        return f"{self._gateways[port]}|{super().address(port)}"

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver in this package."""
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
        """What is missing: the server's or the client's package."""
        if not self._version:
            return f"nats-server is not installed: {NATS_LINE} (or sudo apt install -y nats-server)"
        return "" if importlib.util.find_spec("nats") else f"nats-py is missing: {PACKAGES_LINE}"

    def cannot(self, work: Work) -> str:
        """Versions before NATS_SYNCS_SINCE cannot sync before they reply."""
        if work.flush == "sync" and not self._syncs:
            return f"nats-server {self._version} cannot sync before it answers; 2.10 and newer can"
        return ""

    def title(self) -> str:
        """The server and its version."""
        return f"NATS {self._version}"

    def settings(self) -> Mapping[str, object]:
        """Settings that matter for the comparison, in particular syncing."""
        how = "sync_interval 500ms, or always" if self._syncs else "every 2 minutes (fixed)"
        client = f"nats-py {importlib.metadata.version('nats-py')}, uvloop"
        return {"storage": "file", "sync": how, "client": client}

    def address(self, port: int) -> str:
        """The server's address."""
        return f"nats://{HOST}:{port}"

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver in benchmarks/peers."""
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
        """What is missing: the server's or the client's package."""
        if not self._version:
            return "redis-server is not installed: sudo apt install -y redis-server"
        return "" if importlib.util.find_spec("redis") else f"redis is missing: {PACKAGES_LINE}"

    def cannot(self, work: Work) -> str:
        """Redis supports all workloads."""
        return ""

    def title(self) -> str:
        """The server and its version."""
        return f"Redis {self._version}"

    def settings(self) -> Mapping[str, object]:
        """Settings that matter for the comparison, in particular syncing."""
        client = f"redis-py {importlib.metadata.version('redis')}"
        if importlib.util.find_spec("hiredis"):
            client += " with hiredis"
        return {
            "appendonly": "yes, never rewritten",
            "appendfsync": "everysec, or always",
            "client": f"{client}, uvloop",
        }

    def address(self, port: int) -> str:
        """The server's address."""
        return f"{HOST}:{port}"

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver in benchmarks/peers."""
        return python_driver(self._driver, options)

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        """One server; its file is synced every second, or before each reply."""
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
