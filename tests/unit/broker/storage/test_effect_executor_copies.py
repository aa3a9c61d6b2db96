"""A leader's bytes go to the end of a follower's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kourou.broker.storage.effect_executor import CopyExecutor
from kourou.engine.effects import CopyChunk
from kourou.engine.inputs import Copied, NotCopied
from kourou.errors import StoreFaulted
from kourou.model.limits import CHUNK_BYTES_MAX
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, small_settings


class Rig:
    """A leader's store with a few records, and a follower's with its executor."""

    def __init__(self, site) -> None:
        settings = small_settings(Path("/store"), segment_size_bytes=64 * 1024)
        self.leader = Store.open(settings, SimDisk())
        StoreWriter(self.leader).write([Draft("TopicA", 0, b"x" * 90) for _ in range(5)])
        self.store = site.store
        self.posted: list[Any] = []
        self.projected = 0
        executor = CopyExecutor(self.store, post=self.posted.append, copied=self._copied)
        self.copy = executor.performers()[CopyChunk]

    def _copied(self) -> None:
        self.projected += 1

    def chunk(self, position: int = 0) -> CopyChunk:
        chunk = self.leader.read_chunk(position, self.leader.end, CHUNK_BYTES_MAX)
        return CopyChunk(position, chunk.end, bytes(chunk.data), chunk.damage)


@pytest.fixture
def rig(site) -> Rig:
    return Rig(site)


def test_copied_bytes_are_reported_and_projected(rig) -> None:
    rig.copy(rig.chunk())
    assert rig.posted == [Copied(rig.leader.end)]
    assert (rig.store.end, rig.projected) == (rig.leader.end, 1)


def test_damage_is_copied_as_what_it_is(rig) -> None:
    rig.copy(CopyChunk(0, 64, b"\xff" * 64, "cannot be read"))
    assert rig.posted == [Copied(64)]
    assert [(one.start, one.end) for one in rig.store.damaged_regions] == [(0, 64)]


def test_what_does_not_fit_is_asked_for_once_more(rig) -> None:
    good = rig.chunk()
    broken = bytearray(good.data)
    broken[100] ^= 1
    rig.copy(CopyChunk(0, good.end, bytes(broken)))
    rig.copy(CopyChunk(99, good.end + 99, good.data))
    assert [type(one) for one in rig.posted] == [NotCopied, NotCopied]
    assert "fails its check" in rig.posted[0].reason
    assert "the log ends at 0" in rig.posted[1].reason
    assert (rig.store.end, rig.projected) == (0, 0)


def test_a_disk_that_fails_ends_the_process(rig, monkeypatch) -> None:
    def failing(*_given: object) -> int:
        raise StoreFaulted("the disk is gone")

    monkeypatch.setattr(rig.store, "append_chunk", failing)
    with pytest.raises(StoreFaulted):
        rig.copy(rig.chunk())
    assert rig.posted == []
