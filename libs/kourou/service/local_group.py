"""A Raft group of a local cluster: where its members meet, and which of them leads.

State: soft; ports are kept from others while this process lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from kourou.clock import SystemClock
from kourou.errors import KourouError, TimedOut
from kourou.service.kept_ports import LOOPBACK, KeptPorts

LEADER = 0
"""The brokerId under which whoever leads is registered."""

LOOK_S = 0.05
ASK_MS = 1_000


class GroupPorts:
    """Where the members of one group meet: members must know that before any of them listens.

    Without `listen_ports` free ones are chosen.
    """

    def __init__(self, members: int, listen_ports: Sequence[int] = ()) -> None:
        self._kept = KeptPorts()
        if listen_ports:
            from kourou.service.replication_keys import REPLICATION_PORT_SHIFT

            found = [port + REPLICATION_PORT_SHIFT for port in listen_ports]
        else:
            found = [self._kept[f"n{index}"] for index in range(members)]
        self.addresses = {f"n{index}": f"{LOOPBACK}:{port}" for index, port in enumerate(found)}

    def settings(self, index: int) -> Mapping[str, str]:
        """What the member of that index is told of its group."""
        peers = ";".join(f"{name}-{address}" for name, address in self.addresses.items())
        return {"enableDLegerCommitLog": "true", "dLegerPeers": peers, "dLegerSelfId": f"n{index}"}

    def release(self) -> None:
        """Let others have the ports."""
        self._kept.release()


def leader_address(
    name_server: str, broker: str, accepted: Callable[[str], bool], timeout_ms: int
) -> str:
    """Where clients find the leader of the log `broker`, `host:port`, as a name server says.

    Asks again until it names one that is `accepted`; TimedOut if it does not in time. May be called
    where a loop runs: the questions are asked on another one.
    """
    looking = _look(name_server, broker, accepted, timeout_ms)
    with ThreadPoolExecutor(1, "leader-look") as thread:
        return thread.submit(asyncio.run, looking).result()


async def _look(
    name_server: str, broker: str, accepted: Callable[[str], bool], timeout_ms: int
) -> str:
    from kourou.protocol.bodies import decode_cluster_info
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
