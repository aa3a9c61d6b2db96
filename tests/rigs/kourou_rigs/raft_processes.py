"""A Raft group of real processes on loopback, with a wire of a test's own wherever they speak.

    async with RaftProcesses(folder) as group:
        name = await group.leader()
        group.isolate(name)                    from the other members; clients still reach it
        await group.kill(name)                 SIGKILL
        group.heal()
        await group.start(name)

Every member listens on an address of its own (127.0.0.11 and so on). The others find it at a proxy,
one for each direction of each pair, and so do clients, who are told the proxy's address by the name
server. So each wire can be cut, one way or both, without a word to the system's network.
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

from kourou.errors import Code, KourouError
from kourou.protocol.messages.replicas import GetReplicas, TransferLeader
from kourou.protocol.replicas_body import ReplicasTold, decode_replicas
from kourou.service.kept_ports import free_port
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child
from kourou.serving.standing import JOINING
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
"""Files of a size that a test fills, and nothing that only operators look at. A full disk deletes
nothing: what has been read or not is retention's affair, and histories are compared from 0 on."""


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
        # Children die with the thread that started them: this one lives as long as they may.
        self._hands = ThreadPoolExecutor(1, "raft-processes")
        self._cluster: LocalCluster | None = None

    # -- life -------------------------------------------------------------------------------------

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
        """End everything: members drain, once each can hear the others; exit codes by name."""
        self.heal()
        codes: dict[str, int] = {}
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            codes = await self._by_hand(cluster.stop)
        self._hands.shutdown()
        await asyncio.gather(
            *(wire.close() for wire in (*self.between.values(), *self.clients.values()))
        )
        return codes

    async def _by_hand(self, does: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._hands, does)

    @property
    def address(self) -> str:
        """The name server's address, for clients."""
        assert self._cluster is not None
        return self._cluster.address

    # -- members ----------------------------------------------------------------------------------

    def store(self, name: str) -> Path:
        """Where a member keeps its log."""
        return self.folder / f"store-{name}"

    def settings(self, name: str) -> dict[str, str]:
        """What a member's file says."""
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
        """Start a member that is down, on its store; returns when it serves."""
        if not self.children[name].running:
            await asyncio.gather(*(wire.open() for wire in self._wires_to(name)))
            await self._launch(name)
            await self._ready(name)

    async def kill(self, name: str) -> None:
        """SIGKILL; returns when it is gone, and whoever dials it is refused."""
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
        """Wait until a member ends by itself; its exit code."""
        code = await asyncio.to_thread(self.children[name].wait_for_exit, END_S)
        assert code is not None, f"{name} still runs after {END_S} s"
        self._shut(name)
        return code

    def flip_bit(self, name: str, position: int, bit: int) -> None:
        """One bit of the log of a member that is down is another one."""
        segments = sorted((self.store(name) / "commitlog").iterdir())
        path = max(each for each in segments if int(each.name) <= position)
        with path.open("r+b") as file:
            file.seek(position - int(path.name))
            (byte,) = file.read(1)
            file.seek(position - int(path.name))
            file.write(bytes([byte ^ 1 << bit]))

    def stop(self, name: str) -> None:
        """SIGSTOP: it does nothing any more, and its connections stand."""
        self.stopped.add(name)
        self.children[name].signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """SIGCONT."""
        self.stopped.discard(name)
        self.children[name].signal(signal.SIGCONT)

    def order(self, name: str, orders: Orders) -> None:
        """What its disk and its clock do from now on."""
        give_orders(self._orders(name), orders)

    def _orders(self, name: str) -> Path:
        return self.folder / f"{name}.orders.json"

    # -- wires ------------------------------------------------------------------------------------

    def isolate(self, name: str, *, clients: bool = False) -> None:
        """No other member hears it or is heard by it; with `clients`, nor does any client."""
        for pair, wire in self.between.items():
            if name in pair:
                wire.hold()
        if clients:
            self.clients[name].hold()

    def cut(self, one: str, other: str) -> None:
        """These two do not hear each other."""
        self.between[one, other].hold()
        self.between[other, one].hold()

    def mute(self, name: str) -> None:
        """What it says reaches no other member; it hears them all."""
        self._one_way(name, says=True)

    def deafen(self, name: str) -> None:
        """It hears no other member; they hear it."""
        self._one_way(name, says=False)

    def _one_way(self, name: str, *, says: bool) -> None:
        for (source, target), wire in self.between.items():
            if source == name:
                wire.hold(requests=says, answers=not says)
            elif target == name:
                wire.hold(requests=not says, answers=says)

    def delay(self, ms: float) -> None:
        """Everything between members is so much later, each way."""
        for wire in self.between.values():
            wire.delay_ms = ms

    def flow(self) -> None:
        """All wires are as they should be."""
        for wire in (*self.between.values(), *self.clients.values()):
            wire.delay_ms = 0
            wire.flow()

    def heal(self) -> None:
        """Wires flow, stopped processes go on, disks and clocks are well. Dead ones stay dead."""
        self.flow()
        for name in list(self.stopped):
            self.go_on(name)
        for name in self.children:
            self.order(name, Orders())

    # -- questions --------------------------------------------------------------------------------

    async def told(self, name: str) -> ReplicasTold | None:
        """What a member says of its group, asked past all wires; None if it does not answer."""
        connection = ZmqConnection(f"{self._hosts[name]}:{self._ports[name][0]}")
        try:
            reply = await connection.request(GetReplicas(), timeout_ms=ASK_MS)
            return decode_replicas(b"".join(reply.body))
        except KourouError:
            return None
        finally:
            connection.close()

    async def leader(self) -> str:
        """The member that leads the highest epoch and says so; waits until there is one."""
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
        """Wait until a member has a vote, which one that lost its disk has not at first."""
        while (told := await self.told(name)) is None or told.state == JOINING:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(LOOK_S)

    async def agreed(self) -> int:
        """Where all logs end, once they end at the same place and all of it is confirmed."""
        while True:
            told = await asyncio.gather(*(self.told(name) for name in self.names))
            ends = {(each.epoch, each.end, each.confirmed) if each else None for each in told}
            (first, *others) = ends
            if first is not None and not others and first[1] == first[2]:
                return first[1]
            await asyncio.sleep(LOOK_S)

    def log_of(self, name: str, end: int | None = None) -> bytes:
        """A member's whole log up to a position, or without the zeros that nothing was written to.

        Retention may have taken its beginning.
        """
        segments = sorted((self.store(name) / "commitlog").iterdir())
        data = b"".join(path.read_bytes() for path in segments)
        return data.rstrip(b"\0") if end is None else data[: end - self.log_start(name)]

    def log_start(self, name: str) -> int:
        """The position of that log's first byte."""
        return min(int(path.name) for path in (self.store(name) / "commitlog").iterdir())

    def led(self, name: str) -> list[Opening]:
        """The epochs that a member said it leads, in all its lives."""
        text = self.children[name].log_path.read_text(encoding="utf-8", errors="replace")
        return [(int(epoch), name, 0) for epoch in _LEADS.findall(text)]

    async def transfer(self, target: str = "") -> bool:
        """Ask the leader to let another one lead; False if it says no, or nobody knows."""
        name = await self.leader()
        connection = ZmqConnection(f"{self._hosts[name]}:{self._ports[name][0]}")
        try:
            order = TransferLeader(broker_name=BROKER, target=target)
            return (await connection.request(order, timeout_ms=ASK_MS)).code == Code.SUCCESS
        except KourouError:
            return False
        finally:
            connection.close()
