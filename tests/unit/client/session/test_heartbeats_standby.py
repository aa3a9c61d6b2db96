"""A consumer whose application blocks the event loop keeps its place in the group."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kourou import Client
from kourou.client.session import heartbeats
from kourou.protocol.messages.groups import HeartBeat


@pytest.fixture
def heard(broker, monkeypatch) -> threading.Event:
    """Set by each heartbeat that does not come from the test's own thread."""
    monkeypatch.setattr(heartbeats, "LOOP_CHECK_MS", 20)
    heard, here = threading.Event(), threading.get_ident()

    def intercept(request):
        if isinstance(request, HeartBeat) and threading.get_ident() != here:
            heard.set()

    broker.intercept = intercept
    return heard


@pytest.mark.fault
async def test_while_the_loop_is_blocked_a_thread_tells_brokers(
    broker, cluster, heard, tools, caplog
):
    async with Client(tools.NAMESRV, dial=cluster.dial, group="g") as mq:
        blocked = asyncio.Event()

        async def handler(message):
            broker.members["g"].clear()  # as when it finds the connection silent
            assert heard.wait(30)
            blocked.set()

        async with mq.listen("T", handler):
            await mq.send("T", b"x")
            await blocked.wait()
            [thread_wire] = broker.members["g"].values()
            assert list(broker.members["g"]) == [mq.client_id]
            assert "the event loop is blocked" in caplog.text
            await tools.until(broker, lambda: thread_wire.closed)
            # The client's own connection told before that one was closed.
            assert broker.members["g"][mq.client_id] is not thread_wire


@pytest.mark.fault
async def test_a_client_that_closes_behind_a_blocked_loop_leaves_no_connection(
    cluster, broker, heard, tools
):
    async with (
        Client(tools.NAMESRV, dial=cluster.dial, group="g") as mq,
        mq.listen("T", tools.Inbox(1).handle),
    ):
        assert heard.wait(30)
    assert all(wire.closed for wire in cluster.wires)
