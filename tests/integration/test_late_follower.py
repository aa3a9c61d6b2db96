"""A follower whose leader has deleted the beginning of its log: it begins where that begins now.

Leader and followers run in this process, over real stores and sockets. What must be equal then is
not only the log: topics, groups, offsets, settings and epochs, and how far every queue had counted,
of which the log tells nothing any more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from kourou import Message, ProducerSettings
from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.broker.part_settings import store_settings_of
from kourou.cli.main import main
from kourou.engine.admin.log_bootstrap import next_control_offset, queue_ends_of
from kourou.engine.control import CONTROL, encode_state
from kourou.engine.policy import BrokerRole
from kourou.engine.retention import RetentionHandler
from kourou.eventstore.event_store import EventStore
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.messages.broker_admin import (
    DeleteTopicInBroker,
    UpdateAndCreateTopic,
    UpdateBrokerConfig,
)
from kourou.protocol.messages.pulls import UpdateConsumerOffset
from kourou.replication.static_follower import FollowerStep
from kourou.service.local_cluster import ClusterSettings, LocalCluster, zmq_address
from kourou.store.real_disk import RealDisk
from kourou.store.store import Store
from kourou.sync import Client
from kourou_ha_replica.app import ReplicaSettings
from kourou_rigs.served_here import ServedHere, served_here
from kourou_rigs.store import delete_before, readable
from kourou_rigs.waiting import until

SEGMENT = 64 * 1024
TIMEOUT_MS = 20_000
PATIENT = ProducerSettings(send_timeout_ms=30_000, retry_times_when_send_failed=20)
KEYS: dict[str, Any] = {
    "listen_port": 0,
    "admin_enabled": False,
    "segment_size_bytes": SEGMENT,
    "broker_name": "broker-a",
}


def leading(root: Path, role: BrokerRole = BrokerRole.ASYNC_MASTER) -> BrokerSettings:
    return BrokerSettings(store_root=root, broker_role=role, **KEYS)


def following(root: Path, leader: Running, broker_id: int = 1) -> ReplicaSettings:
    address = leader.address("replication")
    return ReplicaSettings(store_root=root, broker_id=broker_id, ha_master_address=address, **KEYS)


class Running(ServedHere):
    """One service, and a client of it."""

    @property
    def step(self) -> FollowerStep:
        return self.core.role.copying.step

    async def send(self, topic: str, number: int, size: int = 1_000) -> None:
        await self.store_one(topic, number, size)

    async def caught_up_with(self, leader: Running) -> None:
        await until(lambda: (
            self.service._renewing is None
            and self.step is FollowerStep.FOLLOWING
            and self.store.end == leader.store.end == self.store.dispatched
            and self.view.control.next_offset == leader.view.control.next_offset
        ))  # fmt: skip


def running(settings: BrokerSettings) -> AbstractAsyncContextManager[Running]:
    return served_here(BrokerService(settings), Running)


async def decide_things(leader: Running) -> None:
    """What a late follower will not find in the log."""
    for name, queues in (("orders", 4), ("idle", 2), ("gone", 1)):
        await leader.ask(
            UpdateAndCreateTopic(
                topic=name, read_queue_nums=queues, write_queue_nums=queues, perm=6
            )
        )
    await leader.send("idle", 0)
    await leader.send("idle", 1)
    await leader.send("gone", 0)
    await leader.ask(DeleteTopicInBroker(topic="gone"))
    await leader.ask(UpdateBrokerConfig(), b"maxMessageSize=1000000\n")
    for queue_id in range(2):
        await leader.ask(
            UpdateConsumerOffset(
                consumer_group="readers", topic="idle", queue_id=queue_id, commit_offset=1
            )
        )


def expire(root: Path, position: int) -> None:
    """Retention, while nobody serves."""
    store = Store.open(store_settings_of(leading(root)), RealDisk())
    delete_before(store, position)
    store.close()


def queues_of(store: Store) -> dict[tuple[str, int], object]:
    return {
        (topic, queue_id): store.queue_range(topic, queue_id)
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
    }


def assert_equal(follower: Running, leader: Running) -> None:
    assert follower.store.log_range() == leader.store.log_range()
    assert queues_of(follower.store) == queues_of(leader.store)
    mine, theirs = follower.view.control, leader.view.control
    assert mine.next_offset == theirs.next_offset
    assert encode_state(mine) == encode_state(theirs)
    first, end = leader.store.log_range()
    for at in range(first, end, SEGMENT):
        one, other = (
            (each.store.paths.segment(at)).read_bytes()[: end - at] for each in (follower, leader)
        )
        assert one == other, at


@pytest.fixture
async def leader_without_a_beginning(tmp_path: Path) -> AsyncIterator[tuple[Running, Path]]:
    """A leader whose log begins at its third segment; a copy of its first segment lies beside."""
    root, old = tmp_path / "leader", tmp_path / "old"
    async with running(leading(root)) as leader:
        await decide_things(leader)
        async with running(following(old, leader, 2)) as follower:
            await follower.caught_up_with(leader)
        for number in range(200):
            await leader.send("orders", number)
    expire(root, 2 * SEGMENT)
    async with running(leading(root)) as leader:
        assert leader.store.log_range()[0] == 2 * SEGMENT
        assert next_control_offset(queue_ends_of(leader.store)) > 5
        yield leader, old


@pytest.mark.feature("F131", "F132")
async def test_a_late_follower_has_all_that_its_leader_has(
    leader_without_a_beginning: tuple[Running, Path], tmp_path: Path
) -> None:
    leader, old = leader_without_a_beginning
    for root, broker_id in ((tmp_path / "new", 1), (old, 2)):
        async with running(following(root, leader, broker_id)) as follower:
            await follower.caught_up_with(leader)
            assert follower.view.control.topics.get("idle") is not None
            assert follower.store.queue_range("idle", 0) == (1, 1), "no message is left"
            await leader.send("orders", 7)
            await leader.send("idle", 1)
            await follower.caught_up_with(leader)
            assert_equal(follower, leader)
        async with running(following(root, leader, broker_id)) as follower:
            await follower.caught_up_with(leader)
            assert_equal(follower, leader)


async def test_without_an_answer_the_old_log_stays_and_it_asks_again(
    leader_without_a_beginning: tuple[Running, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    leader, old = leader_without_a_beginning
    with monkeypatch.context() as patch:
        patch.setattr(RetentionHandler, "deleting", True)
        async with running(following(old, leader, 2)) as follower:
            before = follower.store.log_range()
            await until(lambda: "did not return the state before" in caplog.text)
            assert follower.store.log_range() == before
            assert follower.view.control.topics.get("idle") is not None, "it serves what it has"
            assert "the start of the log is being deleted" in caplog.text
            patch.undo()
            await follower.caught_up_with(leader)
            assert_equal(follower, leader)
    assert "is discarded and restarts at 131072" in caplog.text


async def test_a_follower_that_began_late_may_be_promoted(
    leader_without_a_beginning: tuple[Running, Path], tmp_path: Path
) -> None:
    leader, _ = leader_without_a_beginning
    async with running(following(tmp_path / "new", leader)) as follower:
        await follower.caught_up_with(leader)
        known = follower.view.control.topics.get("idle")
    promoted = leading(tmp_path / "new", BrokerRole.SYNC_MASTER)
    async with running(promoted) as heir:
        assert heir.view.control.topics.get("idle") == known
        assert heir.view.control.progress.table["readers"]["idle"] == {0: 1, 1: 1}
        low, high = heir.store.queue_range(CONTROL_TOPIC, 0) or (0, 0)
        assert 0 < low < high


def test_a_member_of_a_group_begins_late(tmp_path: Path) -> None:
    """Two members have expired what the third one, which lost its disk, would need."""
    keys = {"mappedFileSizeCommitLog": str(SEGMENT), "adminEnable": "false"}
    with LocalCluster(tmp_path, ClusterSettings(raft=3, broker=keys)) as cluster:
        with Client(cluster.address, group="p", producer=PATIENT) as client:
            client.admin.topics.create("idle", queues=2)
            client.send("idle", b"only once")
            client.send_many([Message("orders", bytes(1_000)) for _ in range(300)])
        for member in cluster.members:
            member.kill()
        for index in range(2):
            expire(cluster.member_folder(0, index), 2 * SEGMENT)
        shutil.rmtree(cluster.member_folder(0, 2))
        started = [cluster._start_raft_node(0, index) for index in range(3)]
        for index, child in enumerate(started):
            child.wait_for_ready()
            cluster.members[index] = child
        cluster.leader_of(0)
        with Client(cluster.address, group="p", producer=PATIENT) as client:
            client.send("orders", b"the last one")

            def whole() -> bool:
                view = [one.view for one in client.admin.replicas.of("broker-a")]
                known = {(one.first, one.end) for one in view if one is not None}
                return len(view) == 3 and None not in view and len(known) == 1

            deadline = time.monotonic() + 60
            while not whole():
                assert time.monotonic() < deadline, client.admin.replicas.of("broker-a")
        # A backup of a member that follows.
        to = tmp_path / "backup"
        asked = ("--address", zmq_address(cluster.members[2]).removeprefix("tcp://"))
        assert main(("backup", "-b", "broker-a", "--to", str(to), *asked)) == 0
        assert main(("restore", "--from", str(to), "--to", str(tmp_path / "restored"))) == 0
        cluster.stop()
        settings = store_settings_of(leading(cluster.member_folder(0, 2)))
        with (
            closing(Store.open(settings, RealDisk())) as late,
            closing(EventStore.at(late.paths.kourou / "events.db")) as events,
        ):
            control, _ = events.load(CONTROL)
            assert control.topics.get("idle") is not None
            assert sum(late.queue_range("idle", queue_id)[1] for queue_id in range(2)
                       if late.queue_range("idle", queue_id)) == 1  # fmt: skip
            found = readable(late, "orders", 16)
        assert len(found) > 100
        with closing(
            Store.open(store_settings_of(leading(tmp_path / "restored")), RealDisk())
        ) as store:
            assert readable(store, "orders", 16) == found
