"""10,000 topics and the progress of 20 groups in each: what a restart has to do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.config import BrokerSettings
from kourou.clock import SystemClock
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.messages.sends import SendRecords, Target
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou.store.config.config_files import (
    GROUPS,
    TOPICS,
    GroupTable,
    TopicTable,
    encode_groups,
    encode_topics,
)
from kourou.store.real_disk import RealDisk, RealFile
from kourou.testing.cluster_broker import MortalBroker
from kourou.transport.zmq_client import ZmqConnection

TOPIC_COUNT, GROUP_COUNT = 10_000, 20
NAMES = [f"topic-{number:05}" for number in range(TOPIC_COUNT)]
GROUP_NAMES = [f"group-{number:02}" for number in range(GROUP_COUNT)]
FRAME = 1_000


class CountingDisk(RealDisk):
    """Counts the files that are opened."""

    opened = 0

    def open(self, path: Path, **how: Any) -> RealFile:
        self.opened += 1
        return super().open(path, **how)


@pytest.mark.timeout(1_200)
@pytest.mark.feature("F055")
@pytest.mark.parametrize(
    "topic_count", [TOPIC_COUNT // 10, pytest.param(TOPIC_COUNT, marks=pytest.mark.slow)]
)
async def test_a_broker_with_many_topics_restarts(
    tmp_path: Path, record_property: Any, topic_count: int
) -> None:
    """On real files. What a start does is bounded; its seconds are printed."""
    names = NAMES[:topic_count]
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    version = DataVersion(1, 1)
    topics = TopicTable({name: TopicConfig(name, 1, 1) for name in names}, version)
    groups = GroupTable({name: GroupConfig(name) for name in GROUP_NAMES}, version)
    (root / "config" / TOPICS).write_bytes(encode_topics(topics))
    (root / "config" / GROUPS).write_bytes(encode_groups(groups))
    for life in range(3):
        settings = BrokerSettings(
            store_root=root, listen_port=0, replication_port=0, admin_enabled=False,
            segment_size_bytes=16 << 20,
        )  # fmt: skip
        failures: list[BaseException] = []
        begun = time.monotonic()
        disk = CountingDisk()
        broker = MortalBroker(settings, SystemClock(), disk, [], lambda: None)
        await broker.recover(failures.append)
        address = (await broker.serve())["zmq"].removeprefix("tcp://")
        seconds = time.monotonic() - begun
        record_property(f"start {life}", seconds)
        print(f"\nstart {life} with {topic_count} topics: {seconds:.1f} s")  # noqa: T201 - a result
        assert set(names) <= set(broker.view.control.topics.table)
        if life == 0:
            await _sent(address, names)
            for group in GROUP_NAMES:
                for name in names:
                    broker.view.commits.commit(group, name, 0, 1)
            control = (0, broker.store.queue_range(CONTROL_TOPIC, 0)[1] + GROUP_COUNT)
        else:
            report = broker.store.report
            assert report.records_walked == report.records_dispatched == 0
            assert not report.rebuilt
            assert disk.opened <= topic_count + 50, "no file is opened twice"
            assert broker.store.queue_range(CONTROL_TOPIC, 0) == control, "a start records nothing"
            assert [broker.store.queue_range(name, 0) for name in names] == [(0, 1)] * topic_count
            progress = broker.view.control.progress
            assert {progress.offset(group, name, 0) for group in GROUP_NAMES for name in names} == {
                1
            }
        if life == 1:
            await broker.die()
        else:
            await broker.drain()
            await broker.stop()
        assert failures == []


async def _sent(address: str, topics: Sequence[str]) -> None:
    """One message to each topic, a thousand in a frame."""
    connection = ZmqConnection(address)
    host = encode_host(("127.0.0.1", 1))
    for at in range(0, len(topics), FRAME):
        names = topics[at : at + FRAME]
        drafts = [
            encode_draft(
                topic=name.encode(), queue_id=0, body=b"x", properties=b"", born_timestamp=1,
                born_host=host,
            )
            for name in names
        ]  # fmt: skip
        request = SendRecords(
            targets=[Target(name, 0) for name in names],
            target_of=b"".join(number.to_bytes(2, "little") for number in range(len(names))),
            sizes=b"".join(len(draft).to_bytes(4, "little") for draft in drafts),
            producer_group="p",
        )
        reply = await connection.request(request, body=(b"".join(drafts),), timeout_ms=60_000)
        assert reply.code == 0, reply.remark
    connection.close()
