"""Reads all messages of a topic: over the network, as an application does, or from a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou.model.message import StoredMessage
from kourou.protocol.record.message_record import decode_record
from kourou.testing.cluster import Cluster

HOLD_MS = 10_000


async def read_topic(
    mq: Client, topic: str, group: str, *, ends: Mapping[int, int] | None = None
) -> dict[tuple[int, int], ReceivedMessage]:
    """Every message from the first to the last offset of every queue, by (queue ID, offset).

    With `ends` (by queue ID) it waits until the queues have these end offsets, at most for one long
    poll. Raises the errors of pulls: UnreadableMessages for a damaged message, Unavailable,
    TimedOut.
    """
    found: dict[tuple[int, int], ReceivedMessage] = {}
    puller = await mq.pull_consumer(group)
    try:
        for queue in await puller.queues(topic):
            offset, end = await puller.min_offset(queue), await puller.max_offset(queue)
            end = max(end, (ends or {}).get(queue.queue_id, 0))
            while offset < end:
                pulled = await puller.pull(queue, offset, count_max=4_096, wait_ms=HOLD_MS)
                assert pulled.next_offset > offset, f"{queue} ends at {offset}, not at {end}"
                found.update({(queue.queue_id, one.offset): one for one in pulled.messages})
                offset = pulled.next_offset
    finally:
        await puller.close()
    return found


def stored(cluster: Cluster, topic: str) -> Iterator[StoredMessage]:
    """The messages of a topic in the store of broker-a of this process."""
    view = cluster.each()["broker-a"].store_view
    for queue_id in view.queue_ids(topic):
        offset, end = view.queue_range(topic, queue_id) or (0, 0)
        while offset < end:
            read = view.read_queue(
                topic,
                queue_id,
                offset,
                max_messages=4_096,
                max_bytes=4 << 20,
                codes=None,
                below=1 << 62,
            )
            yield from map(decode_record, read.records)
            offset = read.next_offset
