"""A consumer goes on when another member leads the broker of its queues."""

from __future__ import annotations

import asyncio

import pytest


@pytest.mark.fault
@pytest.mark.feature("F135", "F195")
async def test_consuming_goes_on_when_another_member_leads(broker, consuming, cluster, tools):
    """At the follower while nobody leads; offsets are told to the next leader again."""
    follower = cluster.follower(broker)
    await tools.fill(consuming, 8)
    inbox = tools.Inbox(16)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await tools.until(broker, lambda: len(inbox.bodies) == 8)
        await listener.commit()
        assert sum(broker.committed.values()) == 8
        io = mq._client.io
        io.loop.call_soon_threadsafe(cluster.nobody_leads, broker)
        sending = asyncio.gather(*(mq.send("T", b"%d" % n) for n in range(8, 16)))
        io.loop.call_soon_threadsafe(io.loop.call_later, 0.1, cluster.lead, follower)
        await sending
        await inbox.full.wait()
        await tools.until(follower, lambda: sum(follower.committed.values()) >= 8)
    assert sorted(map(int, inbox.bodies)) == list(range(16))
    assert sum(follower.committed.values()) == 16
