"""One queue: pulls pause at the limits, and go on where a broker says."""

from __future__ import annotations

import asyncio
import logging
import threading

import msgspec
import pytest

from kourou import Client, ClientSettings, ConsumerSettings
from kourou.client.settings import CorruptPolicy
from kourou.errors import BadRequest, Code
from kourou.model.queue import MessageQueue
from kourou.model.subscription import ConsumeFromWhere, MessageModel
from kourou.protocol.messages.pulling import PullMessage, PullResponse

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@pytest.mark.feature("F199", "F310", "F311")
async def test_full_windows_pause_the_pulls(broker, client, cluster):
    cluster.topics["T"] = (1, 1)
    await fill(client, 50)
    gate, started, inbox = asyncio.Event(), asyncio.Event(), Inbox(50)

    async def handler(message):
        started.set()
        await gate.wait()
        await inbox(message)

    settings = {"pull_threshold_for_queue": 5, "consume_threads_max": 1, "consume_threads_min": 1}
    async with client(**settings) as mq, mq.listen("T", handler) as listener:
        await started.wait()
        await listener.commit()
        pulled = listener.counts.pulled
        assert pulled <= 10, "one pull beyond the limit at most"
        gate.set()
        await inbox.full.wait()
    assert inbox.bodies == [b"%d" % number for number in range(50)]


async def test_an_offset_below_the_queue_is_corrected(broker, client, caplog):
    await fill(client, 40)
    broker.min_offsets["T", 0] = 4
    broker.committed.update({("g", "T", n): 0 for n in range(4)})
    inbox = Inbox(36)
    async with client() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        assert listener.counts.corrected == 1
    assert broker.committed["g", "T", 0] == 10
    assert "outside the queue" in caplog.text


async def test_an_offset_beyond_the_queue_is_corrected_downwards(broker, client):
    await fill(client, 4)
    broker.committed["g", "T", 0] = 99
    inbox = Inbox(3)
    async with client() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        await _until(broker, lambda: listener.counts.corrected == 1)
    assert broker.committed["g", "T", 0] == 1


@pytest.mark.fault
@pytest.mark.parametrize("policy", list(CorruptPolicy))
async def test_unreadable_messages(broker, client, fakes, caplog, policy, cluster):
    cluster.topics["T"] = (1, 1)
    await fill(client, 6)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def damaged(request):
        if not isinstance(request, PullMessage) or request.queue_offset >= 3:
            return None
        loop.call_soon_threadsafe(asked.set)
        place = PullResponse(
            suggest_which_broker_id=0, next_begin_offset=3, min_offset=0, max_offset=6
        )
        return fakes.Answer(Code.MESSAGE_CORRUPT, place, remark="unreadable offsets: 0, 1, 2")

    broker.intercept = damaged
    inbox = Inbox(3)
    settings = {"on_corrupt": policy, "pull_pause_ms_when_exception": 5}
    async with client(**settings) as mq, mq.listen("T", inbox.handle) as listener:
        await asked.wait()
        if policy is CorruptPolicy.SKIP:
            await inbox.full.wait()
            assert listener.counts.unreadable == 1
    assert "unreadable offsets: 0, 1, 2" in caplog.text
    assert broker.committed["g", "T", 0] == (6 if policy is CorruptPolicy.SKIP else 0)
