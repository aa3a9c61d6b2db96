"""Runs a cluster as processes on this machine: name server, brokers and other services.

Used by demos, tests and `kourou up`. Services are started by their module names and contacted over
sockets; none of their modules is imported. A folder has at most one cluster at a time: a second one
is refused before anything is changed.

State: soft; the stores of the brokers are in the given folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kourou.clock import SystemClock
from kourou.errors import ConfigError, KourouError, TimedOut, Unavailable
from kourou.model.ports import (
    BROKER_ADMIN_PORT,
    BROKER_PORT,
    BROKER_PORT_STEP,
    FILTER_SERVER_ADMIN_PORT,
    NAMESRV_ADMIN_PORT,
    NAMESRV_PORT,
    SPARK_ETL_ADMIN_PORT,
    ZMQ_PORT_SHIFT,
)
from kourou.model.topic import MASTER_ID
from kourou.service.os_processes import cores_left
from kourou.service.processes import (
    POLL_S,
    READY_TIMEOUT_MS,
    STOP_GRACE_MS,
    Child,
    Children,
    KeptPorts,
)

HOST = "127.0.0.1"
SPARK_READY_TIMEOUT_MS = 180_000
"""Java and Spark start slowly on a busy machine."""
LEADER_TIMEOUT_MS = 30_000
"""An election takes a second or two, and longer on a busy machine."""


SMALL_SEGMENT_BYTES = 8 << 20
"""Twice the largest message.

A store with three segments, one active and two spare, takes 24 MiB of disk.
"""

LOCK_FILE = "cluster.lock"
"""Locked while a cluster runs in its folder; holds the process id of its owner."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The configuration of a local cluster.

    With `free_ports` the system chooses every port (`listenPort=0`); otherwise the usual ports are
    used. `broker` and `namesrv` hold settings by RocketMQ's names, which are written to the
    settings files unchanged. `replicas` is the number of followers per broker, which get the
    settings `replica` in addition to those of `broker`. `filter_servers` is the number of filter
    servers per broker, with the settings `filter_server`; they need a kernel that supports all
    layers of the filter sandbox. `spark_etl` holds settings of the Spark pipeline, including
    `jobFile`; with None there is no pipeline. `console` holds settings of the HTTP gateway and web
    console, which is started last; with None there is none. With `small_segments` new stores have
    log segments of 8 MiB instead of RocketMQ's 1 GiB.

    With `raft` every broker is a Raft group of so many nodes, which elect their leader; then there
    can be no replicas and no filter servers.
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
    small_segments: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigError for a combination that is not supported."""
        if self.raft and (self.replicas or self.filter_servers):
            raise ConfigError(
                "a Raft group replicates among its members and has no filter servers",
                hint="use raft, or replicas and filter servers, but not both",
            )


class LocalCluster:
    """A local cluster; leaving the `with` block drains and stops its processes.

    All processes are started in parallel and find each other, because their addresses are chosen
    beforehand. The constructor returns when all are ready; `on_ready` is called as each becomes
    ready. `filter_servers` lists those of the first broker, then those of the second, and so on;
    `replicas` and, with Raft groups, `members` likewise. With Raft groups, `brokers` is empty.
    """

    __slots__ = (
        *("_children", "_groups", "_lock", "_pages", "_ports", "_zmq", "brokers", "filter_servers"),
        *("console", "folder", "members", "namesrv", "replicas", "settings", "spark_etl"),
    )

    def __init__(
        self,
        folder: Path,
        settings: ClusterSettings,
        on_ready: Callable[[Child], None] = lambda child: None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self._lock: int | None = _locked(folder)
        self._children = Children(folder)
        self._ports = KeptPorts()
        self._zmq: dict[str, str] = {}
        self._pages: dict[str, str] = {}
        self.brokers: list[Child] = []
        self.replicas: list[Child] = []
        self.members: list[Child] = []
        self.filter_servers: list[Child] = []
        self.spark_etl: Child | None = None
        self.console: Child | None = None
        self._groups: list[GroupPorts] = []
        try:
            self._start_all(on_ready)
        except BaseException:
            self.stop()
            raise

    def _start_all(self, on_ready: Callable[[Child], None]) -> None:
        settings = self.settings
        numbers = range(settings.brokers)
        self.namesrv = self._start_namesrv()
        if settings.raft:
            size = settings.raft
            for number in numbers:
                first = BROKER_PORT + BROKER_PORT_STEP * number * size
                usual = range(first, first + BROKER_PORT_STEP * size, BROKER_PORT_STEP)
                self._groups.append(GroupPorts(size, () if settings.free_ports else usual))
                self.members += [self._start_raft_node(number, index) for index in range(size)]
        else:
            self.brokers = [self._start_broker(number) for number in numbers]
        for number in numbers:
            self.replicas += [self._start_replica(number, n) for n in range(settings.replicas)]
        for number in numbers:
            self.filter_servers += [
                self._start_filter_server(number, n) for n in range(settings.filter_servers)
            ]
        if settings.spark_etl is not None:
            self.spark_etl = self._start_spark_etl(settings.spark_etl)
        if settings.console is not None:
            self.console = self._start_console(settings.console)
        starting = self.all
        while starting:
            ready = [child for child in starting if child.check_ready(self.ready_timeout_ms(child))]
            for child in ready:
                on_ready(child)
            starting = [child for child in starting if child not in ready]
            if not ready:
                starting[0].wait_for_exit(POLL_S)
        if settings.raft:
            for number in numbers:
                self.leader_of(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """The address for clients: the name server's ZeroMQ address."""
        return zmq_address(self.namesrv) if self.namesrv.ready else self._zmq["namesrv"]

    @property
    def children(self) -> Children:
        """The child processes; processes added here are stopped before the cluster's own."""
        return self._children

    @property
    def all(self) -> list[Child]:
        """The cluster's own processes: name server, brokers, and the others."""
        return [self.namesrv, *self.brokers, *self.dependents]

    def ready_timeout_ms(self, child: Child) -> int:
        """How long a process of the cluster may take to become ready."""
        return SPARK_READY_TIMEOUT_MS if child is self.spark_etl else READY_TIMEOUT_MS

    def begin_again(self, child: Child) -> Child:
        """Restart a process that has ended, on its store and its ports; does not wait."""
        again = self._children.start_again(child)
        for group in (self.brokers, self.replicas, self.members, self.filter_servers):
            group[:] = [again if one is child else one for one in group]
        if child is self.namesrv:
            self.namesrv = again
        elif child is self.spark_etl:
            self.spark_etl = again
        elif child is self.console:
            self.console = again
        return again

    # -- starting one process ---------------------------------------------------------------------

    def _start(
        self,
        name: str,
        module: str,
        settings: Mapping[str, str],
        *arguments: str,
        words: Sequence[str] = (),
    ) -> Child:
        """Start a service with a settings file; record where it will listen."""
        port = settings.get("zmqPort") or int(settings.get("listenPort", 0)) + ZMQ_PORT_SHIFT
        self._zmq[name] = f"tcp://{HOST}:{port}"
        if settings.get("adminEnable") != "false":
            scheme = "https://" if settings.get("tls.server.mode") == "enforcing" else ""
            self._pages[name] = f"{scheme}{HOST}:{settings.get('adminPort', 0)}"
        file = str(self._write(name, settings))
        return self._children.start_module(name, module, *words, "-c", file, *arguments)

    def _listens(
        self, name: str, port: int, admin_port: int, overrides: Mapping[str, str] | None
    ) -> dict[str, str]:
        """Return the listen settings of a service.

        With free ports, those that other services must know are chosen here.
        """
        if not self.settings.free_ports:
            return {"listenPort": str(port), "adminPort": str(admin_port)}
        chosen = {"listenPort": "0", "adminPort": str(self._ports[f"{name} admin"])}
        if "listenPort" not in (overrides or {}):
            chosen["zmqPort"] = str(self._ports[f"{name} zmq"])
        return chosen

    def _of_broker(self, suffix: str, name: str, store: Path, place: int) -> dict[str, str]:
        """Return the settings that every replica needs; `place` numbers those of this machine."""
        return {
            "brokerName": f"broker-{suffix}",
            "brokerClusterName": "DefaultCluster",
            "brokerIP1": HOST,
            **self._listens(
                name,
                BROKER_PORT + BROKER_PORT_STEP * place,
                BROKER_ADMIN_PORT + place,
                self.settings.broker,
            ),
            "storePathRootDir": str(store),
            **self._segment_size(),
        }

    def _segment_size(self) -> dict[str, str]:
        """Return the setting for small log segments, if enabled; a store keeps its size."""
        if not self.settings.small_segments:
            return {}
        existing = sorted(self.folder.glob("store-*/commitlog/[0-9]*"))
        size = existing[0].stat().st_size if existing else SMALL_SEGMENT_BYTES
        return {"mappedFileSizeCommitLog": str(size)}

    def _start_namesrv(self) -> Child:
        overrides = self.settings.namesrv
        settings = {
            **self._listens("namesrv", NAMESRV_PORT, NAMESRV_ADMIN_PORT, overrides),
            "kvConfigPath": str(self.folder / "namesrv" / "kvConfig.json"),
            **(overrides or {}),
        }
        return self._start("namesrv", "kourou_namesrv", settings)

    def _start_broker(self, number: int) -> Child:
        suffix = chr(ord("a") + number)
        settings = {
            **self._of_broker(suffix, f"broker-{suffix}", self.store_folder(number), number),
            **self._cores_of_broker(),
            **(self.settings.broker or {}),
        }
        return self._start(settings["brokerName"], "kourou_broker", settings, "-n", self.address)

    def start_broker(self, number: int) -> Child:
        """Start (or restart, on the same store) the broker of that number."""
        return _put(self._start_broker(number), self.brokers, number)

    def _cores_of_broker(self) -> Mapping[str, str]:
        """Pin a broker to the core without filters, if filters could otherwise use every core."""
        there, per_broker = os.sched_getaffinity(0), 1 + self.settings.filter_servers
        if per_broker == 1 or not 1 < len(there) < 1 + self.settings.brokers * per_broker:
            return {}
        return {"processCores": ",".join(map(str, sorted(cores_left(there))))}

    def start_member(self, group: int, index: int) -> Child:
        """Start (or restart, on the same store) a Raft group's node of that index, from 0.

        Returns when it has joined the group; `leader_of` returns the leader.
        """
        place = group * self.settings.raft + index
        return _put(self._start_raft_node(group, index), self.members, place)

    def _start_raft_node(self, group: int, index: int) -> Child:
        suffix = chr(ord("a") + group)
        overrides = self.settings.broker or {}
        name = f"{overrides.get('brokerName', f'broker-{suffix}')}-n{index}"
        place = group * self.settings.raft + index
        settings = {
            **self._of_broker(suffix, name, self.member_folder(group, index), place),
            **self._groups[group].settings(index),
            **overrides,
        }
        return self._start(name, "kourou_ha_replica", settings, "-n", self.address)

    def leader_of(self, group: int = 0) -> Child:
        """Return the leader of a group according to the name server; waits until there is one.

        Raises TimedOut if there is none in time.
        """
        size = self.settings.raft
        members = self.members[group * size : (group + 1) * size]

        def at(address: str) -> Child | None:
            """Find the process at an address.

            A process that has ended is skipped; it stays registered for a while.
            """
            places = (child for child in members if child.running and child.ready)
            return next((one for one in places if zmq_address(one) == f"tcp://{address}"), None)

        name = f"broker-{chr(ord('a') + group)}"
        name = (self.settings.broker or {}).get("brokerName", name)
        address = leader_address(
            self.address, name, lambda each: at(each) is not None, LEADER_TIMEOUT_MS
        )
        found = at(address)
        if found is None:
            raise Unavailable(f"the leader of {name} at {address} has just exited")
        return found

    def _start_replica(self, broker: int, index: int) -> Child:
        suffix, number = chr(ord("a") + broker), broker * self.settings.replicas + index
        overrides = self.settings.broker or {}
        name = f"{overrides.get('brokerName', f'broker-{suffix}')}-s{index + 1}"
        place = self.settings.brokers + number
        settings = {
            **self._of_broker(suffix, name, self.replica_folder(broker, index), place),
            **overrides,
            "brokerRole": "SLAVE",
            "brokerId": str(index + 1),
            **(self.settings.replica or {}),
        }
        return self._start(name, "kourou_ha_replica", settings, "-n", self.address)

    def start_replica_of(self, broker: int, index: int) -> Child:
        """Start (or restart, on the same store) the follower of that index, from 0.

        Its brokerId is the index plus 1.
        """
        number = broker * self.settings.replicas + index
        return _put(self._start_replica(broker, index), self.replicas, number)

    def _start_filter_server(self, broker: int, index: int) -> Child:
        number = broker * self.settings.filter_servers + index
        name = f"filter-server-{chr(ord('a') + broker)}{index}"
        overrides = self.settings.filter_server
        settings = {
            "connectWhichBroker": self._zmq[self.brokers[broker].name],
            "filterServerIndex": str(index),
            **self._listens(
                name,
                BROKER_PORT + BROKER_PORT_STEP * broker,
                FILTER_SERVER_ADMIN_PORT + number,
                overrides,
            ),
            **(overrides or {}),
        }
        return self._start(name, "kourou_filter_server", settings)

    def start_filter_server(self, broker: int, index: int) -> Child:
        """Start (or restart) the filter server of that index, from 0, of that broker.

        Raises ConfigError if the machine lacks a layer of the sandbox.
        """
        number = broker * self.settings.filter_servers + index
        return _put(self._start_filter_server(broker, index), self.filter_servers, number)

    def _start_spark_etl(self, overrides: Mapping[str, str]) -> Child:
        free = self.settings.free_ports
        settings = {
            "namesrvAddr": plain_address(self.address),
            "etlPath": str(self.folder / "spark-etl"),
            "adminPort": str(self._ports["spark-etl admin"] if free else SPARK_ETL_ADMIN_PORT),
            **overrides,
        }
        return self._start("spark-etl", "kourou_spark_etl", settings, words=("run",))

    def _start_console(self, overrides: Mapping[str, str]) -> Child:
        spark = self._pages.get("spark-etl", "")
        names = {"consolePort": "console http", "adminPort": "console admin"}
        ports = {key: str(self._ports[name]) for key, name in names.items()}
        settings = {
            "namesrvAddr": plain_address(self.address),
            **({"sparkEtlAddress": spark} if spark else {}),
            **(ports if self.settings.free_ports else {}),
            **overrides,
        }
        return self._start("console", "kourou_console", settings)

    def start_console(self, overrides: Mapping[str, str]) -> Child:
        """Start (or restart) the HTTP gateway and web console.

        Its ready file contains its address as `http`. Raises ConfigError if its port is in use.
        """
        child = self._start_console(overrides)
        child.wait_for_ready()
        self.console = child
        return child

    @property
    def dependents(self) -> list[Child]:
        """The services that the others do not depend on.

        These are replicas, Raft nodes, filter servers, the Spark pipeline and the console.
        """
        late = [one for one in (self.spark_etl, self.console) if one is not None]
        return [*self.replicas, *self.members, *self.filter_servers, *late]

    def store_folder(self, number: int) -> Path:
        """The store folder of the broker of that number."""
        return self.folder / f"store-{chr(ord('a') + number)}"

    def replica_folder(self, broker: int, index: int) -> Path:
        """The store folder of the follower of that index of that broker."""
        return self.folder / f"store-{chr(ord('a') + broker)}-s{index + 1}"

    def member_folder(self, group: int, index: int) -> Path:
        """The store folder of the node of that index of that group."""
        return self.folder / f"store-{chr(ord('a') + group)}-n{index}"

    def stop(self, grace_ms: int = STOP_GRACE_MS) -> dict[str, int]:
        """Drain and stop everything, in reverse order of start; returns exit codes by name."""
        codes = self._children.stop_all(grace_ms)
        for ports in self._groups:
            ports.release()
        self._ports.release()
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None
        return codes

    def _write(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.folder / f"{name}.conf"
        lines = [f"{key}={value}" for key, value in settings.items()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


def _put(child: Child, group: list[Child], place: int) -> Child:
    """Wait until the process is ready, then enter it into the list."""
    child.wait_for_ready()
    group[place : place + 1] = [child]
    return child


def zmq_address(child: Child) -> str:
    """Return the ZeroMQ address from a service's ready file."""
    address: Any = child.ready.get("zmq")
    if not isinstance(address, str) or not address.startswith("tcp://"):
        raise Unavailable(
            f"{child.name} is ready, but does not report a ZeroMQ address: {child.ready}"
        )
    return address


def plain_address(zmq: str) -> str:
    """Convert `tcp://127.0.0.1:19876` to the equivalent 127.0.0.1:9876, for display."""
    host, _, port = zmq.removeprefix("tcp://").rpartition(":")
    number = int(port)
    if ZMQ_PORT_SHIFT < number < 2 * ZMQ_PORT_SHIFT:
        number -= ZMQ_PORT_SHIFT
    return f"{host}:{number}"


def _locked(folder: Path) -> int:
    """Lock the folder; returns the descriptor of the lock.

    Raises ConfigError if another cluster holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited by children
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock, 32).decode("ascii", "replace").strip()
        os.close(lock)
        who = f"process {owner}" if owner.isdigit() else "another process"
        raise ConfigError(
            f"{folder} is in use: {who} runs name server and brokers there; nothing was changed",
            hint="stop it first, or use another --folder",
        ) from None
    os.ftruncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())
    return lock


# -- Raft groups -----------------------------------------------------------------------------------


LOOK_S = 0.05
ASK_MS = 1_000


class GroupPorts:
    """The replication addresses of one group, which must be known before any node listens.

    Without `listen_ports` free ports are chosen.
    """

    def __init__(self, members: int, listen_ports: Sequence[int] = ()) -> None:
        self._kept = KeptPorts()
        if listen_ports:
            from kourou.service.process_keys import REPLICATION_PORT_SHIFT

            found = [port + REPLICATION_PORT_SHIFT for port in listen_ports]
        else:
            found = [self._kept[f"n{index}"] for index in range(members)]
        self.addresses = {f"n{index}": f"{HOST}:{port}" for index, port in enumerate(found)}

    def settings(self, index: int) -> Mapping[str, str]:
        """Return the group settings of the node of that index."""
        peers = ";".join(f"{name}-{address}" for name, address in self.addresses.items())
        return {"enableDLegerCommitLog": "true", "dLegerPeers": peers, "dLegerSelfId": f"n{index}"}

    def release(self) -> None:
        """Release the ports."""
        self._kept.release()


def leader_address(
    name_server: str, broker: str, accepted: Callable[[str], bool], timeout_ms: int
) -> str:
    """Return the client address (`host:port`) of the leader of `broker`, from a name server.

    Polls until the name server returns an address that `accepted` accepts. Raises TimedOut if there
    is none in time. May be called while an event loop runs: requests use a loop on another thread.
    """
    polling = _poll_leader(name_server, broker, accepted, timeout_ms)
    with ThreadPoolExecutor(1, "leader-look") as thread:
        return thread.submit(asyncio.run, polling).result()


async def _poll_leader(
    name_server: str, broker: str, accepted: Callable[[str], bool], timeout_ms: int
) -> str:
    from kourou.protocol.bodies.route_bodies import decode_cluster_info
    from kourou.protocol.messages.namesrv import GetBrokerClusterInfo
    from kourou.transport.zmq_client import ZmqConnection

    clock = SystemClock()
    until_ms = clock.monotonic_ms() + timeout_ms
    connection = ZmqConnection(name_server)
    last_reply = "no leader"
    try:
        while True:
            try:
                reply = await connection.request(GetBrokerClusterInfo(), timeout_ms=ASK_MS)
                known = decode_cluster_info(b"".join(reply.body)).brokers.get(broker)
            except KourouError as error:
                known, last_reply = None, str(error)
            address = known.broker_addrs.get(MASTER_ID, "") if known else ""
            if address and accepted(address):
                return address
            last_reply = address or last_reply
            if clock.monotonic_ms() >= until_ms:
                raise TimedOut(
                    f"{broker} has no leader after {timeout_ms} ms",
                    hint=f"the name server names {last_reply}",
                )
            await asyncio.sleep(LOOK_S)
    finally:
        connection.close()
