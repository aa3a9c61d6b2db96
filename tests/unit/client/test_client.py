"""A client opens, closes, and says when it cannot."""

from __future__ import annotations

import pytest

from kourou import ProducerSettings, SendStatus
from kourou.client.session.io_thread import ClientClosed


async def test_a_closed_client_says_so(cluster, producing):
    mq = producing()
    with pytest.raises(ClientClosed):
        await mq.send("T", b"")
    async with mq:
        pass
    with pytest.raises(ClientClosed):
        await mq.send("T", b"")


@pytest.mark.feature("F165")
async def test_closing_waits_for_outcomes(cluster, producing):
    broker = cluster.broker()
    async with producing() as mq:
        await mq.send("T", b"first")
        futures = [await mq.send_async("T", b"x") for _ in range(5)]
    assert len(broker.stored("T")) == 6
    assert all(future.result().status is SendStatus.SEND_OK for future in futures)


@pytest.mark.feature("F005")
async def test_a_producer_joins_its_group_and_leaves_it(cluster, producing):
    broker = cluster.broker()
    async with producing() as mq:
        await mq.send("T", b"")
        await mq._client.io.run(mq._client.session.heartbeats.beat())
        assert broker.producers == {"p"}
        identity = mq.client_id
    assert (identity, "p") in broker.left


async def test_another_producer_beside_the_clients_own(cluster, producing):
    broker = cluster.broker()
    async with producing() as mq, mq.producer(ProducerSettings(producer_group="other")) as other:
        await other.send("T", b"")
        await mq.send("T", b"")
    assert [frame.producer_group for frame in broker.frames] == ["other", "p"]
