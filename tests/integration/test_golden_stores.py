"""A broker on the stores that a real RocketMQ 4.9.8 wrote: everything is there, once.

What must be found was counted by hand in tests/golden/rocketmq-4.9.8; see its README.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou import Client
from kourou.eventstore.event_store import EventStore
from kourou.model.topic import MessageQueue
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import decode_record
from kourou.store.config.config_files import (
    decode_delays,
    decode_groups,
    decode_offsets,
    decode_topics,
)
from kourou.testing.cluster import Cluster
from kourou_rigs.reading import read_topic

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "rocketmq-4.9.8"
SEGMENT_BYTES = 16384
SETTINGS = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 100,
    "maxIndexNum": 60,
    "messageDelayLevel": "1s 2s 3s 4s 5s",
}
IMPORTED = 35
OWN = 2
"""What a first start records for itself: the topics of this broker."""

CONTROL = MessageQueue("rmq_sys_kourou_control", "broker-a", 0)
RECORDS = 29
MESSAGES = {
    "%DLQ%CG1": {0: 1},
    "%RETRY%CG1": {0: 1},
    "DefaultCluster_REPLY_TOPIC": {0: 4},
    "RMQ_SYS_TRANS_HALF_TOPIC": {0: 4},
    "SCHEDULE_TOPIC_XXXX": {0: 1, 2: 1},
    "TopicA": {0: 4, 1: 3, 2: 2, 3: 3},
    "TopicR": {0: 1, 3: 1},
}
"""By topic and queue; RMQ_SYS_TRANS_OP_HALF_TOPIC has 3 more and is no topic that clients know."""

OFFSETS = {
    "CG1": {"TopicA": {0: 4, 1: 3, 2: 2, 3: 3}, "%RETRY%CG1": {0: 1}},
    "CGO": {"TopicA": {0: 4, 1: 3, 2: 2, 3: 3}, "%RETRY%CGO": {0: 0}},
    "CGR": {"TopicR": {0: 1, 1: 0, 2: 0, 3: 1}, "%RETRY%CGR": {0: 0}},
    "CID_RMQ_SYS_TRANS": {"RMQ_SYS_TRANS_HALF_TOPIC": {0: 4}},
}


@pytest.fixture(params=["store-clean", "store-live-abort"])
def golden(request: pytest.FixtureRequest) -> Path:
    return GOLDEN / str(request.param)


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    shutil.copytree(golden, tmp_path / "broker-a")
    return tmp_path


def records(log: bytes) -> Iterator[bytes]:
    at = 0
    while size := int.from_bytes(log[at : at + 4], "big"):
        yield log[at : at + size]
        at += size


async def check_tables(mq: Client, golden: Path) -> None:
    """Topics, groups and offsets are those of the files."""
    theirs = json.loads((golden / "config" / "topics.json").read_text())["topicConfigTable"]
    assert len(theirs) == 16
    assert theirs.keys() - set(await mq.admin.topics.list()) == set()
    for name in ("TopicA", "TopicR", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "%DLQ%CG1"):
        ours = (await mq.admin.topics.config(name))["broker-a"]
        assert (ours.read_queue_nums, ours.write_queue_nums, ours.perm) == (
            theirs[name]["readQueueNums"],
            theirs[name]["writeQueueNums"],
            theirs[name]["perm"],
        )
    groups = json.loads((golden / "config" / "subscriptionGroup.json").read_text())
    assert len(groups["subscriptionGroupTable"]) == 11
    found_groups = {group.name for group in await mq.admin.groups.list()}
    assert groups["subscriptionGroupTable"].keys() - found_groups == set()
    for group, topics in OFFSETS.items():
        puller = await mq.pull_consumer(group)
        for topic, queues in topics.items():
            found = {
                number: await puller.committed(MessageQueue(topic, "broker-a", number))
                for number in queues
            }
            assert found == queues, (group, topic)
        await puller.close()


async def check_messages(mq: Client, golden: Path) -> None:
    """Every message is served byte for byte, by its queue and by its position."""
    log = (golden / "commitlog" / ("0" * 20)).read_bytes()
    by_position = {decode_record(record).position: record for record in records(log)}
    assert len(by_position) == RECORDS
    for topic, queues in MESSAGES.items():
        found = await read_topic(mq, topic, "reader")
        assert Counter(queue_id for queue_id, _ in found) == queues, topic
        for message in found.values():
            assert message.raw_body == bytes(decode_record(by_position[message.position]).body)
    for position, record in by_position.items():
        stored = decode_record(record)
        name = encode_offset_id(stored.store_host, position)
        message = await mq.admin.messages.by_offset_id(name)
        assert (message.position, message.raw_body) == (position, bytes(stored.body))
        assert message.properties == stored.properties


@pytest.mark.feature("F064", "F066", "F069", "F083")
async def test_a_store_of_rocketmq_is_taken_over_once(
    folder: Path, golden: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kourou")
    recorded = []
    for _start in range(2):
        with Cluster(folder, storage="disk", settings=SETTINGS) as cluster:
            async with Client(cluster.address, group="taker") as mq:
                puller = await mq.pull_consumer("taker")
                recorded.append(await puller.max_offset(CONTROL))
                await check_tables(mq, golden)
                await check_messages(mq, golden)
    assert re.findall(r"importing (\d+) changes", caplog.text) == [str(IMPORTED)], (
        "the first start only"
    )
    assert recorded[0] >= IMPORTED + OWN
    events = EventStore.at(folder / "broker-a" / "kourou" / "events.db")
    try:
        imported = [one for one in events.events(limit=1_000) if "imported" in one.reason]
    finally:
        events.close()
    assert [one.offset for one in imported] == list(range(IMPORTED))


@pytest.mark.feature("F061", "F083")
async def test_it_goes_on_where_rocketmq_stopped(folder: Path, golden: Path) -> None:
    """New messages stand behind theirs, and a group of theirs goes on with the first new one.

    After the stop RocketMQ's files have what they had before and what is new.
    """
    ends = MESSAGES["TopicA"]
    with Cluster(folder, storage="disk", settings=SETTINGS) as cluster:
        async with Client(cluster.address, group="till") as mq:
            for queue_id, end in ends.items():
                queue = MessageQueue("TopicA", "broker-a", queue_id)
                assert (await mq.send("TopicA", b"ours", queue=queue)).offset == end
            async with mq.subscribe("TopicA", group="CG1", auto_ack=False) as messages:
                seen = {}
                async for message in messages:
                    message.ack()
                    seen[message.queue.queue_id] = (message.offset, message.raw_body)
                    if len(seen) == len(ends):
                        break
            assert seen == {queue_id: (end, b"ours") for queue_id, end in ends.items()}
            await mq.send("TopicR", b"ours", delay_level=1)
        cluster.clock.advance(seconds=2)
    check_files(folder / "broker-a", golden)


def check_files(ours: Path, theirs: Path) -> None:
    """What RocketMQ reads when it takes the store back.

    Each queue of TopicA has one more message, and delay level 1 has delivered one more.
    """
    first = "0" * 20
    log = (theirs / "commitlog" / first).read_bytes()
    end = sum(map(len, records(log)))
    assert (ours / "commitlog" / first).read_bytes()[:end] == log[:end]
    for queue_id, offset in MESSAGES["TopicA"].items():
        units = (ours / "consumequeue" / "TopicA" / str(queue_id) / first).read_bytes()
        position, size, _ = struct.unpack_from(">qiq", units, 20 * offset)
        segment, at = position // SEGMENT_BYTES * SEGMENT_BYTES, position % SEGMENT_BYTES
        data = (ours / "commitlog" / f"{segment:020d}").read_bytes()[at : at + size]
        assert bytes(decode_record(data).body) == b"ours"
    assert not (ours / "abort").exists()

    def table(root: Path, name: str, decode: Callable[[bytes], Any]) -> Any:
        return decode((root / "config" / name).read_bytes())

    for name, decode, of in (
        ("topics.json", decode_topics, "topics"),
        ("subscriptionGroup.json", decode_groups, "groups"),
    ):
        kept, had = (getattr(table(root, name, decode), of) for root in (ours, theirs))
        assert {key: kept[key] for key in had} == had
    offsets = table(ours, "consumerOffset.json", decode_offsets)
    assert offsets["TopicA@CG1"] == {key: at + 1 for key, at in MESSAGES["TopicA"].items()}
    assert offsets["TopicA@CGO"] == MESSAGES["TopicA"]
    assert table(ours, "delayOffset.json", decode_delays) == {1: 2, 3: 1}
