"""What is computed from the log may be deleted between two runs of a broker: it comes back.

The event store (`kourou/events.db`), the consume queues and the key index are projections. Whoever
asks the broker before and after must be told the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kourou import Client
from kourou.eventstore.event_store import EventStore
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.testing.cluster import Cluster
from kourou_rigs.reading import read_topic

QUEUES = 3
COUNT = 200
SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 800,
    "maxHashSlotNum": 100,
    "maxIndexNum": 80,
    "maxMessageSize": 4096,
}


async def live(mq: Client) -> None:
    """Something of everything that is remembered: made, changed, deleted."""
    await mq.admin.topics.create("orders", queues=QUEUES)
    await mq.admin.topics.create("given-up", queues=1)
    await mq.admin.topics.delete("given-up")
    await mq.admin.groups.create(GroupConfig("till", retry_max_times=3))
    await mq.admin.groups.create(GroupConfig("gone"))
    await mq.admin.groups.delete("gone")
    await mq.admin.brokers.update_config("broker-a", {"autoCreateTopicEnable": "false"})
    for number in range(COUNT):
        await mq.send("orders", b"order %d" % number, tag=f"t{number % 2}", keys=f"k{number}")
    puller = await mq.pull_consumer("till")
    await puller.commit({queue: 10 + queue.queue_id for queue in await puller.queues("orders")})
    await puller.close()


async def picture(mq: Client) -> dict[str, Any]:
    """What a broker says about itself."""
    read = await read_topic(mq, "orders", "till")
    messages = {place: one.raw_body for place, one in read.items()}
    puller = await mq.pull_consumer("till")
    queues = await puller.queues("orders")
    middle = read[0, len(messages) // 6].store_timestamp
    found = {
        "messages": messages,
        "topics": {
            name: await mq.admin.topics.config(name) for name in await mq.admin.topics.list()
        },
        "groups": await mq.admin.groups.list(),
        "settings": await mq.admin.brokers.config("broker-a"),
        "committed": {queue.queue_id: await puller.committed(queue) for queue in queues},
        "by time": {queue.queue_id: await puller.offset_by_time(queue, middle) for queue in queues},
        "by key": {
            number: [
                (one.queue.queue_id, one.offset)
                for one in await mq.admin.messages.by_key("orders", f"k{number}")
            ]
            for number in range(0, COUNT, 7)
        },
        "by id": [
            (await mq.admin.messages.by_unique_key("orders", one.message_id)).raw_body
            for one in list(read.values())[::20]
        ],
    }
    await puller.close()
    # The event store follows behind, and a stop waits two seconds for it: the answer waits longer.
    await mq.admin.history.of(count_max=1)
    return found


def history(store: Path) -> list[tuple[Any, ...]]:
    """Who decided what and when, as the event store has it."""
    events = EventStore.at(store / "kourou" / "events.db")
    try:
        return [
            (one.offset, one.position, one.at_ms, one.actor, one.reason, one.event)
            for one in events.events(limit=10_000)
        ]
    finally:
        events.close()


def units(store: Path) -> dict[str, bytes]:
    """The queue files of the topic."""
    folder = store / "consumequeue" / "orders"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


DELETED = {
    "event store": ("kourou/events.db", "kourou/events.db-wal", "kourou/events.db-shm"),
    "queues and index": ("consumequeue", "index"),
    "all of them": ("kourou/events.db", "consumequeue", "index", "checkpoint", "kourou/recovery"),
}


@pytest.mark.parametrize("what", DELETED)
@pytest.mark.feature("F074")
async def test_deleted_projections_come_back(what: str, tmp_path: Path) -> None:
    store = tmp_path / "broker-a"
    before = await life_of_a_broker(tmp_path, live)
    told, queue_files = history(store), units(store)
    for name in DELETED[what]:
        path = store / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    after = await life_of_a_broker(tmp_path)
    assert len(before["messages"]) == COUNT
    assert before["committed"] == {0: 10, 1: 11, 2: 12}
    assert before["settings"]["autoCreateTopicEnable"] == "false"
    assert {"till"} == {one.name for one in before["groups"]} & {"till", "gone"}
    for name, was in before.items():
        assert after[name] == was, name
    assert units(store) == queue_files
    assert len(queue_files) > QUEUES, "queues of several files"
    assert len(told) > 10
    assert history(store)[: len(told)] == told
    assert CONTROL_TOPIC in {path.name for path in (store / "consumequeue").iterdir()}


async def life_of_a_broker(
    folder: Path, work: Callable[[Client], Awaitable[None]] | None = None
) -> dict[str, Any]:
    """Start it on its store, let it work, and stop it; what it said about itself."""
    with Cluster(folder, storage="disk", settings=SETTINGS) as cluster:
        async with Client(cluster.address, group="till") as mq:
            if work is not None:
                await work(mq)
            found = await picture(mq)
    # Each time it is somewhere else.
    elsewhere = dict.fromkeys(("listenPort", "zmqPort", "namesrvAddr"), "")
    return {**found, "settings": {**found["settings"], **elsewhere}}
