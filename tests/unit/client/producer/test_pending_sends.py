"""Messages cross once a turn, and outcomes once a reply."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.producer.drafts import DraftDestination
from kourou.client.producer.pending_sends import (
    LoopPort,
    PendingSend,
    SendTarget,
    Terms,
)
from kourou.model.message import SendResult, SendStatus
from kourou.model.topic import MessageQueue

QUEUE = MessageQueue("T", "b", 0)
TARGET = SendTarget(QUEUE, "a:1", DraftDestination(b"T", 0, "c"), Terms(1_000, 3))
RESULT = SendResult(SendStatus.SEND_OK, "id", QUEUE, 7)


class Outgoing:
    """The near end of a handover."""

    def __init__(self) -> None:
        self.bursts: list[list[PendingSend]] = []

    def put(self, burst):
        self.bursts.append(burst)
        return True


def pending_send(port, waiter=None, size=10):
    return PendingSend(bytes(size), "id", TARGET, port, waiter, 0)


def loop_port(outgoing, count_max=100, size_bytes_max=10_000):
    return LoopPort(
        asyncio.get_running_loop(),
        outgoing.put,
        here=False,
        count_max=count_max,
        size_bytes_max=size_bytes_max,
    )


@pytest.mark.parametrize("limits", [{"count_max": 2}, {"size_bytes_max": 20}])
async def test_a_full_port_makes_senders_wait_in_their_order(limits):
    port = loop_port(Outgoing(), **limits)
    port.add(pending_send(port))
    port.add(pending_send(port))
    assert port.full
    order = []

    async def send(number):
        await port.room()
        order.append(number)
        port.add(pending_send(port))

    tasks = [asyncio.ensure_future(send(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert order == []
    port.deliver([(pending_send(port), RESULT)])
    await tasks[0]
    assert order == [0]
    tasks[1].cancel()
    port.deliver([(pending_send(port), RESULT)] * 2)
    await tasks[2]
    assert order == [0, 2], "a sender that gave up takes no room"
