"""Name server and brokers as real processes on this machine, for demos, benchmarks and tests.

Lives here: which processes make a small cluster, their settings files, their addresses.
May not live here: starting and ending a process (kourou.service.processes).

Services are started by their module names and spoken to over sockets; nothing of them is imported.

A folder has one cluster at a time: whoever comes second is refused before anything is touched.

State: soft; what the brokers store lies in the folder that was given.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kourou.errors import ConfigError, Unavailable
from kourou.service.processes import STOP_GRACE_MS, Child, Children

HOST = "127.0.0.1"
NAMESRV_PORT = 9876
BROKER_PORT = 10911
BROKER_PORT_STEP = 20
ZMQ_PORT_SHIFT = 10_000

LOCK_FILE = "cluster.lock"
"""Locked while a cluster runs in its folder; holds the process id of whoever started it."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What a local cluster is made of.

    `free_ports` lets the system choose every port (`listenPort=0`); otherwise the usual ones are
    taken. `broker` and `namesrv` hold settings by RocketMQ's names, written to the settings files
    as they are.
    """

    brokers: int = 1
    free_ports: bool = True
    broker: Mapping[str, str] | None = None
    namesrv: Mapping[str, str] | None = None


class LocalCluster:
    """One name server and some brokers; leaving the `with` block drains and stops them."""

    __slots__ = ("_children", "_lock", "brokers", "folder", "namesrv", "settings")

    def __init__(self, folder: Path, settings: ClusterSettings) -> None:
        self.folder = folder
        self.settings = settings
        self._lock: int | None = _locked(folder)
        self._children = Children(folder)
        self.brokers: list[Child] = []
        try:
            self.namesrv = self._start_namesrv()
            for number in range(settings.brokers):
                self.start_broker(number)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """What a client is given: the name server's ZeroMQ address."""
        return zmq_address(self.namesrv)

    @property
    def children(self) -> Children:
        """The processes; further ones may be added, and are stopped before the cluster's own."""
        return self._children

    def start_broker(self, number: int) -> Child:
        """Start (or start again, on the same store) the broker of that number."""
        settings = {
            "brokerName": f"broker-{chr(ord('a') + number)}",
            "brokerClusterName": "DefaultCluster",
            "brokerIP1": HOST,
            "listenPort": "0"
            if self.settings.free_ports
            else str(BROKER_PORT + BROKER_PORT_STEP * number),
            "storePathRootDir": str(self.store_folder(number)),
            **(self.settings.broker or {}),
        }
        name = settings["brokerName"]
        child = self._children.start_module(
            name,
            "kourou_broker",
            *("-c", str(self._write(name, settings))),
            *("-n", self.address),
        )
        child.wait_for_ready()
        self.brokers[number : number + 1] = [child]
        return child

    def store_folder(self, number: int) -> Path:
        """Where the broker of that number keeps its store."""
        return self.folder / f"store-{chr(ord('a') + number)}"

    def stop(self, grace_ms: int = STOP_GRACE_MS) -> dict[str, int]:
        """Drain and stop everything, the youngest first; exit codes by name."""
        codes = self._children.stop_all(grace_ms)
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None
        return codes

    def _start_namesrv(self) -> Child:
        settings = {
            "listenPort": "0" if self.settings.free_ports else str(NAMESRV_PORT),
            "kvConfigPath": str(self.folder / "namesrv" / "kvConfig.json"),
            **(self.settings.namesrv or {}),
        }
        child = self._children.start_module(
            "namesrv", "kourou_namesrv", "-c", str(self._write("namesrv", settings))
        )
        child.wait_for_ready()
        return child

    def _write(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.folder / f"{name}.conf"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}" for key, value in settings.items()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


def zmq_address(child: Child) -> str:
    """The ZeroMQ address that a service gave in its ready file."""
    address: Any = child.ready.get("zmq")
    if not isinstance(address, str) or not address.startswith("tcp://"):
        raise Unavailable(f"{child.name} is ready but names no ZeroMQ address: {child.ready}")
    return address


def plain_address(zmq: str) -> str:
    """`tcp://127.0.0.1:19876` as people write it: 127.0.0.1:9876, which means the same."""
    host, _, port = zmq.removeprefix("tcp://").rpartition(":")
    number = int(port)
    if ZMQ_PORT_SHIFT < number < 2 * ZMQ_PORT_SHIFT:
        number -= ZMQ_PORT_SHIFT
    return f"{host}:{number}"


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder's lock. Raises ConfigError if another cluster has it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited by children
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock, 32).decode("ascii", "replace").strip()
        os.close(lock)
        who = f"process {owner}" if owner.isdigit() else "another process"
        raise ConfigError(
            f"{folder} is in use: {who} runs name server and brokers there; nothing was touched",
            hint="stop it first, or take another --folder",
        ) from None
    os.ftruncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())
    return lock
