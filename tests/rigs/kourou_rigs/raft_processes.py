"""A Raft group of real processes on loopback addresses, whose connections a test controls.

    async with RaftProcesses(folder) as group:
        name = await group.leader()
        group.isolate(name)                    from other members; clients still reach it
        await group.kill(name)                 SIGKILL
        group.heal()
        await group.start(name)

Every member listens on its own address (127.0.0.11 and so on). Other members reach it through a
proxy, one for each direction of each pair. Clients also use a proxy, whose address the name server
returns. Each connection can thus be cut, in one or both directions, without changes to the system's
network.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from kourou.engine.ports import JOINING
from kourou.errors import Code, KourouError
from kourou.protocol.bodies.broker_bodies import ReplicasView, decode_replicas
from kourou.protocol.messages.replication import GetReplicas, TransferLeader
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child, free_port
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.ailing_member import MODULE, Orders, give_orders
from kourou_rigs.history_rules import Opening
from kourou_rigs.tcp_proxy import TcpProxy

T = TypeVar("T")

BROKER = "broker-a"
ASK_MS = 300
LOOK_S = 0.02
END_S = 20.0
_LEADS = re.compile(r"epoch (\d+): this replica is now leader")

SMALL = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "adminEnable": "false",
    "tcpEnable": "false",
    "cleanFileForciblyEnable": "false",
}
"""Small files that a test can fill, and no admin pages. A full disk does not delete files, because
histories are compared from offset 0 on.
"""


class RaftProcesses:
    """A name server and `members` members, n0 and so on; use it as a context manager."""

    def __init__(self, folder: Path, *, members: int = 3, **settings: str) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(members)]
        self.children: dict[str, Child] = {}
        self.stopped: set[str] = set()
        self.between: dict[tuple[str, str], TcpProxy] = {}
        self.clients: dict[str, TcpProxy] = {}
        self._settings = settings
        self._hosts = {name: f"127.0.0.{11 + at}" for at, name in enumerate(self.names)}
        self._ports: dict[str, tuple[int, int]] = {}
        # Child processes end with the thread that started them, so this one lives as long as they
        # do.
        self._executor = ThreadPoolExecutor(1, "raft-processes")
        self._cluster: LocalCluster | None = None

    # -- lifecycle --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _open(self) -> None:
        self._cluster = await self._by_hand(
            lambda: LocalCluster(self.folder, ClusterSettings(brokers=0))
        )
        for at, name in enumerate(self.names):
            host = self._hosts[name]
            wire = await TcpProxy(f"127.0.0.{111 + at}", 0, host, 0).open()
            wire.target = (host, wire.port)
            self.clients[name] = wire
            self._ports[name] = (wire.port, free_port())
        for one in self.names:
            for other in self.names:
                if one != other:
                    target = self._hosts[other], self._ports[other][1]
                    self.between[one, other] = await TcpProxy("127.0.0.1", 0, *target).open()
        for name in self.names:
            await self._launch(name)
        await asyncio.gather(*(self._ready(name) for name in self.names))

    async def close(self) -> dict[str, int]:
        """Reconnect and drain all members and stop everything; returns exit codes by name."""
        self.heal()
        codes: dict[str, int] = {}
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            codes = await self._by_hand(cluster.stop)
        self._executor.shutdown()
        await asyncio.gather(
            *(wire.close() for wire in (*self.between.values(), *self.clients.values()))
        )
        return codes

    async def _by_hand(self, does: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, does)

    @property
    def address(self) -> str:
        """The name server's address, for clients."""
        assert self._cluster is not None
        return self._cluster.address

    # -- members ----------------------------------------------------------------------------------

    def store(self, name: str) -> Path:
        """The folder of a member's store."""
        return self.folder / f"store-{name}"

    def settings(self, name: str) -> dict[str, str]:
        """The settings file of a member."""
        zmq_port, members_port = self._ports[name]
        peers = {
            other: f"{self._hosts[name]}:{members_port}"
            if other == name
            else self.between[name, other].address
            for other in self.names
        }
        return {
            "brokerName": BROKER,
            "bindAddress": self._hosts[name],
            "brokerIP1": self.clients[name].host,
            "listenPort": "0",
            "zmqPort": str(zmq_port),
            "storePathRootDir": str(self.store(name)),
            "enableDLegerCommitLog": "true",
            "dLegerPeers": ";".join(f"{other}-{at}" for other, at in peers.items()),
            "dLegerSelfId": name,
            **SMALL,
            **self._settings,
        }

    async def _launch(self, name: str) -> None:
        conf = self.folder / f"{name}.conf"
        lines = [f"{key}={value}" for key, value in self.settings(name).items()]
        conf.write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert self._cluster is not None
        start = self._cluster.children.start_module
        orders = str(self._orders(name))
        self.children[name] = await self._by_hand(
            lambda: start(name, MODULE, "--orders", orders, "-c", str(conf), "-n", self.address)
        )

    async def _ready(self, name: str) -> None:
        await asyncio.to_thread(self.children[name].wait_for_ready)

    async def start(self, name: str) -> None:
        """Start a member that is down, on its store; returns when it serves clients."""
        if not self.children[name].running:
            await asyncio.gather(*(wire.open() for wire in self._wires_to(name)))
            await self._launch(name)
            await self._ready(name)

    async def kill(self, name: str) -> None:
        """Send SIGKILL; returns when it has ended and its addresses refuse connections."""
        self.stopped.discard(name)
        await asyncio.to_thread(self.children[name].kill)
        self._shut(name)

    def _shut(self, name: str) -> None:
        for wire in self._wires_to(name):
            wire.shut()

    def _wires_to(self, name: str) -> list[TcpProxy]:
        members = [wire for (_, target), wire in self.between.items() if target == name]
        return [*members, self.clients[name]]

    async def ended(self, name: str) -> int:
        """Wait until a member ends by itself; returns its exit code."""
        code = await asyncio.to_thread(self.children[name].wait_for_exit, END_S)
        assert code is not None, f"{name} still runs after {END_S} s"
        self._shut(name)
        return code

    def flip_bit(self, name: str, position: int, bit: int) -> None:
        """Flip one bit in the log of a member that is down."""
        segments = sorted((self.store(name) / "commitlog").iterdir())
        path = max(each for each in segments if int(each.name) <= position)
        with path.open("r+b") as file:
            file.seek(position - int(path.name))
            (byte,) = file.read(1)
            file.seek(position - int(path.name))
            file.write(bytes([byte ^ 1 << bit]))

    def stop(self, name: str) -> None:
        """Send SIGSTOP; its connections stay open."""
        self.stopped.add(name)
        self.children[name].signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """SIGCONT."""
        self.stopped.discard(name)
        self.children[name].signal(signal.SIGCONT)

    def order(self, name: str, orders: Orders) -> None:
        """Set the faults of its disk and clock."""
        give_orders(self._orders(name), orders)

    def _orders(self, name: str) -> Path:
        return self.folder / f"{name}.orders.json"

    # -- connections ------------------------------------------------------------------------------

    def isolate(self, name: str, *, clients: bool = False) -> None:
        """Cut a member off from all other members; with `clients`, also from clients."""
        for pair, wire in self.between.items():
            if name in pair:
                wire.hold()
        if clients:
            self.clients[name].hold()

    def cut(self, one: str, other: str) -> None:
        """Cut the connections between two members."""
        self.between[one, other].hold()
        self.between[other, one].hold()

    def mute(self, name: str) -> None:
        """Drop what a member sends to other members; it still receives."""
        self._one_way(name, says=True)

    def deafen(self, name: str) -> None:
        """Drop what other members send to a member; it can still send."""
        self._one_way(name, says=False)

    def _one_way(self, name: str, *, says: bool) -> None:
        for (source, target), wire in self.between.items():
            if source == name:
                wire.hold(requests=says, answers=not says)
            elif target == name:
                wire.hold(requests=not says, answers=says)

    def delay(self, ms: float) -> None:
        """Delay all traffic between members, in each direction."""
        for wire in self.between.values():
            wire.delay_ms = ms

    def flow(self) -> None:
        """End all faults of connections."""
        for wire in (*self.between.values(), *self.clients.values()):
            wire.delay_ms = 0
            wire.flow()

    def heal(self) -> None:
        """End all faults of connections, disks and clocks, and continue stopped processes.

        Killed members stay down.
        """
        self.flow()
        for name in list(self.stopped):
            self.go_on(name)
        for name in self.children:
            self.order(name, Orders())

    # -- status -----------------------------------------------------------------------------------

    async def told(self, name: str) -> ReplicasView | None:
        """The status of a member, requested without a proxy; None if it does not reply."""
        connection = ZmqConnection(f"{self._hosts[name]}:{self._ports[name][0]}")
        try:
            reply = await connection.request(GetReplicas(), timeout_ms=ASK_MS)
            return decode_replicas(b"".join(reply.body))
        except KourouError:
            return None
        finally:
            connection.close()

    async def leader(self) -> str:
        """The member that claims to lead the highest epoch; waits until there is one."""
        while True:
            living = [name for name in self.names if self.children[name].running]
            told = await asyncio.gather(
                *(self.told(name) for name in living if name not in self.stopped)
            )
            leading = [each for each in told if each is not None and each.leads]
            if leading:
                return max(leading, key=lambda each: each.epoch).member
            await asyncio.sleep(LOOK_S)

    async def voting(self, name: str) -> None:
        """Wait until a member has a vote; one with a lost disk has none at first."""
        while (told := await self.told(name)) is None or told.state == JOINING:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(LOOK_S)

    async def agreed(self) -> int:
        """Wait until all logs have the same end and are committed; returns that end."""
        while True:
            told = await asyncio.gather(*(self.told(name) for name in self.names))
            ends = {(each.epoch, each.end, each.confirmed) if each else None for each in told}
            (first, *others) = ends
            if first is not None and not others and first[1] == first[2]:
                return first[1]
            await asyncio.sleep(LOOK_S)

    def log_of(self, name: str, end: int | None = None) -> bytes:
        """A member's log up to a position, or without unwritten zeros at its end.

        Retention may have deleted its beginning.
        """
        segments = sorted((self.store(name) / "commitlog").iterdir())
        data = b"".join(path.read_bytes() for path in segments)
        return data.rstrip(b"\0") if end is None else data[: end - self.log_start(name)]

    def log_start(self, name: str) -> int:
        """The position of the first byte of that log."""
        return min(int(path.name) for path in (self.store(name) / "commitlog").iterdir())

    def led(self, name: str) -> list[Opening]:
        """The epochs that a member claimed to lead, in all its runs."""
        text = self.children[name].log_path.read_text(encoding="utf-8", errors="replace")
        return [(int(epoch), name, 0) for epoch in _LEADS.findall(text)]

    async def transfer(self, target: str = "") -> bool:
        """Transfer leadership; returns False if that is refused or there is no reply."""
        name = await self.leader()
        connection = ZmqConnection(f"{self._hosts[name]}:{self._ports[name][0]}")
        try:
            order = TransferLeader(broker_name=BROKER, target=target)
            return (await connection.request(order, timeout_ms=ASK_MS)).code == Code.SUCCESS
        except KourouError:
            return False
        finally:
            connection.close()
