"""Who leads a group, as a name server says; it is played here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kourou.errors import TimedOut
from kourou.protocol.bodies.route_bodies import BrokerData, ClusterInfo, encode_cluster_info
from kourou.protocol.wire.frames import encode_reply
from kourou.service.local_cluster import leader_address
from kourou.testing.cluster_thread import ClusterThread
from kourou.transport.zmq_server import Inbound, ZmqServer


class NameServer:
    """Tells, one after another, which brokers there are."""

    def __init__(self, *replies: ClusterInfo) -> None:
        self.replies = list(replies)
        self.asked = 0
        self.server = ZmqServer("127.0.0.1:0", self._asked, lambda _peer: None)

    def _asked(self, frames: list[Inbound]) -> None:
        for one in frames:
            self.asked += 1
            info = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            head = encode_reply(one.frame.correlation, 0)
            self.server.send(one.peer, (head, encode_cluster_info(info)))


def group(**addresses: str) -> ClusterInfo:
    ids = {int(name[1:]): address for name, address in addresses.items()}
    return ClusterInfo({"broker-a": BrokerData("broker-a", "c", ids)})


@pytest.fixture
def thread() -> Iterator[ClusterThread]:
    made = ClusterThread()
    yield made
    made.stop()


def run_with(thread: ClusterThread, names: NameServer, timeout_ms: int) -> str:
    async def start() -> None:
        names.server.start()

    async def close() -> None:
        names.server.close()

    thread.run(start())
    try:
        return leader_address(
            names.server.address, "broker-a", lambda address: address != "dead:1", timeout_ms
        )
    finally:
        thread.run(close())


def test_it_waits_until_one_that_is_accepted_leads(thread: ClusterThread) -> None:
    names = NameServer(ClusterInfo(), group(b2="n1:1"), group(b0="dead:1"), group(b0="n2:1"))
    assert run_with(thread, names, 60_000) == "n2:1"
    assert names.asked == 4


def test_it_says_who_is_named_instead(thread: ClusterThread) -> None:
    with pytest.raises(TimedOut, match=r"broker-a has no leader .*names dead:1"):
        run_with(thread, NameServer(group(b0="dead:1")), 0)
    with pytest.raises(TimedOut, match="names no leader"):
        run_with(thread, NameServer(group(b1="n1:1")), 0)
