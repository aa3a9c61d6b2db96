"""Damaged regions are repaired with what other members have confirmed, and with nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kourou.errors import Corrupt, KourouError, StoreFaulted, Unavailable
from kourou.protocol.messages.replication import FetchLog, FetchLogResponse
from kourou.replication.epochs import Epochs
from kourou.serving.repairs import Damaged, Repairs
from kourou.store.quarantine import Region


class Broken:
    """A store with damaged regions; what ends in b"good" is taken."""

    def __init__(self, *regions: Region) -> None:
        self.damaged_regions = list(regions)

    def repair(self, position: int, data: bytes) -> int:
        if data == b"dead disk":
            raise StoreFaulted("EIO")
        if not data.endswith(b"good"):
            raise Corrupt("no record")
        [region] = [one for one in self.damaged_regions if one.start == position]
        self.damaged_regions.remove(region)
        if position + len(data) < region.end:
            rest = Region(position + len(data), region.end, region.reason)
            self.damaged_regions.insert(0, rest)
        return position + len(data)


class Bench:
    """Repairs whose questions a test answers."""

    def __init__(self, *regions: Region, confirmed: int = 1_000) -> None:
        self.store = Broken(*regions)
        self.confirmed = confirmed
        self.asked: list[tuple[str, int, int]] = []
        self._answers: list[Callable[[FetchLogResponse | KourouError, bytes], None]] = []
        self.mended = 0
        self.failures: list[BaseException] = []
        self.open = True
        self.repairs = Repairs(
            "g", ("n1", "n2"), log=self._log, fetch=self._fetch, mended=self._mended,
            failed=self.failures.append, pause_s=0,
        )  # fmt: skip

    def _log(self) -> Damaged | None:
        epochs = Epochs([(1, 0), (2, 500)], 2_000)
        return Damaged(self.store, epochs, self.confirmed) if self.open else None  # type: ignore[arg-type]

    def _fetch(self, member: str, request: FetchLog, done, timeout_ms: int) -> None:
        del timeout_ms
        self.asked.append((member, request.position, request.max_bytes))
        self._answers.append(done)

    def _mended(self) -> None:
        self.mended += 1

    def answer(self, body: bytes = b"good", epoch: int = 1, position: int | None = None) -> None:
        at = self.asked[-1][1] if position is None else position
        told = FetchLogResponse(
            position=at, end=at + len(body), previous_epoch=epoch, data_epoch=epoch,
            confirmed=1_000, first_position=0,
        )  # fmt: skip
        self._answers.pop()(told, body)

    def fail(self) -> None:
        self._answers.pop()(Unavailable("gone"), b"")


def test_regions_are_repaired_one_after_the_other_in_parts() -> None:
    bench = Bench(Region(100, 108, "rot"), Region(600, 604, "rot"))
    bench.repairs.look()
    bench.repairs.look()  # one is under way
    assert bench.asked == [("n1", 100, 8)]
    bench.answer()
    assert bench.asked[-1] == ("n1", 104, 4)
    bench.answer()
    assert bench.asked[-1] == ("n1", 600, 4)
    bench.answer(epoch=2)
    assert bench.store.damaged_regions == []
    assert bench.mended == 3
    assert len(bench.asked) == 3


@pytest.mark.parametrize(
    "unfit",
    [
        lambda bench: bench.fail(),
        lambda bench: bench.answer(epoch=2),
        lambda bench: bench.answer(b"bad"),
        lambda bench: bench.answer(b""),
        lambda bench: bench.answer(position=104),
    ],
    ids=["unreachable", "of another epoch", "damaged there, too", "nothing", "elsewhere"],
)
async def test_what_does_not_fit_is_not_taken_and_the_next_member_is_asked(unfit) -> None:
    bench = Bench(Region(100, 104, "rot"))
    bench.repairs.look()
    unfit(bench)
    assert bench.store.damaged_regions == [Region(100, 104, "rot")]
    assert [member for member, _, _ in bench.asked] == ["n1", "n2"]
    unfit(bench)
    assert len(bench.asked) == 2, "not again before a pause"
    while len(bench.asked) == 2:  # noqa: ASYNC110 - its pause is a timer of 0 s
        await asyncio.sleep(0)
    bench.answer()
    assert bench.store.damaged_regions == []


def test_a_disk_that_fails_ends_the_process() -> None:
    bench = Bench(Region(100, 109, "rot"))
    bench.repairs.look()
    bench.answer(b"dead disk")
    assert [type(one) for one in bench.failures] == [StoreFaulted]
    bench.repairs.look()
    assert len(bench.asked) == 1, "nobody is asked any more"


def test_what_no_majority_has_is_nobodys_to_repair() -> None:
    bench = Bench(Region(100, 104, "rot"), confirmed=100)
    bench.repairs.look()
    assert bench.asked == []


def test_a_store_that_was_closed_meanwhile_is_left_alone() -> None:
    bench = Bench(Region(100, 104, "rot"))
    bench.repairs.look()
    bench.open = False
    bench.repairs.stop()
    bench.answer()
    assert bench.store.damaged_regions
    assert bench.mended == 0
    bench.repairs.look()
    assert len(bench.asked) == 1
