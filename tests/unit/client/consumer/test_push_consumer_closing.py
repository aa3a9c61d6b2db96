"""A consumer that closes finishes what runs, commits it, and waits for nobody who is gone."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.session.connections import HURRIED_MS
from kourou.protocol.messages.groups import UnregisterClient
from kourou.protocol.messages.pulls import UpdateConsumerOffset


async def test_closing_finishes_running_handlers(broker, consuming, tools):
    await tools.fill(consuming, 1)
    started, gate, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(_message):
        started.set()
        await gate.wait()
        finished.set()

    async with consuming() as mq:
        listener = await mq.listen("T", handler).start()
        await started.wait()
        closing = asyncio.ensure_future(listener.close())
        await asyncio.sleep(0)
        gate.set()
        await closing
    assert finished.is_set()
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 1


async def test_closing_does_not_wait_for_ever(broker, consuming, caplog, tools):
    await tools.fill(consuming, 1)
    started, gate = asyncio.Event(), asyncio.Event()

    async def handler(_message):
        started.set()
        await gate.wait()

    async with consuming(await_termination_ms=5) as mq, mq.listen("T", handler):
        await started.wait()
    assert "ms; their messages will be redelivered" in caplog.text
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 0
    gate.set()


@pytest.mark.fault
async def test_closing_waits_for_no_broker_that_is_gone(broker, consuming, cluster, tools, caplog):
    await tools.fill(consuming, 8)
    inbox = tools.Inbox(8)
    mq = consuming()
    async with mq:
        await mq.send("T", b"last")
        async with mq.listen("T", inbox.handle) as listener:
            await inbox.full.wait()
            await tools.until(broker, lambda: listener.counts.consumed == 9)
            wires = cluster.wires_to(broker)
            cluster.down.add(broker.address)
            asked = [wire.deadlines[:] for wire in wires]
            await listener.close()
    last_words = {UpdateConsumerOffset.code, UnregisterClient.code}
    for wire, before in zip(wires, asked, strict=True):
        # A heartbeat may still be due, or a pull; closing waits for neither.
        assert not last_words & {code for code, _ in wire.deadlines[len(before) :]}
    assert "not committed at close; some messages will be redelivered" in caplog.text
    assert "not connected to" in caplog.text


async def test_what_closing_asks_of_a_broker_that_lives_has_a_short_deadline(
    broker, consuming, cluster, tools
):
    await tools.fill(consuming, 4)
    inbox = tools.Inbox(4)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        await tools.until(broker, lambda: listener.counts.consumed == 4)
        [wire] = cluster.wires_to(broker)
        before = len(wire.deadlines)
        await listener.close()
        asked = dict(wire.deadlines[before:])
    assert asked[UpdateConsumerOffset.code] == asked[UnregisterClient.code] == HURRIED_MS
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 4
