"""RocketMQ's own Java client brings a filter along, in Python, over TCP; it gets what passes.

RocketMQ once compiled such uploads as Java; its servers have no filter servers any more, while its
client still knows them. So this is tried on our servers only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop import servers

from kourou.protocol.bodies.filter_bodies import decode_filter_statistics
from kourou.protocol.messages.filter_server import GetFilterStatistics
from kourou.service.local_cluster import zmq_address
from kourou.transport.zmq_client import ZmqConnection
from kourou_filter_server import zygote_link as layers


@pytest.fixture(scope="module")
def jail() -> None:
    if lacking := layers.missing():
        named = ", ".join(f"{layer.name} ({layer.detail})" for layer in lacking)
        pytest.skip(f"needs a kernel layer: {named}")


@pytest.mark.feature("F238", "F239", "F240", "F241")
async def test_the_java_client_consumes_through_a_filter_that_it_brings_along(
    jail: None, run_java: Callable[[str, str], None], tmp_path: Path
) -> None:
    with servers.kourou_cluster(tmp_path / "servers", filter_servers=2) as cluster:
        run_java(servers.tcp_address(cluster.namesrv), "class-filter")
        seen = passed = 0
        for child in cluster.filter_servers:
            server = ZmqConnection(zmq_address(child).removeprefix("tcp://"))
            reply = await server.request(GetFilterStatistics(), timeout_ms=10_000)
            server.close()
            for figures in decode_filter_statistics(b"".join(map(bytes, reply.body))):
                seen, passed = seen + figures.seen, passed + figures.passed
        assert (seen, passed) == (40, 9)
