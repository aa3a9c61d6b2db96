"""Another broker ran on our store between two runs of ours: what it did is found and taken over.

`OtherBroker` is that broker as far as its files go: it knows RocketMQ 4.9's layouts, packs them by
hand, shares no code with ours, and never looks into `kourou/`.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from kourou import Client
from kourou.eventstore.event_store import EventStore
from kourou.model.topic import MessageQueue
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou_rigs.reading import read_topic

SEGMENT_BYTES = 1 << 16
SETTINGS = ClusterSettings(
    broker={
        "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
        "mappedFileSizeConsumeQueue": "800",
        "maxHashSlotNum": "100",
        "maxIndexNum": "80",
    }
)
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


class OtherBroker:
    """Goes on with the store below `root` for a moment, after a clean stop of whoever had it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_ms = int(root.stat().st_mtime * 1_000) + 3_600_000
        self.places: dict[int, tuple[str, int, int]] = {}
        self.end = self._walk()

    def _segment(self, position: int) -> Path:
        return self.root / "commitlog" / f"{position // SEGMENT_BYTES * SEGMENT_BYTES:020d}"

    def _walk(self) -> int:
        """Where the log ends; notes which record lies where."""
        at = 0
        while self._segment(at).exists():
            data = self._segment(at).read_bytes()
            inside = at % SEGMENT_BYTES
            size, magic = struct.unpack_from(">II", data, inside)
            if magic == 0xCBD43194:
                at += size
                continue
            if magic != 0xDAA320A7:
                break
            queue_id, _, offset = struct.unpack_from(">iiq", data, inside + 12)
            body_size = struct.unpack_from(">i", data, inside + 84)[0]
            topic_at = inside + 88 + body_size
            topic = data[topic_at + 1 : topic_at + 1 + data[topic_at]].decode()
            self.places[at] = (topic, queue_id, offset)
            at += size
        return at

    def _queue_file(self, topic: str, queue_id: int, offset: int) -> tuple[Path, int]:
        byte = offset * 20
        folder = self.root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{byte // 800 * 800:020d}"
        if not path.exists():
            path.write_bytes(bytes(800))
        return path, byte % 800

    def store(self, topic: str, queue_id: int, body: bytes, key: str) -> int:
        """Append one message to log and queue; returns its offset."""
        owners = [place for place in self.places.values() if place[:2] == (topic, queue_id)]
        offset = max((place[2] for place in owners), default=-1) + 1
        self.now_ms += 1
        properties = b"KEYS\x01" + key.encode() + b"\x02WAIT\x01true"
        name = topic.encode()
        size = 91 + len(body) + len(name) + len(properties)
        record = b"".join(
            (
                struct.pack(">IIIii", size, 0xDAA320A7, zlib.crc32(body) & 0x7FFFFFFF, queue_id, 0),
                struct.pack(">qqiq", offset, self.end, 0, self.now_ms),
                HOST,
                struct.pack(">q", self.now_ms),
                HOST,
                struct.pack(">iqi", 0, 0, len(body)),
                body,
                bytes((len(name),)) + name,
                struct.pack(">h", len(properties)) + properties,
            )
        )
        assert len(record) == size
        with self._segment(self.end).open("r+b") as file:
            file.seek(self.end % SEGMENT_BYTES)
            file.write(record)
        path, at = self._queue_file(topic, queue_id, offset)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(struct.pack(">qiq", self.end, size, 0))
        self.places[self.end] = (topic, queue_id, offset)
        self.end += size
        return offset

    def cut(self, topic: str, count: int) -> int:
        """Forget the newest records of the log up to the `count` last of a topic; returns the end.

        As its recovery does after a damage: the positions move, bytes behind them are not erased,
        but the first header is what the damage hit.
        """
        last = sorted(at for at, place in self.places.items() if place[0] == topic)[-count]
        for at in [at for at in self.places if at >= last]:
            path, unit_at = self._queue_file(*self.places.pop(at))
            with path.open("r+b") as file:
                file.seek(unit_at)
                file.write(bytes(20))
        with self._segment(last).open("r+b") as file:
            file.seek(last % SEGMENT_BYTES)
            file.write(bytes(40))
        self.end = last
        return last

    def table(self, name: str) -> dict[str, Any]:
        text = (self.root / "config" / name).read_text()
        return json.loads(re.sub(r"([{,\s])(\d+):", r'\1"\2":', text))

    def save(self, name: str, table: dict[str, Any]) -> None:
        text = json.dumps(table, indent="\t")
        (self.root / "config" / name).write_text(re.sub(r'"(\d+)":', r"\1:", text))

    def configure(self, *, add: str, remove: str, group: str) -> None:
        """A topic comes, another goes, a group comes, and a group goes on reading."""
        topics = self.table("topics.json")
        topics["topicConfigTable"][add] = {
            "order": False,
            "perm": 6,
            "readQueueNums": 2,
            "topicFilterType": "SINGLE_TAG",
            "topicName": add,
            "topicSysFlag": 0,
            "writeQueueNums": 2,
        }
        topics["topicConfigTable"].pop(remove, None)
        topics["dataVersion"]["timestamp"] = self.now_ms
        self.save("topics.json", topics)
        groups = self.table("subscriptionGroup.json")
        some = next(iter(groups["subscriptionGroupTable"].values()))
        groups["subscriptionGroupTable"][group] = {**some, "groupName": group, "retryMaxTimes": 5}
        self.save("subscriptionGroup.json", groups)

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        table = self.table("consumerOffset.json")
        table["offsetTable"][f"{topic}@{group}"] = offsets
        self.save("consumerOffset.json", table)

    def save_checkpoint(self) -> None:
        """Every minute, and at a clean stop: the time of the last record; and delayOffset.json."""
        with (self.root / "checkpoint").open("r+b") as file:
            file.write(struct.pack(">3q", self.now_ms, self.now_ms, 0))
        (self.root / "config" / "delayOffset.json").write_text('{\n\t"offsetTable":{}\n}')

    def stop(self) -> None:
        """A clean stop: a checkpoint of its own, and no abort file."""
        self.save_checkpoint()
        (self.root / "abort").unlink(missing_ok=True)

    def die(self) -> None:
        """kill -9: all files as they are, and the abort file of a broker that runs."""
        (self.root / "abort").touch()


async def live(mq: Client) -> None:
    await mq.admin.topics.create("orders", queues=2)
    await mq.admin.topics.create("old", queues=1)
    for number in range(12):
        queue = MessageQueue("orders", "broker-a", number % 2)
        await mq.send("orders", b"ours %d" % number, queue=queue, keys=f"k{number}")
    await mq.send("old", b"gone soon")
    puller = await mq.pull_consumer("till")
    await puller.commit({MessageQueue("orders", "broker-a", 0): 2})
    await puller.close()


async def bodies(mq: Client, topic: str) -> dict[tuple[int, int], bytes]:
    return {place: one.raw_body for place, one in (await read_topic(mq, topic, "reader")).items()}


async def told(mq: Client, aggregate: str) -> list[tuple[str, Any]]:
    """(type, what was there before) of what history says was imported of another's tables."""
    page = await mq.admin.history.of(aggregate)
    imported = [one for one in page.decisions if "imported" in one.reason]
    assert {(one.actor, one.reason) for one in imported} == {
        ("broker", "imported from config/*.json of another broker")
    }
    found: list[tuple[str, Any]] = []
    for one in imported:
        before: Any = one.fields.get("before")
        if one.type == "TopicDeleted":
            before = before["write_queue_nums"]
        found.append((one.type, before))
    return found


OURS = {(n % 2, n // 2): b"ours %d" % n for n in range(12)}


@pytest.mark.feature("F066", "F069")
async def test_what_another_broker_added_is_taken_over(tmp_path: Path) -> None:
    root = tmp_path / "store-a"
    with LocalCluster(tmp_path, SETTINGS) as cluster:
        async with Client(cluster.address, group="maker") as mq:
            await live(mq)
    other = OtherBroker(root)
    assert other.store("orders", 0, b"theirs", "tk1") == 6
    assert other.store("fresh", 1, b"first", "tk2") == 0
    assert other.store("orders", 0, b"theirs too", "tk3") == 7
    other.configure(add="fresh", remove="old", group="their-group")
    shutil.rmtree(root / "consumequeue" / "old")
    other.commit("till", "orders", {0: 7, 1: 1})
    other.stop()
    for start in range(2):
        with LocalCluster(tmp_path, SETTINGS) as cluster:
            async with Client(cluster.address, group="maker") as mq:
                ours_again = {(0, 8): b"back"} if start else {}
                assert await bodies(mq, "orders") == {
                    **OURS,
                    (0, 6): b"theirs",
                    (0, 7): b"theirs too",
                    **ours_again,
                }
                assert await bodies(mq, "fresh") == {(1, 0): b"first"}
                assert ("old" in await mq.admin.topics.list()) == bool(start)
                assert (await mq.admin.topics.config("fresh"))["broker-a"].read_queue_nums == 2
                groups = {one.name: one for one in await mq.admin.groups.list()}
                assert groups["their-group"].retry_max_times == 5
                puller = await mq.pull_consumer("till")
                queues = [MessageQueue("orders", "broker-a", number) for number in (0, 1)]
                assert [await puller.committed(queue) for queue in queues] == [7, 1]
                await puller.close()
                for topic, key in (("orders", "k3"), ("orders", "tk1"), ("fresh", "tk2")):
                    (found,) = await mq.admin.messages.by_key(topic, key)
                    assert key in found.keys
                if not start:
                    sent = await mq.send("orders", b"back", queue=queues[0])
                    assert sent.offset == 8
                    await mq.admin.topics.create("old", queues=1)
                    assert (await mq.send("old", b"on")).offset == 1, "no offset is given twice"
                assert await told(mq, "topic/fresh") == [("TopicPut", None)]
                assert await told(mq, "topic/old") == [("TopicDeleted", 1)]
                assert await told(mq, "group/their-group") == [("GroupPut", None)]
                assert await told(mq, "progress/till") == [("OffsetsReset", {"0": 2, "1": None})]
            said = cluster.brokers[0].log_path.read_text()
            assert said.count("another broker wrote to the store") == 1, "the first start only"
    events = EventStore.at(root / "kourou" / "events.db")
    try:
        imported = [one for one in events.events(limit=1_000) if "imported" in one.reason]
    finally:
        events.close()
    kinds = sorted(type(one.event).__name__ for one in imported)
    assert kinds == ["GroupPut", "OffsetsReset", "TopicDeleted", "TopicPut"]


@pytest.mark.feature("F066", "F081")
async def test_what_another_broker_cut_off_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "store-a"
    with LocalCluster(tmp_path, SETTINGS) as cluster:
        async with Client(cluster.address, group="maker") as mq:
            await live(mq)
    other = OtherBroker(root)
    control = [place for place in other.places.values() if "control" in place[0]]
    other.cut("orders", 3)
    kept = {(q, n): OURS[q, n] for at, (t, q, n) in other.places.items() if t == "orders"}
    assert len(kept) == 9
    assert len(control) > sum("control" in place[0] for place in other.places.values())
    other.configure(add="fresh", remove="old", group="their-group")
    other.stop()
    with LocalCluster(tmp_path, SETTINGS) as cluster:
        async with Client(cluster.address, group="maker") as mq:
            assert await bodies(mq, "orders") == kept
            sent = await mq.send("orders", b"new", queue=MessageQueue("orders", "broker-a", 0))
            assert sent.offset == sum(queue_id == 0 for queue_id, _ in kept)
            assert "fresh" in await mq.admin.topics.list()
        said = cluster.brokers[0].log_path.read_text()
        assert "another broker wrote to the store" in said


@pytest.mark.feature("F066")
@pytest.mark.parametrize("minutes", [0, 1])
async def test_another_broker_was_killed(tmp_path: Path, minutes: int) -> None:
    """In its first minute nothing but the log tells, and that is enough."""
    root = tmp_path / "store-a"
    with LocalCluster(tmp_path, SETTINGS) as cluster:
        async with Client(cluster.address, group="maker") as mq:
            await live(mq)
    other = OtherBroker(root)
    assert other.store("orders", 0, b"theirs", "tk1") == 6
    if minutes:
        other.save_checkpoint()
        other.configure(add="fresh", remove="old", group="their-group")
    assert other.store("orders", 0, b"theirs too", "tk2") == 7
    other.die()
    with LocalCluster(tmp_path, SETTINGS) as cluster:
        async with Client(cluster.address, group="maker") as mq:
            wanted = {**OURS, (0, 6): b"theirs", (0, 7): b"theirs too"}
            assert await bodies(mq, "orders") == wanted
            for key in ("k3", "tk1", "tk2"):
                (found,) = await mq.admin.messages.by_key("orders", key)
                assert key in found.keys
            sent = await mq.send("orders", b"on", queue=MessageQueue("orders", "broker-a", 0))
            assert sent.offset == 8
            assert ("fresh" in await mq.admin.topics.list()) == bool(minutes)
        said = cluster.brokers[0].log_path.read_text()
        assert ("a crash was not ours" in said) == bool(minutes)


async def test_a_person_who_edits_a_table_is_no_broker(tmp_path: Path) -> None:
    root = tmp_path / "store-a"
    with LocalCluster(tmp_path, SETTINGS) as cluster:
        async with Client(cluster.address, group="maker") as mq:
            await live(mq)
    OtherBroker(root).configure(add="fresh", remove="old", group="their-group")
    with LocalCluster(tmp_path, SETTINGS) as cluster:
        async with Client(cluster.address, group="maker") as mq:
            assert "fresh" in await mq.admin.topics.list()
            assert await bodies(mq, "orders") == OURS
        said = cluster.brokers[0].log_path.read_text()
        assert "another broker wrote" not in said
        assert "importing 3 changes" in said
