"""Servers of one replicated log, for `kourou bench replication` and `catch-up`.

RocketMQ's slave is configured with its master's address, because it would find it through the name
server only after a while. That it replicates is visible without a request: its log has a file
starting at the first byte, and a SYNC_MASTER replies SEND_OK only when it has a slave.

State: soft.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kourou.client.client import Client
from kourou.errors import TimedOut, Unavailable
from kourou.protocol.bodies.broker_bodies import ReplicasView
from kourou.service.local_cluster import HOST, ClusterSettings, LocalCluster
from kourou.service.processes import Child, Children, free_port
from kourou_bench.driving import DriverOptions
from kourou_bench.replication import SYNC, Lag, Setup, lag_of
from kourou_bench.rocketmq import FAST_PORT_SHIFT, TIMEOUTS, RocketMq, started
from kourou_bench.rows import Name
from kourou_bench.session import ready_driver
from kourou_bench.systems import FLUSH_TYPES, Kourou, complaint

FOLLOWS_WITHIN_S = 60.0
POLL_S = 0.02
SAMPLE_S = 0.1
HA_PORT_SHIFT = 1
"""RocketMQ's master listens for slaves at this distance from its port, whatever haListenPort is."""

Driver = Callable[[DriverOptions], list[str]]


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a log. `watched`: these are Kourou's, which report replication lag."""

    address: str
    leader: int
    followers: tuple[int, ...]
    driver: Driver
    watched: bool


@contextmanager
def serving(setup: Setup, folder: Path, rocketmq: RocketMq | None) -> Iterator[Servers]:
    """Start the setup's servers and wait until all followers replicate, else raise KourouError."""
    if setup.system is Name.ROCKETMQ:
        assert rocketmq is not None
        with _rocketmq(setup, folder, rocketmq) as servers:
            yield servers
        return
    with LocalCluster(folder, cluster_settings(setup)) as cluster:
        leader = cluster.leader_of() if setup.raft else cluster.brokers[0]
        asyncio.run(until_following(cluster.address, setup))
        others = [one.pid for one in (*cluster.members, *cluster.replicas) if one is not leader]
        yield Servers(
            cluster.address, leader.pid, tuple(others), Kourou().driver, bool(setup.followers)
        )


def cluster_settings(setup: Setup, more: Mapping[str, str] | None = None) -> ClusterSettings:
    """Settings of Kourou's servers; `more` are additional settings of every broker."""
    if setup.raft:
        return ClusterSettings(raft=setup.raft, broker=more)
    broker = {"brokerRole": setup.role, "flushDiskType": FLUSH_TYPES[setup.flush], **(more or {})}
    return ClusterSettings(replicas=setup.followers, broker=broker)


# -- Kourou's --------------------------------------------------------------------------------------
async def leader_of(client: Client) -> ReplicasView | None:
    """The status of the leader of the only log; None while no leader is known."""
    members = await client.admin.replicas.of()
    return next((one.view for one in members if one.view is not None and one.view.leads), None)


async def until_following(address: str, setup: Setup) -> None:
    """Wait until all followers replicate and, for SYNC_MASTER, are in sync, else raise TimedOut."""

    def follow(view: ReplicasView) -> bool:
        ready = [one for one in view.followers if one.state == "REPLICATE"]
        counting = [one for one in ready if one.in_sync or setup.role != SYNC]
        return len(counting) == setup.followers

    async with Client(address) as client:
        await _until(client, follow, f"the followers do not follow ({setup.name})")


async def until_level(address: str) -> None:
    """Wait until followers have everything that the leader has; raises TimedOut if they do not."""
    async with Client(address) as client:
        await _until(
            client, lambda view: not any(one.lag_bytes for one in view.followers), "not level"
        )


async def _until(client: Client, wanted: Callable[[ReplicasView], bool], complaint: str) -> None:
    until = time.monotonic() + FOLLOWS_WITHIN_S
    while time.monotonic() < until:
        view = await leader_of(client)
        if view is not None and wanted(view):
            return
        await asyncio.sleep(POLL_S)
    raise TimedOut(f"{complaint} after {FOLLOWS_WITHIN_S:g} s")


async def sampled(address: str, over: asyncio.Event) -> list[Lag]:
    """The lag of the slowest follower, sampled ten times a second until `over` is set."""
    found: list[Lag] = []
    async with Client(address) as client:
        while not over.is_set():
            view = await leader_of(client)
            lag = None if view is None else lag_of(view)
            if lag is not None:
                found.append(lag)
            await asyncio.sleep(SAMPLE_S)
    return found


# -- RocketMQ's ------------------------------------------------------------------------------------
@contextmanager
def _rocketmq(setup: Setup, folder: Path, rocketmq: RocketMq) -> Iterator[Servers]:
    port, master_port = free_port(), free_port(FAST_PORT_SHIFT, HA_PORT_SHIFT)
    address, flush = rocketmq.address(port), FLUSH_TYPES[setup.flush]
    both = {"flushDiskType": flush, **TIMEOUTS}
    master = {"brokerRole": setup.role, "listenPort": str(master_port), **both}
    ha_address = f"{HOST}:{master_port + HA_PORT_SHIFT}"
    slave = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": ha_address, **both}
    jars = rocketmq.class_path
    copy = folder / "slave"
    with (
        started(jars, folder / "master", port, master) as servers,
        started(jars, copy, port, slave, namesrv_address=address) as slaves,
        Children(folder) as children,
    ):
        first = DriverOptions(address=address, work="first-send")
        ready_driver(children, "first-send", rocketmq.driver(first)).measure(
            limit_s=FOLLOWS_WITHIN_S
        )
        _until_written(slaves[-1], copy / "store" / "commitlog")
        followers = tuple(one.pid for one in slaves)
        yield Servers(address, servers[-1].pid, followers, rocketmq.driver, watched=False)


def _until_written(slave: Child, log: Path) -> None:
    """Wait until the slave's log has a file; raises TimedOut if it does not get one."""
    for _ in range(int(FOLLOWS_WITHIN_S / POLL_S)):
        if log.is_dir() and any(log.iterdir()):
            return
        code = slave.wait_for_exit(POLL_S)
        if code is not None:
            raise Unavailable(f"RocketMQ's slave ended with {code}: {complaint(slave)}")
    raise TimedOut(f"RocketMQ's slave copies nothing after {FOLLOWS_WITHIN_S:g} s")
