"""Servers for third-party clients: Kourou, and RocketMQ itself from its jars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from kourou.model.ports import ZMQ_PORT_SHIFT
from kourou.service.local_cluster import HOST, ClusterSettings, LocalCluster
from kourou.service.processes import Child, free_port
from kourou_bench.jars import fetched, read_list
from kourou_bench.rocketmq import FAST_PORT_SHIFT, TIMEOUTS, started
from kourou_bench.systems import wait_for_output
from kourou_rigs.key_folder import first_user, write_access_keys

SETTINGS = {
    "enablePropertyFilter": "true",
    # level 1 and whatever is retried after 1 s, level 2 after 2 s, the last one after 15 s
    "messageDelayLevel": "1s 2s" + " 1s" * 15 + " 15s",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "3",
    "traceTopicEnable": "true",
    "autoCreateTopicEnable": "true",
}
"""What both are told: the same, in RocketMQ's words."""

REGISTERED = "boot success"
"""What RocketMQ's broker prints when its name servers know it; it listens some time before."""

Server = Callable[[Path], AbstractContextManager[str]]
"""Starts in a folder, gives the address of the name server, and ends with the block."""


@contextmanager
def kourou(folder: Path) -> Iterator[str]:
    """Our name server and broker, with RocketMQ's ports."""
    with kourou_cluster(folder) as cluster:
        yield tcp_address(cluster.namesrv)


@contextmanager
def kourou_cluster(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    namesrv: Mapping[str, str] | None = None,
    brokers: int = 1,
    filter_servers: int = 0,
) -> Iterator[LocalCluster]:
    """The same, for who needs more of it than an address; with further settings of either."""
    # a port that was chosen has its neighbour for the VIP channel; port 0 would have none
    port = free_port(FAST_PORT_SHIFT, ZMQ_PORT_SHIFT)
    broker = {**SETTINGS, "listenPort": str(port), **(settings or {})}
    wanted = ClusterSettings(
        brokers=brokers, broker=broker, namesrv=namesrv, filter_servers=filter_servers
    )
    with LocalCluster(folder, wanted) as cluster:
        yield cluster


ADMINISTRATOR = ("root-administrator", "secret-of-the-root")
"""Access key and secret of the first user of a secured cluster."""


@contextmanager
def secured_cluster(
    folder: Path, *, brokers: int = 1, has_users: bool = True
) -> Iterator[LocalCluster]:
    """Our servers with access control, and one administrator.

    Without users the brokers could keep secrets, and are open to everybody.
    """
    folder.mkdir(parents=True)
    settings = {"accessKeyFile": str(write_access_keys(folder))}
    if has_users:
        settings = {"aclEnable": "true", **first_user(folder, ":".join(ADMINISTRATOR))}
    if brokers > 1:
        settings["listenPort"] = "0"  # each its own
    with kourou_cluster(folder / "cluster", settings, brokers=brokers) as cluster:
        yield cluster


def tcp_address(child: Child) -> str:
    """Where a service of ours serves RocketMQ's clients."""
    return str(child.ready["tcp"])


def rocketmq(root: Path) -> Server:
    """RocketMQ's own name server and broker, from the jars that `kourou bench --peers` uses."""

    @contextmanager
    def serve(folder: Path) -> Iterator[str]:
        with rocketmq_cluster(root, folder) as port:
            yield f"{HOST}:{port}"

    return serve


@contextmanager
def rocketmq_cluster(
    root: Path, folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[int]:
    """The same, with further settings of the broker; the name server's port."""
    port = free_port()
    broker = {**SETTINGS, **TIMEOUTS, **(settings or {})}
    with started(server_classes(root), folder, port, broker) as servers:
        wait_for_output(servers[-1], REGISTERED)
        yield port


@contextmanager
def rocketmq_broker(root: Path, folder: Path, namesrv: str) -> Iterator[Child]:
    """RocketMQ's broker alone, which registers at this name server."""
    broker = {**SETTINGS, **TIMEOUTS}
    with started(server_classes(root), folder, 0, broker, namesrv_address=namesrv) as servers:
        wait_for_output(servers[0], REGISTERED)
        yield servers[0]


def server_classes(root: Path) -> str:
    """The class path of the servers; their jars are fetched at first use."""
    listed = (root / "benchmarks" / "java" / "rocketmq.jars").read_text(encoding="utf-8")
    return f"{fetched(read_list(listed), root / '.peers')}/*"


def server_version(root: Path) -> str:
    """Of RocketMQ's broker."""
    listed = (root / "benchmarks" / "java" / "rocketmq.jars").read_text(encoding="utf-8")
    return next(jar.version for jar in read_list(listed) if jar.artifact == "rocketmq-broker")
