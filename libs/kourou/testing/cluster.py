"""A complete cluster in this process: a name server and brokers, on sockets of the loopback
interface.

    with Cluster(folder, brokers=2) as cluster:
        with cluster.client("checkout") as mq:
            mq.send("orders", b"...")
        cluster.chaos.kill("broker-a")

It runs the code of the real services, with a clock that can be advanced and, unless storage is
"disk", a disk in memory. Everything runs on one separate thread and starts in well under 200 ms.
Modules that only a service needs are imported when the first cluster is created.

State: soft; the messages of brokers are on their disks.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self

from kourou import Client as AsyncClient
from kourou.broker.config import BrokerSettings
from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from kourou.engine.view import CoreView
from kourou.errors import BadRequest, Unavailable
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import MASTER_ID
from kourou.protocol.bodies.route_bodies import decode_cluster_info
from kourou.protocol.messages.namesrv import GetAllTopicListFromNamesrv, GetBrokerClusterInfo
from kourou.service.local_cluster import GroupPorts
from kourou.sync import Client
from kourou.testing.chaos import Chaos
from kourou.testing.cluster_broker import ClusterBroker, ClusterFilterServer
from kourou.testing.cluster_thread import STEP_MS_MAX, ClusterClock, ClusterThread
from kourou.testing.disk import MemoryDisk
from kourou.testing.sent import AsyncSent, Ledger, Sent
from kourou.transport.zmq_client import ZmqConnection
from kourou_ha_replica.app import ReplicaSettings
from kourou_namesrv.app import NamesrvService
from kourou_namesrv.config import NamesrvSettings

BROKERS_MAX = 26
COMMIT_INTERVAL_MS = 100
"""How often consumers of these clients commit; the default is 5 s."""

TOPIC_QUEUES = 4
ELECTION_S_MAX = 20.0
"""An election takes one to two seconds; on a busy machine several may be needed."""

GROUP_STEP_MS_MAX = 100
"""The largest clock step with a Raft group; it is less than the heartbeat interval."""

SETTLE_ROUNDS = 2
SETTLE_MS_MAX = 60_000
NAME_LENGTH_MAX = 60
POLL_S = 0.02

Storage = Literal["memory", "disk"]
_numbers = count(1)


class Cluster:
    """A name server and `brokers` brokers, named broker-a, broker-b and so on.

    `settings` are broker settings with RocketMQ's names, as in broker.conf. With `storage` "disk"
    stores are files below `folder`; with "memory" there are almost no files.

    `filter_servers` is their number per broker; `filter_settings` are as in filter-server.conf.
    Filters run in the real sandbox, in separate processes; start fails on machines that lack what
    the sandbox needs.

    `replicas` is the number of followers per broker, named broker-a-s1 and so on, with the same
    settings except the role. `kourou_sent` reads from leaders.

    With `raft` every broker is a Raft group of so many members, named broker-a-n0 and so on, which
    elect their leader by the cluster's clock; `leader` returns its name.

    Use it as a context manager, or call `start` and `stop`. All methods may be called from any
    thread.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        storage: Storage = "memory",
        settings: Mapping[str, object] | None = None,
        filter_servers: int = 0,
        filter_settings: Mapping[str, object] | None = None,
        replicas: int = 0,
        raft: int = 0,
    ) -> None:
        if raft and (replicas or filter_servers):
            raise BadRequest(
                "a Raft group has neither replicas nor filter servers: take raft alone"
            )
        if not 0 < brokers <= BROKERS_MAX:
            raise BadRequest(f"a cluster for tests has 1 to {BROKERS_MAX} brokers, not {brokers}")
        self.folder = folder
        self._thread = ClusterThread()
        self.clock = ClusterClock(
            self._thread,
            self._thread.clock,
            self._settle,
            self._next_due_ms,
            GROUP_STEP_MS_MAX if raft else STEP_MS_MAX,
        )
        self.chaos = Chaos(self._thread, self, self.clock)
        # No busy polling, because clients share the cluster's thread.
        given = {"busyPollMicros": "0"}
        given |= {name: str(value) for name, value in (settings or {}).items()}
        self._raft = raft
        # The ports of each Raft group; empty without Raft.
        self._groups = [GroupPorts(raft) for _ in range(brokers if raft else 0)]
        self._names = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
        self.members: Sequence[ClusterBroker] = [
            ClusterBroker(
                name,
                folder / name,
                {**given, **own},
                self._thread.clock,
                MemoryDisk(number) if storage == "memory" else None,
                self._moved,
                ReplicaSettings if raft else BrokerSettings,
            )
            for number, (name, own) in enumerate(self._members())
        ]
        self.replicas: Sequence[ClusterBroker] = self._followers(given, replicas, storage)
        given = {name: str(value) for name, value in (filter_settings or {}).items()}
        self.filter_servers: Sequence[ClusterFilterServer] = [
            ClusterFilterServer(broker, index, given, self._thread.clock)
            for broker in self.members
            for index in range(filter_servers)
        ]
        self._namesrv: NamesrvService | None = None
        self._address = ""
        self._probe: ZmqConnection | None = None
        self._own: Client | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._stopped = False

    def _followers(
        self, given: Mapping[str, str], replicas: int, storage: Storage
    ) -> list[ClusterBroker]:
        """`replicas` followers of each broker, with its settings except the role."""
        return [
            ClusterBroker(
                name := f"{leader.name}-s{number}",
                self.folder / name,
                {
                    **given,
                    "brokerName": leader.name,
                    "brokerRole": "SLAVE",
                    "brokerId": str(number),
                },
                self._thread.clock,
                MemoryDisk(BROKERS_MAX * number + place) if storage == "memory" else None,
                self._moved,
                ReplicaSettings,
            )
            for place, leader in enumerate(self.members)
            for number in range(1, replicas + 1)
        ]

    def _members(self) -> list[tuple[str, Mapping[str, str]]]:
        """Every broker, or every member of every Raft group, with its individual settings."""
        if not self._raft:
            return [(name, {}) for name in self._names]
        return [
            (f"{name}-n{index}", {"brokerName": name, **group.settings(index)})
            for name, group in zip(self._names, self._groups, strict=True)
            for index in range(self._raft)
        ]

    # -- lifecycle --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start everything; returns when clients can connect."""
        try:
            self._thread.run(self._start())
            self._thread.register_thread(self._address)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything; only files below `folder` remain."""
        if self._stopped:
            return
        self._stopped = True
        own, self._own = self._own, None
        try:
            if own is not None:
                own.close()
            self._thread.run(self._stop())
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _start(self) -> None:
        namesrv = NamesrvService(
            NamesrvSettings(
                listen_port=0,
                admin_enabled=False,
                kv_config_path=self.folder / "namesrv" / "kvConfig.json",
            ),
            self._thread.clock,
        )
        self._namesrv = namesrv
        await namesrv.recover(_name_server_failed)
        self._address = (await namesrv.serve())["zmq"]
        self._probe = ZmqConnection(self._address, clock=self._thread.clock)
        for broker in self.everyone:  # sequentially: Alembic migrates one database at a time
            await broker.start(self._address)
        for server in self.filter_servers:
            await server.start()
        for name in self._names if self._raft else ():
            await self._led(name)

    async def _stop(self) -> None:
        async with AsyncExitStack() as ending:
            if self._namesrv is not None:
                ending.push_async_callback(self._namesrv.stop)
            for broker in self.everyone:
                ending.push_async_callback(broker.stop)
            for server in self.filter_servers:
                ending.push_async_callback(server.stop)
            if self._probe is not None:
                self._probe.close()
            for group in self._groups:
                group.release()

    async def start_broker(self, broker: ClusterBroker) -> None:
        """Start a broker that is down; on the cluster's thread. Tests use `chaos.restart`."""
        await broker.start(self._address)

    def start_filter_server(self, number: int) -> None:
        """Start the filter server `filter_servers[number]` again."""
        self._thread.run(self.filter_servers[number].start())

    def stop_filter_server(self, number: int) -> None:
        """Stop `filter_servers[number]`: it unregisters, and consumers continue without it."""
        self._thread.run(self.filter_servers[number].stop())

    # -- for tests --------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The name server's address; pass it to an application's own clients unchanged."""
        return self._address

    @property
    def brokers(self) -> list[str]:
        """The names of all brokers, as in routes and queues."""
        return list(self._names)

    def leader(self, broker: str = "broker-a") -> str:
        """The name of a Raft group's leader; waits until there is one that clients find.

        Raises Unavailable if there is none in time, BadRequest if there is no group of that name.
        """
        if not self._raft or broker not in self._names:
            raise BadRequest(f"there is no Raft group {broker!r}", hint="known: Cluster(raft=3)")
        return self._thread.run(self._led(broker))

    async def _led(self, name: str) -> str:
        if not await self.until(lambda: self._leading(name) is not None, ELECTION_S_MAX):
            raise Unavailable(f"{name} has no leader after {ELECTION_S_MAX:g} s")
        late = time.monotonic() + ELECTION_S_MAX  # real time, because timeouts are not simulated
        while time.monotonic() < late:
            leading = self._leading(name)
            if leading is not None and await self._is_registered(name, leading):
                return leading.name
            await asyncio.sleep(POLL_S)
        raise Unavailable(f"no name server knows the leader of {name} after {ELECTION_S_MAX:g} s")

    async def _is_registered(self, name: str, leading: ClusterBroker) -> bool:
        assert self._probe is not None
        reply = await self._probe.request(GetBrokerClusterInfo(), timeout_ms=SETTLE_MS_MAX)
        known = decode_cluster_info(b"".join(reply.body)).brokers.get(name)
        return (
            known is not None
            and known.broker_addrs.get(MASTER_ID) == leading.service.server.address
        )

    def _leading(self, name: str) -> ClusterBroker | None:
        """The member that considers itself leader; of several, the one with the highest epoch."""
        place = self._names.index(name) * self._raft
        found = [
            one
            for one in self.members[place : place + self._raft]
            if one.is_up and one.service.leads
        ]
        epoch = {one.name: one.service.view.control.replicas.epoch for one in found}
        return max(found, key=lambda one: epoch[one.name], default=None)

    @property
    def everyone(self) -> list[ClusterBroker]:
        """All brokers, then all their followers."""
        return [*self.members, *self.replicas]

    def is_up(self, broker: str) -> bool:
        """True if this broker or follower is running; raises BadRequest for an unknown name."""
        names = [one.name for one in self.everyone]
        if broker not in names:
            raise BadRequest(f"there is no broker {broker!r}", hint=f"known: {', '.join(names)}")
        return any(one.is_up for one in self.everyone if one.name == broker)

    def client(self, group: str = "tests", **options: Any) -> Client:
        """A `kourou.sync.Client` to be opened by `with`; `options` are the client's.

        Two defaults differ from those of applications: a new group starts at the first message, and
        offsets are committed every 100 ms.
        """
        return Client(self._address, **self._defaults(group, options))

    def async_client(self, group: str = "tests", **options: Any) -> AsyncClient:
        """A `kourou.Client` to be opened by `async with`; otherwise like `client`."""
        return AsyncClient(self._address, **self._defaults(group, options))

    def _defaults(self, group: str, options: Mapping[str, Any]) -> dict[str, Any]:
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        return {
            "settings": ClientSettings(
                persist_consumer_offset_interval_ms=COMMIT_INTERVAL_MS,
                local_offsets_dir=str(self.folder / "offsets"),
            ),
            "producer": ProducerSettings(producer_group=group),
            "consumer": ConsumerSettings(consumer_group=group, consume_from_where=first),
            **options,
        }

    def create_topic(self, topic: str | None = None, *, queues: int = TOPIC_QUEUES) -> str:
        """Create a topic with `queues` queues on every broker; the default name is unique."""
        if topic is None:
            topic = unique_name("topic")
        if self._own is None:
            self._own = self.client("kourou-testing").open()
        self._own.admin.topics.create(topic, queues=queues)
        return topic

    def sent(self) -> Sent:
        """Checks for messages that are sent from now on."""
        return Sent(self._thread, Ledger(self))

    def async_sent(self) -> AsyncSent:
        """Like `sent`, with methods to be awaited."""
        return AsyncSent(self._thread, Ledger(self))

    # -- for the rest of the kit, on the cluster's thread -----------------------------------------

    def each(self) -> Mapping[str, CoreView]:
        """The state of every broker by name; raises Unavailable if one is down or has no leader."""
        if not self._raft:
            return {one.name: one.service.view for one in self.members}
        found: dict[str, CoreView] = {}
        for name in self._names:
            leading = self._leading(name)
            if leading is None:
                raise Unavailable(f"{name} has no leader", hint="leader() waits for one")
            found[name] = leading.service.view
        return found

    def found(self) -> Mapping[str, Sequence[int]]:
        """The ends of the log that each start of a broker found, by broker name.

        Empty for Raft groups, where a restart loses no acknowledged message.
        """
        if self._raft:
            return dict.fromkeys(self._names, ())
        return {one.name: one.found for one in self.members}

    async def until(self, satisfied: Callable[[], bool], within_s: float) -> bool:
        """Wait until `satisfied`, which is evaluated after each action of a broker; False after a
        timeout.
        """
        late = time.monotonic() + within_s  # real time, because timeouts are not simulated
        while not satisfied():
            left_s = late - time.monotonic()
            if left_s <= 0:
                return False
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await asyncio.wait([waiter], timeout=left_s)
        return True

    def _next_due_ms(self) -> int | None:
        """The time at which the next delayed message of any running broker is due."""
        serving = [one.service for one in self.members if one.is_up]
        due = [one.view.next_delayed_ms for one in serving if one.leads]
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def _moved(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _settle(self) -> None:
        """Wait until all data in flight on this process's sockets has arrived.

        All sockets share one ZeroMQ thread, which serves them in turn. When a request that is sent
        now has its reply, earlier data of other sockets has arrived as well; a second request lets
        the replies to it arrive.
        """
        if self._probe is None:
            return
        for _ in range(SETTLE_ROUNDS):
            await self._probe.request(GetAllTopicListFromNamesrv(), timeout_ms=SETTLE_MS_MAX)


def unique_name(stem: str) -> str:
    """A unique name for a topic or a group that begins with `stem`."""
    legal = re.sub(r"[^a-zA-Z0-9_-]+", "-", stem).strip("-")[:NAME_LENGTH_MAX]
    return f"{legal}-{next(_numbers)}"


def _name_server_failed(error: BaseException) -> None:
    raise error
