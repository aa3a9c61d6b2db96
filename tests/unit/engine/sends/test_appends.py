"""Where does a record go, and which offset does it get?"""

from array import array

import pytest

from kourou.engine.sends.appends import Appends, LogEnd
from kourou.errors import DiskFull, MessageIllegal, StoreFaulted, Throttled
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import decode_record
from kourou_rigs.engine import MemoryStore

TARGET = ("orders", 0)


def appends(
    *, allocated: int = 1 << 30, segment: int = 16_384, retired: dict | None = None
) -> Appends:
    return Appends(
        MemoryStore(), LogEnd(0, allocated, segment, 50), ("127.0.0.1", 10911), retired or {}
    )


def joined(drafts: list[bytes]) -> tuple[bytearray, array]:
    return bytearray().join(drafts), array("q", map(len, drafts))


def state(numbers: Appends) -> tuple:
    return numbers.end, numbers.store_ms, numbers.next_offset(TARGET), list(numbers._done)


def test_store_times_never_go_back(draft) -> None:
    numbers = appends()
    times = []
    for wall_ms in (70, 60, 40, 90):
        numbers.write_one(draft(), TARGET, wall_ms)
        (effect,) = numbers.take_done()
        times.append(decode_record(effect.pieces[0][1]).store_timestamp)
    assert times == [70, 70, 70, 90]


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("why", ["full", "allocating", "failed", "too big"])
def test_what_is_refused_changes_nothing(draft, why, batch) -> None:
    numbers = appends(allocated=2_000)
    numbers.write_one(draft(), TARGET, 70)
    numbers.take_done()
    expected = {
        "full": DiskFull,
        "allocating": Throttled,
        "failed": StoreFaulted,
        "too big": MessageIllegal,
    }[why]
    numbers.space(0, full=why == "full")
    if why == "failed":
        numbers.fail("EIO")
    drafts = [draft(body=bytes(16_384 if why == "too big" else 3_000)) for _ in range(1 + batch)]
    before = state(numbers)
    blob, sizes = joined(drafts)
    if batch:
        with pytest.raises(expected):
            numbers.write(blob, sizes, [TARGET], None, 99)
    else:
        with pytest.raises(expected):
            numbers.write_one(drafts[0], TARGET, 99)
    assert state(numbers) == before


def test_no_record_is_placed_beyond_what_is_allocated(draft) -> None:
    one = len(draft())
    numbers = appends(allocated=3 * one)
    for _ in range(3):
        numbers.write_one(draft(), TARGET, 1)
    with pytest.raises(Throttled):
        numbers.write_one(draft(), TARGET, 1)
    numbers.space(2 * one, full=False)
    with pytest.raises(Throttled):
        numbers.write_one(draft(), TARGET, 1)
    numbers.space(4 * one, full=False)
    assert numbers.write_one(draft(), TARGET, 1) == (3, 3 * one)


def test_a_queue_goes_on_where_the_store_or_the_retired_topic_ended(draft) -> None:
    store = MemoryStore()
    store.queues[TARGET] = [0, 1, 2]
    log = LogEnd(0, 1 << 30, 16_384, 0)
    assert Appends(store, log, ("127.0.0.1", 1), {}).next_offset(TARGET) == 3
    assert Appends(store, log, ("127.0.0.1", 1), {"orders": {0: 9}}).next_offset(TARGET) == 9
    assert Appends(store, log, ("127.0.0.1", 1), {"orders": {0: 2}}).next_offset(TARGET) == 3
    numbers = Appends(store, log, ("127.0.0.1", 1), {"orders": {1: 4}})
    numbers.write_one(draft(queue_id=2), ("orders", 2), 1)
    numbers.next_offset(("orders", 5))
    assert numbers.ends("orders") == {0: 3, 2: 1}, "written ones only, projected or not"


def test_unprojected_records_are_kept_until_their_queue_has_them(draft) -> None:
    numbers = appends()
    for number in range(3):
        numbers.write_one(draft(body=bytes([number])), TARGET, 1)
    blob, sizes = joined([draft(queue_id=1, body=bytes([n])) for n in (3, 4)])
    numbers.write(blob, sizes, [("orders", 1)], None, 1)

    def left(after: int = 0) -> list[int]:
        return [decode_record(raw).body[0] for _, raw in numbers.unprojected(after)]

    assert left() == [0, 1, 2, 3, 4]
    assert left(after=3) == [3, 4]
    numbers.projected([("elsewhere", 0, 9)])
    assert left() == [0, 1, 2, 3, 4]
    numbers.projected([("orders", 0, 2)])
    assert left() == [2, 3, 4]
    numbers.projected([("orders", 0, 3), ("orders", 1, 1)])
    assert left() == [3, 4], "a batch goes when all of it is there"
    numbers.projected([("orders", 1, 2)])
    assert left() == []


def test_what_the_index_does_not_have_yet_is_kept_too(draft) -> None:
    numbers = appends()
    for number in range(3):
        numbers.write_one(draft(body=bytes([number])), TARGET, 1)
    one = numbers.end // 3

    def left(after: int = 0) -> list[int]:
        return [decode_record(raw).body[0] for _, raw in numbers.unprojected(after)]

    numbers.projected([("orders", 0, 2)], indexed=one - 1)
    assert left() == [0, 1, 2]
    assert left(after=1) == [1, 2]
    assert numbers.oldest_unprojected == 1
    numbers.projected([("elsewhere", 0, 9)], indexed=one)
    assert left() == [1, 2]
    numbers.projected([], indexed=3 * one)
    assert left() == [2], "the queue does not have it yet"
    numbers.projected([("orders", 0, 3)], indexed=3 * one)
    assert left() == []
    assert numbers.oldest_unprojected == 4


def test_what_is_not_projected_is_found_by_its_position(draft) -> None:
    numbers = appends()
    places = [
        numbers.write_one(draft(body=bytes([65 + number])), TARGET, 1)[1] for number in range(3)
    ]
    found = [numbers.unprojected_at(place) for place in places]
    assert [decode_record(raw).body for raw in found if raw is not None] == [b"A", b"B", b"C"]
    assert numbers.unprojected_at(places[1] + 1) is None, "no record begins there"
    assert numbers.unprojected_at(numbers.end) is None
    numbers.projected([("orders", 0, 3)], indexed=numbers.end)
    assert numbers.unprojected_at(places[0]) is None


@pytest.mark.parametrize("projected", [True, False], ids=["for an index", "for repeats"])
def test_what_is_kept_is_bounded(draft, monkeypatch, projected) -> None:
    monkeypatch.setattr("kourou.engine.sends.appends.UNPROJECTED_BYTES_MAX", 2_500)
    numbers = appends()
    for number in range(10):
        numbers.write_one(draft(body=bytes(900)), TARGET, 1)
        if projected:
            numbers.projected([("orders", 0, number + 1)], indexed=0)
    assert len(list(numbers.unprojected(0))) == 2


SEVERAL = [1, 2, 3, 6, 7, 4, 2, 2, 30, 2, 5]


@pytest.mark.parametrize("segment", [1 << 20, 4_096])
def test_several_at_once_get_the_places_that_they_get_one_by_one(draft, segment) -> None:
    several, single = appends(segment=segment), appends(segment=segment)
    made = MemoryStore(), MemoryStore()
    pieces = []
    for turn, count in enumerate(SEVERAL):
        drafts = [
            (("orders", n % 3), draft(body=bytes(n * 37 % 300), queue_id=n % 3, key=f"{turn}-{n}"))
            for n in range(count)
        ]
        targets = [target for target, _ in drafts]
        written = several.write_drafts([each for _, each in drafts], targets, 70 + turn)
        assert list(zip(written.offsets, written.positions, strict=True)) == [
            single.write_one(each, target, 70 + turn) for target, each in drafts
        ]
        (effect,) = several.take_done()
        pieces.append(len(effect.pieces))
        made[0].append(effect)
        for effect in single.take_done():
            made[1].append(effect)
    assert made[0].records == made[1].records
    assert (several.end, several.store_ms) == (single.end, single.store_ms)
    assert [several.next_offset(("orders", n)) for n in range(3)] == [
        single.next_offset(("orders", n)) for n in range(3)
    ]
    assert (max(pieces) > 1) is (segment == 4_096), "in one piece unless a segment ends"
    assert [bytes(raw) for _, raw in several.unprojected(0)] == [
        bytes(raw) for _, raw in single.unprojected(0)
    ]


@pytest.mark.parametrize("why", ["full", "allocating", "failed", "no room for an address"])
def test_of_several_none_is_stored_if_one_cannot_be(draft, why) -> None:
    numbers = appends(allocated=2_000)
    numbers.write_one(draft(), TARGET, 70)
    numbers.take_done()
    numbers.space(0, full=why == "full")
    body = bytes(10 if why == "no room for an address" else 1_500)
    expected: type[Exception] = DiskFull if why == "full" else Throttled
    if why == "failed":
        numbers.fail("EIO")
        expected = StoreFaulted
    elif why == "no room for an address":
        numbers._store_host = encode_host(("::1", 10911))
        expected = MessageIllegal
    before = state(numbers)
    with pytest.raises(expected):
        numbers.write_drafts([draft(body=body)] * 2, [TARGET] * 2, 99)
    assert state(numbers) == before
