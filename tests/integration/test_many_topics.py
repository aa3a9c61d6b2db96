"""10,000 topics and the progress of 20 groups in each: what a restart has to do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.config import BrokerSettings
from kourou.clock import SystemClock
from kourou.engine.control import ControlState, evolve
from kourou.events.control_events import (
    Cause,
    Event,
    ProgressRecorded,
    TopicPut,
    decode_record_body,
)
from kourou.events.control_events import encode_record_body as event_body
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.messages.sends import SendRecords, Target
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import decode_record, encode_draft
from kourou.store.config.config_files import GROUPS, TOPICS
from kourou.store.config.config_json import GroupTable, TopicTable, encode_groups, encode_topics
from kourou.store.real_disk import RealDisk, RealFile
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou.testing.cluster_broker import MortalBroker
from kourou.testing.disk import MemoryDisk, SimFile
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.store import Draft, StoreWriter

TOPIC_COUNT, GROUP_COUNT = 10_000, 20
NAMES = [f"topic-{number:05}" for number in range(TOPIC_COUNT)]
GROUP_NAMES = [f"group-{number:02}" for number in range(GROUP_COUNT)]
FRAME = 1_000


class CountingMemory(MemoryDisk):
    """Counts the files that are opened."""

    opened = 0

    def open(self, path: Path, **how: Any) -> SimFile:
        self.opened += 1
        return super().open(path, **how)


class CountingDisk(RealDisk):
    """The same for the machine's own files."""

    opened = 0

    def open(self, path: Path, **how: Any) -> RealFile:
        self.opened += 1
        return super().open(path, **how)


def filled(store: Store) -> None:
    """The decisions that made the topics and the groups' progress, and one message a topic."""
    events: list[Event] = [TopicPut(TopicConfig(name, 1, 1)) for name in NAMES]
    events += [ProgressRecorded(group, {name: {0: 1} for name in NAMES}) for group in GROUP_NAMES]
    writer, cause = StoreWriter(store), Cause("test")
    writer.write([Draft(CONTROL_TOPIC, 0, event_body(one, at_ms=1, cause=cause)) for one in events])
    for at in range(0, TOPIC_COUNT, FRAME):
        writer.write([Draft(name, 0, b"x") for name in NAMES[at : at + FRAME]])


def control_of(store: Store) -> ControlState:
    """What a broker knows when it has read its decisions back."""
    control = ControlState()
    low, high = store.queue_range(CONTROL_TOPIC, 0) or (0, 0)
    while low < high:
        read = store.read_queue(
            CONTROL_TOPIC, 0, low, max_messages=1_000, max_bytes=64 << 20, codes=None,
            below=store.end,
        )  # fmt: skip
        for record in read.records:
            stored = decode_record(record)
            recorded = decode_record_body(
                stored.body, offset=stored.offset, position=stored.position
            )
            evolve(control, recorded)
        low = read.next_offset
    return control


@pytest.mark.timeout(300)
@pytest.mark.feature("F055")
def test_a_restart_opens_few_files_and_walks_no_record_twice() -> None:
    disk = CountingMemory()
    root = Path("/store")
    settings = StoreSettings(
        root=root, segment_size_bytes=16 << 20, queue_file_units=20, index_enabled=False
    )
    store = Store.open(settings, disk)
    filled(store)
    records = TOPIC_COUNT + TOPIC_COUNT + GROUP_COUNT
    store.close()

    disk.opened = 0
    store = Store.open(settings, disk)
    report = store.report
    assert (report.records_walked, report.records_dispatched, report.rebuilt) == (0, 0, False)
    control_files = (TOPIC_COUNT + GROUP_COUNT) // settings.queue_file_units
    assert disk.opened <= TOPIC_COUNT + control_files + 50, "no file is opened twice"
    assert [store.queue_range(name, 0) for name in NAMES] == [(0, 1)] * TOPIC_COUNT
    control = control_of(store)
    assert len(control.topics) == TOPIC_COUNT
    offsets = [control.progress.offset(group, name, 0) for group in GROUP_NAMES for name in NAMES]
    assert offsets == [1] * (TOPIC_COUNT * GROUP_COUNT)

    # Killed: what came after the last checkpoint is walked, and that once.
    store.checkpoint()
    StoreWriter(store).write([Draft(name, 0, b"y") for name in NAMES[:FRAME]])
    after = CountingMemory()
    after.take_over(disk.kill())
    again = Store.open(settings, after)
    assert again.report.records_walked <= records + FRAME
    assert again.report.records_walked >= FRAME
    assert [again.queue_range(name, 0) for name in NAMES[:FRAME]] == [(0, 2)] * FRAME
    again.close()


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
        assert set(names) <= set(broker.parts.control.topics.table)
        if life == 0:
            await _sent(address, names)
            for group in GROUP_NAMES:
                for name in names:
                    broker.parts.commits.commit(group, name, 0, 1)
            control = (0, broker.store.queue_range(CONTROL_TOPIC, 0)[1] + GROUP_COUNT)
        else:
            report = broker.store.report
            assert report.records_walked == report.records_dispatched == 0
            assert not report.rebuilt
            assert disk.opened <= topic_count + 50, "no file is opened twice"
            assert broker.store.queue_range(CONTROL_TOPIC, 0) == control, "a start records nothing"
            assert [broker.store.queue_range(name, 0) for name in names] == [(0, 1)] * topic_count
            progress = broker.parts.control.progress
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
