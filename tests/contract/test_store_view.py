"""The engine's read port: the store in memory and the real one give the same answers.

Where the contract leaves room (what a damaged record looks like), only the real store's own tests
look.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.engine.effects import Append
from kourou.engine.ports import QueueRead, StoreView
from kourou.errors import Rejected
from kourou.filtering.sql import sql_filter
from kourou.protocol.record.hashes import tags_code
from kourou.protocol.record.message_record import decode_record
from kourou.store.log import reads as store_reads
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs import engine as testing_engine
from kourou_rigs.engine import MemoryStore
from kourou_rigs.store import Draft, StoreWriter, Written, small_settings

START_MS = 1_700_000_000_000
TARGETS = [("TopicA", 0), ("TopicA", 1), ("TopicA", 3), ("TopicB", 0)]
TAGS = ("", "A", "B", "Aa", "BB")


class Both:
    """The same records in both stores."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.memory = MemoryStore()
        self.writer = StoreWriter(store, now_ms=START_MS)
        self.written: list[Written] = []

    def write(self, drafts: list[Draft]) -> None:
        """One append of both, projected."""
        written = self.writer.stamp(drafts)
        self.writer.append(written)
        advanced = self.store.dispatch()
        pieces = [(item.position, item.record) for item in written]
        self.memory.append(Append(pieces, [], self.store.end))
        expected = {(one.topic, one.queue_id): one.max_offset for one in advanced}
        assert {
            (topic, queue_id): high for topic, queue_id, high in self.memory.dispatch()
        } == expected
        self.written += written
        self.writer.now_ms += 700

    @property
    def views(self) -> tuple[StoreView, StoreView]:
        return self.store, self.memory


@pytest.fixture(params=["mmap", "pread"])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    settings = small_settings(Path("/store"), read_mode=request.param)
    store = Store.open(settings, SimDisk())
    try:
        yield Both(store)
    finally:
        store.close()


@pytest.fixture
def filled(both: Both) -> Both:
    """Several segments and queue files; two queues, a gap in the queue ids, many tags."""
    chance = random.Random(7)
    for _ in range(25):
        drafts = []
        for _ in range(chance.randint(1, 9)):
            topic, queue_id = chance.choice(TARGETS)
            body = bytes([chance.randrange(256)]) * chance.choice((0, 1, 300, 2_000))
            keys = tuple(chance.sample(("k1", "k2", "k3"), chance.randint(0, 2)))
            drafts.append(Draft(topic, queue_id, body, chance.choice(TAGS), keys))
        both.write(drafts)
    assert both.store.end > 3 * both.store.settings.segment_size_bytes
    return both


def same(views: tuple[StoreView, StoreView], name: str, *args: object, **named: object) -> object:
    """Ask both; they must agree."""
    ours, theirs = (plain(getattr(view, name)(*args, **named)) for view in views)
    assert ours == theirs, (name, args, named)
    return ours


def plain(answer: object) -> object:
    if isinstance(answer, QueueRead):
        return (
            [bytes(record) for record in answer.records],
            answer.next_offset,
            answer.min_offset,
            answer.max_offset,
            bytes(answer.run),
            answer.corrupt_offsets,
            answer.first_position,
            answer.last_position,
        )
    if isinstance(answer, list):
        return [bytes(item) if isinstance(item, memoryview) else item for item in answer]
    return bytes(answer) if isinstance(answer, memoryview) else answer


def test_nothing_is_the_same_nothing(both) -> None:
    assert same(both.views, "queue_ids", "TopicA") == []
    assert same(both.views, "topics") == []
    assert same(both.views, "queue_range", "TopicA", 0) is None
    assert same(both.views, "offset_position", "TopicA", 0, 0) == -1
    assert same(both.views, "store_time", "TopicA", 0, 0) == -1
    assert same(both.views, "offset_by_time", "TopicA", 0, START_MS) == 0
    same(both.views, "log_range")
    limits = {"max_messages": 3, "max_bytes": 100, "codes": None, "below": 1 << 40}
    same(both.views, "read_queue", "TopicA", 0, 0, **limits)
    key = {"max_count": 3, "begin_ms": 0, "end_ms": 1 << 60}
    assert same(both.views, "find_by_key", "TopicA", "k", **key) == []
    for view in both.views:
        with pytest.raises(Rejected):
            view.record_at(0)


@pytest.mark.feature("F011", "F047")
def test_ranges_positions_and_times(filled) -> None:
    views = filled.views
    same(views, "log_range")
    for topic in ("TopicA", "TopicB", "TopicC"):
        same(views, "queue_ids", topic)
    assert same(views, "queue_ids", "TopicA") == [0, 1, 3]
    assert "TopicA" in same(views, "topics")
    for topic, queue_id in [*TARGETS, ("TopicA", 2), ("TopicC", 0)]:
        found = same(views, "queue_range", topic, queue_id)
        high = found[1] if isinstance(found, tuple) else 2
        sizes = [same(views, "queue_bytes", topic, queue_id, at, at + 1) for at in range(high)]
        assert same(views, "queue_bytes", topic, queue_id, 0, high) == sum(sizes)
        for offset in range(-1, high + 2):
            same(views, "offset_position", topic, queue_id, offset)
            same(views, "store_time", topic, queue_id, offset)
        for item in filled.written[::5]:
            for position in (item.position, item.position + 1):
                same(views, "offset_at", topic, queue_id, position)
        same(views, "offset_at", topic, queue_id, filled.store.end)


@pytest.mark.feature("F188", "F234")
def test_reads_with_every_limit(filled) -> None:
    views = filled.views
    codes = [None, frozenset(), *(frozenset({tags_code(tag)}) for tag in TAGS)]
    codes.append(frozenset({tags_code("A"), tags_code("B")}))
    ends = [item.end for item in filled.written]
    belows = [0, ends[0] - 1, ends[0], ends[40], ends[40] + 1, filled.store.end]
    chance = random.Random(11)
    for _ in range(600):
        topic, queue_id = chance.choice(TARGETS)
        high = filled.memory.queue_range(topic, queue_id)[1]
        same(
            views,
            "read_queue",
            topic,
            queue_id,
            chance.randint(0, high),
            max_messages=chance.choice((1, 2, 7, 1_000)),
            max_bytes=chance.choice((1, 300, 2_500, 1 << 20)),
            codes=chance.choice(codes),
            below=chance.choice(belows),
        )


@pytest.mark.feature("F012", "F236")
def test_a_read_goes_on_where_the_last_one_ended(filled) -> None:
    """Pages of a filtered queue have every match once, whatever their size."""
    wanted = frozenset({tags_code("A")})
    for view in filled.views:
        for max_messages in (1, 3):
            found, offset = [], 0
            high = view.queue_range("TopicA", 0)[1]
            while offset < high:
                read = view.read_queue(
                    "TopicA",
                    0,
                    offset,
                    max_messages=max_messages,
                    max_bytes=1 << 20,
                    codes=wanted,
                    below=filled.store.end,
                )
                assert read.next_offset > offset
                found += [decode_record(record).offset for record in read.records]
                offset = read.next_offset
            assert found == [
                item.offset
                for item in filled.written
                if (item.topic, item.queue_id) == ("TopicA", 0)
                and decode_record(item.record).tag == "A"
            ]


@pytest.mark.feature("F237")
@pytest.mark.parametrize(("records_max", "bytes_max"), [(1 << 20, 1 << 30), (5, 1 << 30), (9, 900)])
def test_reads_that_look_at_properties(
    filled, monkeypatch: pytest.MonkeyPatch, records_max: int, bytes_max: int
) -> None:
    for module in (store_reads, testing_engine):
        monkeypatch.setattr(module, "FILTER_RECORDS_MAX", records_max)
        monkeypatch.setattr(module, "FILTER_BYTES_MAX", bytes_max)
    views = filled.views
    ends = [item.end for item in filled.written]
    chance = random.Random(13)
    found = 0
    for _ in range(400):
        topic, queue_id = chance.choice(TARGETS)
        high = filled.memory.queue_range(topic, queue_id)[1]
        text = chance.choice(("TAGS = 'A'", "TAGS IS NULL", "KEYS = 'k1'", "FALSE", "TRUE"))
        records, *_ = same(
            views,
            "read_queue",
            topic,
            queue_id,
            chance.randint(0, high),
            max_messages=chance.choice((1, 2, 7, 1_000)),
            max_bytes=chance.choice((1, 300, 2_500, 1 << 20)),
            codes=None,
            below=chance.choice((ends[0] - 1, ends[40], filled.store.end)),
            wanted=sql_filter(text).predicate(),
        )
        found += len(records)
    assert found > 50


@pytest.mark.feature("F260")
def test_records_by_position(filled) -> None:
    for item in filled.written:
        assert same(filled.views, "record_at", item.position) == item.record
    for wrong in (filled.written[3].position + 1, filled.store.end, -1, 1 << 50):
        for view in filled.views:
            with pytest.raises(Rejected):
                view.record_at(wrong)


@pytest.mark.feature("F267")
def test_offsets_by_time(filled) -> None:
    for topic, queue_id in [*TARGETS, ("TopicA", 2)]:
        for at_ms in range(START_MS - 700, filled.writer.now_ms + 1_400, 350):
            same(filled.views, "offset_by_time", topic, queue_id, at_ms)


@pytest.mark.feature("F013", "F261", "F263")
def test_records_by_key(filled) -> None:
    for topic in ("TopicA", "TopicB", "TopicC"):
        for key in ("k1", "k2", "k3", "k4"):
            for begin, end in ((0, 1 << 60), (START_MS + 3_000, START_MS + 9_100)):
                for max_count in (1, 4, 1_000):
                    found = same(
                        filled.views,
                        "find_by_key",
                        topic,
                        key,
                        max_count=max_count,
                        begin_ms=begin,
                        end_ms=end,
                    )
                    assert isinstance(found, list)
                    assert len(found) <= max_count


def by_key(both: Both, topic: str, key: str, **wanted: int) -> list[bytes]:
    limits = {"max_count": 64, "begin_ms": 0, "end_ms": 1 << 60, **wanted}
    found = same(both.views, "find_by_key", topic, key, **limits)
    assert isinstance(found, list)
    return found


def every_5_ms(both: Both, count: int, **fields: object) -> list[bytes]:
    """So many messages of TopicA with the key k; the index knows seconds only."""
    first = len(both.written)
    for number in range(count):
        both.writer.now_ms = START_MS + 5 * number
        both.write([Draft(**{"keys": ("k",), "body": b"%d" % number, **fields})])  # type: ignore[arg-type]
    return [item.record for item in both.written[first:]]


@pytest.mark.feature("F261", "F263")
@pytest.mark.parametrize("count", [1, 3, 6, 32, 64])
def test_a_window_of_milliseconds_is_searched_to_its_end(both, count) -> None:
    """What lies outside it does not count, however much of it is newer."""
    records = every_5_ms(both, 40)
    window = {"begin_ms": START_MS, "end_ms": START_MS + 26}
    assert by_key(both, "TopicA", "k", max_count=count, **window) == records[5::-1][:count]
    window = {"begin_ms": START_MS + 11, "end_ms": START_MS + 15}
    assert by_key(both, "TopicA", "k", max_count=count, **window) == [records[3]]
    window = {"begin_ms": START_MS + 16, "end_ms": START_MS + 19}
    assert by_key(both, "TopicA", "k", max_count=count, **window) == []


@pytest.mark.feature("F262")
@pytest.mark.parametrize(
    ("older", "newer"),
    [(("Aa", "k"), ("BB", "k")), (("TopicA", "Aa"), ("TopicA", "BB"))],
    ids=["topics", "keys"],
)
def test_strangers_with_the_same_hash_do_not_count(both, older, newer) -> None:
    """ "Aa" and "BB" have one hash: so have Aa#k and BB#k."""
    both.write([Draft(older[0], keys=(older[1],))])
    for _ in range(8):
        both.write([Draft(newer[0], keys=(newer[1],)) for _ in range(4)])
    for count in (1, 32):
        assert by_key(both, *older, max_count=count) == [both.written[0].record]
    assert len(by_key(both, *newer, max_count=32)) == 32


@pytest.mark.feature("F261", "F079")
def test_keys_are_found_over_several_files_of_the_index(both) -> None:
    """An index file of these settings has room for 59 keys."""
    keys = [("k",), ("other",), ("k", "third", "k")]
    for number in range(90):
        both.write([Draft(keys=keys[number % 3])])
    assert both.store.statistics()["index"]["files"] == 3
    wanted = [item.record for item in both.written if decode_record(item.record).keys[0] == "k"]
    for count in (1, 19, 20, 21, 59, 60, 64):
        assert by_key(both, "TopicA", "k", max_count=count) == wanted[::-1][:count]
    oldest = decode_record(both.written[9].record).store_timestamp
    window = {"begin_ms": 0, "end_ms": oldest, "max_count": 1}
    assert by_key(both, "TopicA", "k", **window) == [both.written[9].record]


@pytest.mark.feature("F094")
def test_only_what_ends_below_a_position_is_found_by_key(both) -> None:
    records = every_5_ms(both, 8, body=b"x" * 300)
    ends = [item.end for item in both.written]
    for count in (1, 8):
        for below in (ends[3], ends[3] + 1, ends[4] - 1):
            found = by_key(both, "TopicA", "k", max_count=count, below=below)
            assert found == records[3::-1][:count]
        assert by_key(both, "TopicA", "k", max_count=count, below=ends[0] - 1) == []


def test_a_key_is_what_the_index_takes_for_one(both) -> None:
    """Spaces part keys, other blanks do not; an empty key finds nothing."""
    both.write([Draft(keys=("a\tb", "", "c")), Draft()])
    assert by_key(both, "TopicA", "a\tb") == by_key(both, "TopicA", "c")
    assert len(by_key(both, "TopicA", "c")) == 1
    for nothing in ("a", "b", "", "a\tb  c"):
        assert by_key(both, "TopicA", nothing) == []


def test_what_is_not_dispatched_is_in_no_queue(both) -> None:
    both.write([Draft(), Draft()])
    written = both.writer.stamp([Draft(body=b"later", keys=("k",))])
    both.writer.append(written)
    pieces = [(item.position, item.record) for item in written]
    both.memory.append(Append(pieces, [], both.store.end))
    assert same(both.views, "queue_range", "TopicA", 0) == (0, 2)
    assert same(both.views, "log_range") == (0, both.store.end)
    assert same(both.views, "record_at", written[0].position) == written[0].record
    for view in (both.store, both.memory):
        assert len(view.dispatch()) == 1
    assert same(both.views, "queue_range", "TopicA", 0) == (0, 3)
