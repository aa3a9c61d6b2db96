"""The Raft group of a local cluster: the addresses of its nodes, and how to find its leader.

State: soft; ports stay reserved while this process lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from kourou.clock import SystemClock
from kourou.errors import KourouError, TimedOut
from kourou.service.kept_ports import LOOPBACK, KeptPorts

LEADER = 0
"""The brokerId under which the leader is registered."""

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
        self.addresses = {f"n{index}": f"{LOOPBACK}:{port}" for index, port in enumerate(found)}

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
    looking = _look(name_server, broker, accepted, timeout_ms)
    with ThreadPoolExecutor(1, "leader-look") as thread:
        return thread.submit(asyncio.run, looking).result()


async def _look(
    name_server: str, broker: str, accepted: Callable[[str], bool], timeout_ms: int
) -> str:
    from kourou.protocol.all_bodies import decode_cluster_info
    from kourou.protocol.messages.namesrv import GetBrokerClusterInfo
    from kourou.transport.zmq_client import ZmqConnection

    clock = SystemClock()
    until_ms = clock.monotonic_ms() + timeout_ms
    connection = ZmqConnection(name_server)
    told = "no leader"
    try:
        while True:
            try:
                reply = await connection.request(GetBrokerClusterInfo(), timeout_ms=ASK_MS)
                known = decode_cluster_info(b"".join(reply.body)).brokers.get(broker)
            except KourouError as error:
                known, told = None, str(error)
            address = known.broker_addrs.get(LEADER, "") if known else ""
            if address and accepted(address):
                return address
            told = address or told
            if clock.monotonic_ms() >= until_ms:
                raise TimedOut(
                    f"{broker} has no leader after {timeout_ms} ms",
                    hint=f"the name server names {told}",
                )
            await asyncio.sleep(LOOK_S)
    finally:
        connection.close()
