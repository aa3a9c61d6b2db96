"""One queue: pulls pause at the limits, and go on where a broker says."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.settings import CorruptPolicy
from kourou.errors import Code
from kourou.model.subscription import ConsumeFromWhere
from kourou.protocol.messages.pulling import PullMessage, PullResponse
from kourou.testing.wire_broker import Answer

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@pytest.mark.feature("F199", "F310", "F311")
async def test_full_windows_pause_the_pulls(broker, consuming, cluster, tools):
    cluster.topics["T"] = (1, 1)
    await tools.fill(consuming, 50)
    gate, started, inbox = asyncio.Event(), asyncio.Event(), tools.Inbox(50)

    async def handler(message):
        started.set()
        await gate.wait()
        await inbox.handle(message)

    settings = {"pull_threshold_for_queue": 5, "consume_threads_max": 1, "consume_threads_min": 1}
    async with consuming(**settings) as mq, mq.listen("T", handler) as listener:
        await started.wait()
        await listener.commit()
        pulled = listener.counts.pulled
        assert pulled <= 10, "one pull beyond the limit at most"
        gate.set()
        await inbox.full.wait()
    assert inbox.bodies == [b"%d" % number for number in range(50)]


async def test_an_offset_below_the_queue_is_corrected(broker, consuming, caplog, tools):
    await tools.fill(consuming, 40)
    broker.min_offsets["T", 0] = 4
    broker.committed.update({("g", "T", n): 0 for n in range(4)})
    inbox = tools.Inbox(36)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        assert listener.counts.corrected == 1
    assert broker.committed["g", "T", 0] == 10
    assert "outside the queue" in caplog.text


async def test_an_offset_beyond_the_queue_is_corrected_downwards(broker, consuming, tools):
    await tools.fill(consuming, 4)
    broker.committed["g", "T", 0] = 99
    inbox = tools.Inbox(3)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        await tools.until(broker, lambda: listener.counts.corrected == 1)
    assert broker.committed["g", "T", 0] == 1


@pytest.mark.fault
@pytest.mark.parametrize("policy", list(CorruptPolicy))
async def test_unreadable_messages(broker, consuming, caplog, policy, cluster, tools):
    cluster.topics["T"] = (1, 1)
    await tools.fill(consuming, 6)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def damaged(request):
        if not isinstance(request, PullMessage) or request.queue_offset >= 3:
            return None
        loop.call_soon_threadsafe(asked.set)
        place = PullResponse(
            suggest_which_broker_id=0, next_begin_offset=3, min_offset=0, max_offset=6
        )
        return Answer(Code.MESSAGE_CORRUPT, place, remark="unreadable offsets: 0, 1, 2")

    broker.intercept = damaged
    inbox = tools.Inbox(3)
    settings = {"on_corrupt": policy, "pull_pause_ms_when_exception": 5}
    async with consuming(**settings) as mq, mq.listen("T", inbox.handle) as listener:
        await asked.wait()
        if policy is CorruptPolicy.SKIP:
            await inbox.full.wait()
            assert listener.counts.unreadable == 1
    assert "unreadable offsets: 0, 1, 2" in caplog.text
    assert broker.committed["g", "T", 0] == (6 if policy is CorruptPolicy.SKIP else 0)
