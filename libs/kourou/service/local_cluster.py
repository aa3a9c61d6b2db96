"""Name server, brokers and what is beside them as processes on this machine: demos, tests, `up`.

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
from kourou.service.cores import cores_left
from kourou.service.local_group import GroupPorts, leader_address
from kourou.service.processes import STOP_GRACE_MS, Child, Children

HOST = "127.0.0.1"
NAMESRV_PORT = 9876
BROKER_PORT = 10911
BROKER_PORT_STEP = 20
FILTER_SERVER_ADMIN_PORT = 18_181
SPARK_READY_TIMEOUT_MS = 180_000
"""Java and Spark start, on a machine with much else to do."""
LEADER_TIMEOUT_MS = 30_000
"""An election takes a second or two; on a machine with much else to do more than one."""

ZMQ_PORT_SHIFT = 10_000

LOCK_FILE = "cluster.lock"
"""Locked while a cluster runs in its folder; holds the process id of whoever started it."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What a local cluster is made of.

    `free_ports` lets the system choose every port (`listenPort=0`); otherwise the usual ones are
    taken. `broker` and `namesrv` hold settings by RocketMQ's names, written to the settings files
    as they are. `replicas` followers of every broker are started, with the settings `replica`
    beside those of `broker`. `filter_servers` are started beside every broker, with the settings
    `filter_server`; they need a kernel that has all layers of the filters' jail. `spark_etl` holds
    settings of the Spark pipeline, `jobFile` among them; None: there is no pipeline. `console`
    holds settings of the HTTP gateway and web console, which is then started last; None: none.

    With `raft` every broker is a group of so many members, which elect their leader; then there are
    no replicas and no filter servers.
    """

    brokers: int = 1
    free_ports: bool = True
    broker: Mapping[str, str] | None = None
    namesrv: Mapping[str, str] | None = None
    filter_servers: int = 0
    filter_server: Mapping[str, str] | None = None
    spark_etl: Mapping[str, str] | None = None
    replicas: int = 0
    replica: Mapping[str, str] | None = None
    raft: int = 0
    console: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Refuse what is not there."""
        if self.raft and (self.replicas or self.filter_servers):
            raise ConfigError(
                "the members of a Raft group are one another's copies, and have no filter servers",
                hint="take raft alone, or replicas and filter servers",
            )


class LocalCluster:
    """A name server, brokers and those beside; leaving the `with` block drains and stops them.

    `filter_servers` are those of the first broker, then those of the second, and so on; `replicas`
    and, in Raft groups, `members` likewise. Where there are groups, `brokers` is empty.
    """

    __slots__ = (
        *("_children", "_groups", "_lock", "brokers", "filter_servers"),
        *("console", "folder", "members", "namesrv", "replicas", "settings", "spark_etl"),
    )

    def __init__(self, folder: Path, settings: ClusterSettings) -> None:
        self.folder = folder
        self.settings = settings
        self._lock: int | None = _locked(folder)
        self._children = Children(folder)
        self.brokers: list[Child] = []
        self.replicas: list[Child] = []
        self.members: list[Child] = []
        self.filter_servers: list[Child] = []
        self.spark_etl: Child | None = None
        self.console: Child | None = None
        self._groups: list[GroupPorts] = []
        try:
            self.namesrv = self._start_namesrv()
            for number in range(settings.brokers):
                if settings.raft:
                    self._start_group(number)
                else:
                    self.start_broker(number)
            for number in range(settings.brokers):
                for index in range(settings.replicas):
                    self.start_replica_of(number, index)
            for number in range(settings.brokers):
                for index in range(settings.filter_servers):
                    self.start_filter_server(number, index)
            if settings.spark_etl is not None:
                self.start_spark_etl(settings.spark_etl)
            if settings.console is not None:
                self.start_console(settings.console)
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
            **self._cores_of_broker(),
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

    def _cores_of_broker(self) -> Mapping[str, str]:
        """Where filters could compute on every core, a broker keeps to the one they leave."""
        there, per_broker = os.sched_getaffinity(0), 1 + self.settings.filter_servers
        if per_broker == 1 or not 1 < len(there) < 1 + self.settings.brokers * per_broker:
            return {}
        return {"processCores": ",".join(map(str, sorted(cores_left(there))))}

    def _start_group(self, number: int) -> None:
        """All members, and returns when one of them leads: none is of use alone."""
        size = self.settings.raft
        listens = () if self.settings.free_ports else [self._port(number, n) for n in range(size)]
        self._groups.append(GroupPorts(size, listens))
        self.members += [self._begin_member(number, index) for index in range(size)]
        for child in self.members[number * size :]:
            child.wait_for_ready()
        self.leader_of(number)

    def start_member(self, group: int, index: int) -> Child:
        """Start (or start again, on the same store) the member of that index, from 0, of a group.

        Returns when it takes part; `leader_of` tells who leads.
        """
        child = self._begin_member(group, index)
        child.wait_for_ready()
        place = group * self.settings.raft + index
        self.members[place : place + 1] = [child]
        return child

    def _begin_member(self, group: int, index: int) -> Child:
        free = self.settings.free_ports
        settings = {
            "brokerName": f"broker-{chr(ord('a') + group)}",
            "brokerClusterName": "DefaultCluster",
            "brokerIP1": HOST,
            "listenPort": "0" if free else str(self._port(group, index)),
            "storePathRootDir": str(self.member_folder(group, index)),
            **self._groups[group].settings(index),
            **(self.settings.broker or {}),
        }
        name = f"{settings['brokerName']}-n{index}"
        return self._children.start_module(
            name,
            "kourou_ha_replica",
            *("-c", str(self._write(name, settings))),
            *("-n", self.address),
        )

    def _port(self, group: int, index: int) -> int:
        return BROKER_PORT + BROKER_PORT_STEP * (group * self.settings.raft + index)

    def leader_of(self, group: int = 0, timeout_ms: int = LEADER_TIMEOUT_MS) -> Child:
        """The member of a group that leads, as the name server says; waits until one does.

        Raises TimedOut if none does in time.
        """
        size = self.settings.raft
        members = self.members[group * size : (group + 1) * size]

        def at(address: str) -> Child | None:
            """A process that ended is not asked for; it stays registered for a while."""
            places = (child for child in members if child.running and child.ready)
            return next((one for one in places if zmq_address(one) == f"tcp://{address}"), None)

        name = f"broker-{chr(ord('a') + group)}"
        name = (self.settings.broker or {}).get("brokerName", name)
        address = leader_address(self.address, name, lambda each: at(each) is not None, timeout_ms)
        found = at(address)
        if found is None:
            raise Unavailable(f"the leader of {name} at {address} has ended just now")
        return found

    def start_replica_of(self, broker: int, index: int) -> Child:
        """Start (or start again, on the same store) the follower of that index, from 0.

        Its brokerId is the index and one.
        """
        letter, number = chr(ord("a") + broker), broker * self.settings.replicas + index
        port = BROKER_PORT + BROKER_PORT_STEP * (self.settings.brokers + number)
        settings = {
            "brokerName": f"broker-{letter}",
            "brokerClusterName": "DefaultCluster",
            "brokerIP1": HOST,
            "listenPort": "0" if self.settings.free_ports else str(port),
            "storePathRootDir": str(self.replica_folder(broker, index)),
            **(self.settings.broker or {}),
            "brokerRole": "SLAVE",
            "brokerId": str(index + 1),
            **(self.settings.replica or {}),
        }
        name = f"{settings['brokerName']}-s{index + 1}"
        child = self._children.start_module(
            name,
            "kourou_ha_replica",
            *("-c", str(self._write(name, settings))),
            *("-n", self.address),
        )
        child.wait_for_ready()
        self.replicas[number : number + 1] = [child]
        return child

    def start_filter_server(self, broker: int, index: int) -> Child:
        """Start (or start again) the filter server of that index, from 0, of that broker.

        Raises ConfigError where the machine lacks a layer of the jail.
        """
        free = self.settings.free_ports
        port = BROKER_PORT + BROKER_PORT_STEP * broker
        number = broker * self.settings.filter_servers + index
        settings = {
            "connectWhichBroker": zmq_address(self.brokers[broker]),
            "filterServerIndex": str(index),
            "listenPort": "0" if free else str(port),
            "adminPort": "0" if free else str(FILTER_SERVER_ADMIN_PORT + number),
            **(self.settings.filter_server or {}),
        }
        name = f"filter-server-{chr(ord('a') + broker)}{index}"
        child = self._children.start_module(
            name, "kourou_filter_server", "-c", str(self._write(name, settings))
        )
        child.wait_for_ready()
        self.filter_servers[number : number + 1] = [child]
        return child

    def start_spark_etl(self, told: Mapping[str, str]) -> Child:
        """Start (or start again, from its checkpoints) the Spark pipeline of all brokers.

        Raises ConfigError where Java or a package is missing, or the job file is wrong.
        """
        settings = {
            "namesrvAddr": plain_address(self.address),
            "etlPath": str(self.folder / "spark-etl"),
            **({"adminPort": "0"} if self.settings.free_ports else {}),
            **told,
        }
        child = self._children.start_module(
            "spark-etl", "kourou_spark_etl", "run", "-c", str(self._write("spark-etl", settings))
        )
        child.wait_for_ready(SPARK_READY_TIMEOUT_MS)
        self.spark_etl = child
        return child

    def start_console(self, told: Mapping[str, str]) -> Child:
        """Start (or start again) the HTTP gateway and web console; `http` of what it says is where.

        Raises ConfigError where its port is taken.
        """
        pages = {
            child.name: str(child.ready["admin"]).removeprefix("http://")
            for child in (self.namesrv, *self.brokers, *self.beside)
            if child is not self.console and child.ready.get("admin")
        }
        spark = pages.pop("spark-etl", "")
        settings = {
            "namesrvAddr": plain_address(self.address),
            "adminAddresses": ";".join(f"{name}={address}" for name, address in pages.items()),
            **({"sparkEtlAddress": spark} if spark else {}),
            **({"consolePort": "0", "adminPort": "0"} if self.settings.free_ports else {}),
            **told,
        }
        child = self._children.start_module(
            "console", "kourou_console", "-c", str(self._write("console", settings))
        )
        child.wait_for_ready()
        self.console = child
        return child

    @property
    def beside(self) -> list[Child]:
        """Those without whom the others go on: copies, members, filter servers, the pipeline."""
        late = [one for one in (self.spark_etl, self.console) if one is not None]
        return [*self.replicas, *self.members, *self.filter_servers, *late]

    def store_folder(self, number: int) -> Path:
        """Where the broker of that number keeps its store."""
        return self.folder / f"store-{chr(ord('a') + number)}"

    def replica_folder(self, broker: int, index: int) -> Path:
        """Where the follower of that index of that broker keeps its store."""
        return self.folder / f"store-{chr(ord('a') + broker)}-s{index + 1}"

    def member_folder(self, group: int, index: int) -> Path:
        """Where the member of that index of that group keeps its store."""
        return self.folder / f"store-{chr(ord('a') + group)}-n{index}"

    def stop(self, grace_ms: int = STOP_GRACE_MS) -> dict[str, int]:
        """Drain and stop everything, the youngest first; exit codes by name."""
        codes = self._children.stop_all(grace_ms)
        for ports in self._groups:
            ports.release()
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
