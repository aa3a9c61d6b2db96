"""What the engine may ask of a store: the real one and the one in memory answer alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.engine.effects import Append
from kourou.engine.ports import QueueRead, StoreView
from kourou.errors import Rejected
from kourou.protocol.hashing import tags_code
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou.testing.engine import MemoryStore
from kourou.testing.store import Draft, StoreWriter, Written, small_settings

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def stores() -> tuple[Store, MemoryStore, list[Written]]:
    store = Store.open(small_settings(Path("/store"), segment_size_bytes=2048), SimDisk())
    memory = MemoryStore()
    written: list[Written] = []
    for step in range(12):
        writer = StoreWriter(store, now_ms=START_MS + 1000 * step)
        items = writer.write(
            [
                Draft(
                    "TopicA", step % 2, b"x" * (40 * n), tag=f"tag{n}", keys=(f"k{step}", f"m{n}")
                )
                for n in range(4)
            ]
        )
        pieces = [(item.position, item.record) for item in items]
        memory.append(Append(pieces, [], store.end))
        memory.dispatch()
        written += items
    return store, memory, written


@pytest.fixture(params=["real", "memory"])
def view(request: pytest.FixtureRequest, stores: tuple[Store, MemoryStore, object]) -> StoreView:
    return stores[0] if request.param == "real" else stores[1]


@pytest.fixture
def written(stores: tuple[object, object, list[Written]]) -> list[Written]:
    return stores[2]


def read(view: StoreView, offset: int, queue_id: int = 0, **changes: object) -> QueueRead:
    limits: dict[str, object] = {
        "max_messages": 100,
        "max_bytes": 1 << 20,
        "codes": None,
        "below": 1 << 60,
    }
    return view.read_queue("TopicA", queue_id, offset, **(limits | changes))  # type: ignore[arg-type]


def of_queue(written: list[Written], queue_id: int = 0) -> list[Written]:
    return [item for item in written if item.queue_id == queue_id]


def test_ranges(view: StoreView, written: list[Written]) -> None:
    assert view.log_range() == (0, written[-1].end)
    assert view.queue_ids("TopicA") == [0, 1]
    assert view.queue_ids("none") == []
    assert view.queue_range("TopicA", 1) == (0, 24)
    assert view.queue_range("TopicA", 2) is None
    assert view.queue_range("none", 0) is None


@pytest.mark.parametrize("offset", [0, 1, 17, 23])
def test_a_queue_is_read_from_any_offset(
    view: StoreView, written: list[Written], offset: int
) -> None:
    found = read(view, offset)
    expected = of_queue(written)[offset:]
    assert [bytes(record) for record in found.records] == [item.record for item in expected]
    assert found.next_offset == 24
    assert (found.min_offset, found.max_offset) == (0, 24)
    assert found.size_bytes == sum(len(item.record) for item in expected)
    assert found.last_position == expected[-1].position
    assert found.corrupt_offsets == []


def test_at_the_end_there_is_nothing(view: StoreView) -> None:
    found = read(view, 24)
    assert (found.records, found.next_offset, found.last_position) == ([], 24, -1)
    assert (found.min_offset, found.max_offset) == (0, 24)


def test_an_unknown_queue_has_nothing(view: StoreView) -> None:
    assert read(view, 0, queue_id=9).records == []


@pytest.mark.parametrize("count", [1, 3, 24])
def test_messages_are_limited(view: StoreView, count: int) -> None:
    found = read(view, 0, max_messages=count)
    assert len(found.records) == count
    assert found.next_offset == count


def test_bytes_are_limited_but_never_below_one_message(
    view: StoreView, written: list[Written]
) -> None:
    sizes = [len(item.record) for item in of_queue(written)]
    assert len(read(view, 0, max_bytes=1).records) == 1
    assert len(read(view, 0, max_bytes=sizes[0] + sizes[1] - 1).records) == 1
    found = read(view, 0, max_bytes=sizes[0] + sizes[1])
    assert (len(found.records), found.next_offset) == (2, 2)


def test_nothing_above_the_confirmed_position_is_shown(
    view: StoreView, written: list[Written]
) -> None:
    third = of_queue(written)[2]
    assert len(read(view, 0, below=third.end - 1).records) == 2
    found = read(view, 0, below=third.end)
    assert (len(found.records), found.next_offset) == (3, 3)
    assert read(view, 0, below=0).next_offset == 0


@pytest.mark.feature("F069")
def test_tags_are_chosen_by_their_codes(view: StoreView, written: list[Written]) -> None:
    codes = frozenset({tags_code("tag1"), tags_code("tag3")})
    found = read(view, 0, codes=codes)
    wanted = [item.record for index, item in enumerate(of_queue(written)) if index % 2]
    assert [bytes(record) for record in found.records] == wanted
    assert found.next_offset == 24
    limited = read(view, 0, codes=codes, max_messages=2)
    assert len(limited.records) == 2
    assert limited.next_offset in (4, 5), "the next match has not been passed"
    nothing = read(view, 0, codes=frozenset({tags_code("other")}))
    assert (nothing.records, nothing.next_offset) == ([], 24)


def test_a_record_is_found_by_its_position(view: StoreView, written: list[Written]) -> None:
    for item in written:
        assert bytes(view.record_at(item.position)) == item.record
        assert view.offset_position(item.topic, item.queue_id, item.offset) == item.position
    assert view.offset_position("TopicA", 0, 24) == -1
    assert view.offset_position("none", 0, 0) == -1
    for position in (-1, 1, written[3].position + 4, written[-1].end, 1 << 50):
        with pytest.raises(Rejected):
            view.record_at(position)


def test_store_times(view: StoreView) -> None:
    assert view.store_time("TopicA", 0, 0) == START_MS
    assert view.store_time("TopicA", 0, 23) == START_MS + 10_000
    assert view.store_time("TopicA", 0, 24) == -1


@pytest.mark.parametrize(
    ("ms", "offset"),
    [(-1, 0), (0, 0), (1, 4), (2000, 4), (2001, 8), (10_000, 20), (10_001, 24), (1 << 40, 24)],
)
def test_the_offset_of_a_time_is_the_first_at_or_after_it(
    view: StoreView, ms: int, offset: int
) -> None:
    assert view.offset_by_time("TopicA", 0, START_MS + ms) == offset


@pytest.mark.feature("F078", "F079")
def test_messages_are_found_by_key_newest_first(view: StoreView, written: list[Written]) -> None:
    def find(key: str, **changes: int) -> list[bytes]:
        limits = {"max_count": 64, "begin_ms": 0, "end_ms": 1 << 60}
        return [bytes(hit) for hit in view.find_by_key("TopicA", key, **(limits | changes))]

    assert find("k5") == [item.record for item in reversed(written[20:24])]
    assert find("m2") == [item.record for item in reversed(written[2::4])]
    assert find("m2", max_count=3) == find("m2")[:3]
    assert find("m2", begin_ms=START_MS + 3000, end_ms=START_MS + 4000) == [
        written[4 * 4 + 2].record,
        written[3 * 4 + 2].record,
    ]
    assert find("none") == []
