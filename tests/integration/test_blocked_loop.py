"""A handler that blocks the event loop for longer than a broker waits costs no queue."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou import Client, ClientSettings, ConsumerSettings, ReceivedMessage, sync
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.local_cluster import ClusterSettings, LocalCluster


@pytest.mark.slow
@pytest.mark.fault
async def test_the_group_keeps_its_member_and_the_message_is_handled_once(tmp_path: Path) -> None:
    settings = ConsumerSettings(
        consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    calls: list[bytes] = []
    done = asyncio.Event()

    with LocalCluster(tmp_path, ClusterSettings()) as cluster:
        looker = sync.Client(cluster.address)

        def connections() -> dict[str, str]:
            found = looker.admin.groups.connections("g").connections
            return {one.client_addr: one.client_id for one in found}

        async def handler(message: ReceivedMessage) -> None:
            calls.append(message.raw_body)
            if message.raw_body == b"x":
                [(own, name)] = connections().items()
                now = {own: name}
                while own in now:  # until the broker has closed the silent connection
                    now = connections()
                    assert set(now.values()) == {name}
            else:
                done.set()

        with looker:
            quick = ClientSettings(persist_consumer_offset_interval_ms=100)
            async with Client(cluster.address, settings=quick, consumer=settings) as mq:
                await mq.admin.topics.create("t", queues=1)
                async with mq.listen("t", handler):
                    await mq.send("t", b"x")
                    await mq.send("t", b"y")
                    await done.wait()
                    # Until it is connected again, and has committed.
                    while await asyncio.to_thread(looker.admin.offsets.lag, "g", "t"):  # noqa: ASYNC110
                        await asyncio.sleep(0)
        assert calls == [b"x", b"y"]
