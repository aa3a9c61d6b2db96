"""Store directories are read where they lie: ours, a real RocketMQ's, whole and damaged ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.client.consumer.received import decode_pull
from kourou.errors import Corrupt, TopicNotFound
from kourou.model.topic import MessageQueue
from kourou.protocol.record.message_record import decode_record
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.store.store import Store
from kourou_rigs.rows import row_of
from kourou_rigs.store import Draft, StoreWriter, Written, delete_before, small_settings
from kourou_spark_etl.source.arrow_rows import COLUMNS
from kourou_spark_etl.source.offsets import OffsetSpan
from kourou_spark_etl.source.options import ReadOptions
from kourou_spark_etl.source.ranges import DataLoss, QueueRange
from kourou_spark_etl.source.store_reader import StoreFacts, StoreFiles, read_store_range

GOLDEN = Path(__file__).parents[3] / "golden" / "rocketmq-4.9.8"
A = MessageQueue("TopicA", "here", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(small_settings(tmp_path / "store"), RealDisk())
    yield opened
    opened.close()


def options_of(root: Path, **changes: Any) -> ReadOptions:
    return ReadOptions(path=root, broker_name="here", topics=("TopicA",), **changes)


def rows_of(root: Path, begin: int, end: int, *, fresh: bool = False, **changes: Any) -> list[Any]:
    part = QueueRange("TopicA", "here", 0, begin, end, fresh)
    batches = read_store_range(options_of(root, **changes), part, COLUMNS)
    return [row for batch in batches for row in batch.to_pylist()]


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def written(store: Store, count: int) -> list[Written]:
    drafts = [Draft(body=b"%d" % number * 50, tag="t", keys=("k",)) for number in range(count)]
    return StoreWriter(store).write(drafts)


@pytest.mark.parametrize("name", ["store-clean", "store-live-abort"])
def test_every_message_of_a_real_rocketmq_is_read(name: str) -> None:
    root = GOLDEN / name
    before = files_of(root)
    facts = StoreFacts(root)
    found: dict[str, int] = {}
    for topic in facts.topics():
        for queue, span in facts.spans([topic], all_of=True).items():
            part = QueueRange(topic, queue.broker_name, queue.queue_id, span.low, span.high)
            options = ReadOptions(path=root, topics=(topic,))
            for batch in read_store_range(options, part, COLUMNS):
                batch.validate(full=True)
                for row in batch.to_pylist():
                    found[topic] = found.get(topic, 0) + 1
                    base, view = StoreFiles(root).segment(row["position"])
                    at = row["position"] - base
                    size = int.from_bytes(view[at : at + 4], "big")
                    (message,) = decode_pull(
                        view[at : at + size], queue, from_offset=0, next_offset=span.high
                    )
                    # Its producers write one name twice into batches; the last one counts.
                    pairs = filter(None, row["properties"].split("\x02"))
                    named = dict(pair.split("\x01", 1) for pair in pairs)
                    assert named == message.stored().properties
                    assert row == {**row_of(message), "properties": row["properties"]}
                    stored = decode_record(view, at)
                    assert (row["value"], row["offset"]) == (stored.body, stored.offset)
                    assert (row["topic"], row["broker"]) == (stored.topic, name)
    assert found == {
        "%DLQ%CG1": 1,
        "%RETRY%CG1": 1,
        "DefaultCluster_REPLY_TOPIC": 4,
        "RMQ_SYS_TRANS_HALF_TOPIC": 4,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": 3,
        "SCHEDULE_TOPIC_XXXX": 2,
        "TopicA": 12,
        "TopicR": 2,
    }
    assert files_of(root) == before, "reading changed the store"


def test_rows_over_many_segments_and_queue_files(store: Store) -> None:
    messages = written(store, 300)
    store.flush()
    root = store.paths.root
    assert len(list(store.paths.commit_log.iterdir())) > 3
    assert StoreFacts(root, "here").spans(["TopicA"], all_of=True) == {A: OffsetSpan(0, 300)}
    rows = rows_of(root, 0, 300)
    assert [row["position"] for row in rows] == [one.position for one in messages]
    assert [row["offset"] for row in rows] == list(range(300))
    assert [row["offset"] for row in rows_of(root, 37, 61, pull_batch_size=7)] == list(
        range(37, 61)
    )
    assert rows_of(root, 0, 300, wanted="other") == []


def test_a_live_store_is_read_as_far_as_it_is_flushed(store: Store) -> None:
    facts = StoreFacts(store.paths.root, "here")
    writer = StoreWriter(store)
    writer.write([Draft()] * 10)
    store.flush()
    writer.write([Draft()] * 5)
    assert facts.spans(["TopicA"], all_of=True) == {A: OffsetSpan(0, 10)}
    store.flush()
    assert facts.spans(["TopicA"], all_of=True) == {A: OffsetSpan(0, 15)}
    assert len(rows_of(store.paths.root, 0, 15)) == 15


def test_by_time(store: Store) -> None:
    writer = StoreWriter(store, now_ms=1_000)
    for number in range(30):
        writer.now_ms = 1_000 + 10 * number
        writer.write([Draft()])
    store.flush()
    facts = StoreFacts(store.paths.root, "here")
    assert [facts.offset_by_time(A, at_ms) for at_ms in (0, 1_000, 1_001, 1_290, 1_291)] == [
        0,
        0,
        1,
        29,
        30,
    ]


def test_what_retention_deleted(store: Store) -> None:
    messages = written(store, 300)
    store.flush()
    delete_before(store, messages[200].position)
    facts = StoreFacts(store.paths.root, "here")
    span = facts.spans(["TopicA"], all_of=True)[A]
    assert 0 < span.low <= 200
    with pytest.raises(DataLoss, match=f"offsets 0 to {span.low} were deleted"):
        rows_of(store.paths.root, 0, 300)
    rows = rows_of(store.paths.root, 0, 300, fail_on_data_loss=False)
    assert [row["offset"] for row in rows] == list(range(span.low, 300))
    assert rows_of(store.paths.root, 0, 300, fresh=True) == rows


@pytest.mark.parametrize("fail", [False, True])
def test_retention_while_it_is_read(store: Store, fail: bool) -> None:
    messages = written(store, 300)
    store.flush()
    part = QueueRange("TopicA", "here", 0, 0, 300)
    options = options_of(store.paths.root, fail_on_data_loss=fail, pull_batch_size=10)
    batches = read_store_range(options, part, ("offset",))
    assert next(batches).num_rows == 10
    delete_before(store, messages[200].position)
    if fail:
        with pytest.raises(DataLoss, match="TopicA/here/0: offsets 10 to"):
            list(batches)
        return
    rest = [row["offset"] for batch in batches for row in batch.to_pylist()]
    low, high = store.queue_range("TopicA", 0) or (0, 0)
    assert rest == list(range(low, high))
    assert low > 10


def test_damage_in_the_middle(store: Store) -> None:
    messages = written(store, 20)
    store.flush()
    root = store.paths.root
    segment = StorePaths.under(root).segment(0)
    with segment.open("r+b") as file:
        file.seek(messages[7].position + 100)
        file.write(b"damage")
    with pytest.raises(DataLoss, match="TopicA/here/0: 1 messages from 7 on are damaged"):
        rows_of(root, 0, 20)
    rows = rows_of(root, 0, 20, fail_on_data_loss=False)
    assert [row["offset"] for row in rows] == [*range(7), *range(8, 20)]


def test_last_records_that_are_cut_are_not_there(store: Store, tmp_path: Path) -> None:
    messages = written(store, 20)
    store.close()
    copy = tmp_path / "copy"
    shutil.copytree(store.paths.root, copy)
    shutil.rmtree(copy / "kourou")  # as a copy of RocketMQ's, which notes no flushed position
    with StorePaths.under(copy).segment(0).open("r+b") as file:
        file.seek(messages[18].position + 60)
        file.write(bytes(messages[-1].end - messages[18].position))
    assert StoreFacts(copy, "here").spans(["TopicA"], all_of=True) == {A: OffsetSpan(0, 18)}


def test_a_copy_with_a_short_segment(store: Store, tmp_path: Path) -> None:
    written(store, 300)
    store.close()
    copy = tmp_path / "copy"
    shutil.copytree(store.paths.root, copy)
    short = sorted((copy / "commitlog").iterdir())[1]
    short.write_bytes(short.read_bytes()[:5_000])
    with pytest.raises(Corrupt, match="has 5000 bytes, but the first one has 16384"):
        rows_of(copy, 0, 300)


def test_a_topic_that_is_not_there(store: Store) -> None:
    written(store, 1)
    facts = StoreFacts(store.paths.root)
    with pytest.raises(TopicNotFound, match=r"has no topic 'nope' \(it has TopicA\)"):
        facts.spans(["nope"], all_of=True)
    assert facts.spans(["nope"], all_of=False) == {}
