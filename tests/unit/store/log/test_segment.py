from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store.log.segment import Segment
from kourou.testing.disk import SimDisk


@pytest.fixture(params=["mmap", "pread"])
def segment(request: pytest.FixtureRequest) -> Segment:
    file = SimDisk().open(Path("/segment"), create_size=100_000, allocate=True)
    return Segment(file, 300_000, 100_000, mapped=request.param == "mmap")


@pytest.mark.parametrize("position", [299_999, 399_996, 400_000])
def test_nothing_is_written_outside(segment: Segment, position: int) -> None:
    with pytest.raises(AssertionError):
        segment.write(b"hello", position)


def test_data_is_found_by_position(segment: Segment) -> None:
    assert segment.next_data(300_000) is None
    segment.write(b"x", 350_000)
    found = segment.next_data(300_000)
    assert found is not None
    assert 300_000 <= found <= 350_000
    assert not segment.is_zero_from(300_000)
    assert segment.is_zero_from(350_001)


def test_wiping_leaves_zeros_and_what_stands_before(segment: Segment) -> None:
    segment.write(b"a" * 90_000, 305_000)
    assert segment.wipe(305_010)
    assert bytes(segment.view(305_000, 12)) == b"a" * 10 + bytes(2)
    assert segment.is_zero_from(305_010)
    assert not segment.wipe(305_010)


def test_what_was_noted_before_reading_holds_until_done(segment: Segment) -> None:
    segment.write(b"x", 310_000)
    segment.write(b"y", 390_000)
    segment.look(from_device=True)
    found = segment.next_data(300_000)
    assert found is not None
    assert 300_000 <= found <= 310_000
    assert segment.next_data(310_000) == 310_000
    behind = segment.next_data(330_000)
    assert behind is not None
    assert 330_000 < behind <= 390_000
    assert segment.wipe(320_000)
    assert segment.is_zero_from(320_000)
    segment.done_looking()
    assert segment.next_data(330_000) is None
