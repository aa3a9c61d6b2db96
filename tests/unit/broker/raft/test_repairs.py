"""Damaged regions are repaired with what other members have confirmed, and with nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kourou.broker.raft.repairs import DamagedLog, Repairs
from kourou.errors import Corrupt, KourouError, StoreFaulted, Unavailable
from kourou.protocol.messages.replication import FetchLog, FetchLogResponse
from kourou.replication.epochs import Epochs
from kourou.store.log.quarantine import Quarantine, Region


class Broken:
    """A store with damaged regions; what ends in b"good" is taken."""

    def __init__(self, *regions: Region) -> None:
        self.damaged_regions = list(regions)

    def repair(self, position: int, data: bytes) -> int:
        if data == b"dead disk":
            raise StoreFaulted("EIO")
        if not data.endswith(b"good"):
            raise Corrupt("no record")
        known = Quarantine(self.damaged_regions)
        assert known.at(position) is not None
        known.remove(position, position + len(data))
        self.damaged_regions = known.regions
        return position + len(data)


class Bench:
    """Repairs whose questions a test answers."""

    def __init__(self, *regions: Region, confirmed: int = 1_000) -> None:
        self.store = Broken(*regions)
        self.confirmed = confirmed
        self.asked: list[tuple[str, int, int]] = []
        self._answers: list[Callable[[FetchLogResponse | KourouError, bytes], None]] = []
        self.repaired = 0
        self.failures: list[BaseException] = []
        self.open = True
        self.repairs = Repairs(
            "g", ("n1", "n2"), log=self._log, fetch=self._fetch, repaired=self._on_repaired,
            failed=self.failures.append, pause_s=0,
        )  # fmt: skip

    def damaged_there(self, end: int, epoch: int = 1) -> None:
        """The member asked has damage there, too, up to `end`, and says so with its bytes."""
        at = self.asked[-1][1]
        logged = FetchLogResponse(
            position=at, end=end, previous_epoch=epoch, data_epoch=epoch, confirmed=1_000,
            first_position=0, damage="rot",
        )  # fmt: skip
        self._answers.pop()(logged, bytes(end - at))

    async def asks(self, number: int) -> None:
        while len(self.asked) < number:  # noqa: ASYNC110 - its pause is a timer of 0 s
            await asyncio.sleep(0)

    def _log(self) -> DamagedLog | None:
        epochs = Epochs([(1, 0), (2, 500)], 2_000)
        return DamagedLog(self.store, epochs, self.confirmed) if self.open else None  # type: ignore[arg-type]

    def _fetch(self, member: str, request: FetchLog, done, timeout_ms: int) -> None:
        del timeout_ms
        self.asked.append((member, request.position, request.max_bytes))
        self._answers.append(done)

    def _on_repaired(self) -> None:
        self.repaired += 1

    def answer(self, body: bytes = b"good", epoch: int = 1, position: int | None = None) -> None:
        at = self.asked[-1][1] if position is None else position
        logged = FetchLogResponse(
            position=at, end=at + len(body), previous_epoch=epoch, data_epoch=epoch,
            confirmed=1_000, first_position=0,
        )  # fmt: skip
        self._answers.pop()(logged, body)

    def fail(self, error: KourouError | None = None) -> None:
        self._answers.pop()(error or Unavailable("gone"), b"")


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
    assert bench.repaired == 3
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
    await bench.asks(3)
    bench.answer()
    assert bench.store.damaged_regions == []


async def test_a_region_that_cannot_be_repaired_does_not_block_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "kourou.raft")
    bench = Bench(Region(100, 104, "rot"), Region(600, 604, "rot"))
    bench.repairs.look()
    for _ in range(2):
        bench.fail(Corrupt("damaged there, too"))
    await bench.asks(3)
    assert bench.asked == [("n1", 100, 4), ("n2", 100, 4), ("n1", 600, 4)]
    bench.answer(epoch=2)
    assert bench.store.damaged_regions == [Region(100, 104, "rot")]
    said = len(caplog.records)
    for number in range(4, 12):
        await bench.asks(number)
        assert bench.asked[-1][1] == 100
        bench.fail(Corrupt("damaged there, too"))
    assert len(caplog.records) == said, "what was said of a place is not said again"
    bench.repairs.stop()


async def test_who_does_not_answer_is_not_waited_for_once_more_in_a_round() -> None:
    bench = Bench(Region(100, 104, "rot"), Region(600, 604, "rot"))
    bench.repairs.look()
    bench.fail()
    bench.fail(Corrupt("damaged there, too"))
    await bench.asks(3)
    assert [member for member, _, _ in bench.asked] == ["n1", "n2", "n2"]
    bench.fail(Corrupt("damaged there, too"))
    await bench.asks(4)
    assert bench.asked[-1] == ("n1", 100, 4), "the next round asks it again"
    bench.repairs.stop()


async def test_who_is_damaged_more_than_the_others_asks_behind_their_damage() -> None:
    """One region here is many records, and the first of them is all that the others lost."""
    bench = Bench(Region(100, 150, "rot"))
    bench.repairs.look()
    bench.damaged_there(120)
    bench.damaged_there(110)
    await bench.asks(3)
    assert bench.asked == [("n1", 100, 50), ("n2", 100, 50), ("n1", 110, 40)]
    bench.answer(bytes(36) + b"good")
    assert bench.store.damaged_regions == [Region(100, 110, "rot")]
    assert bench.repaired == 1
    bench.repairs.stop()


@pytest.mark.parametrize(
    "damaged",
    [
        lambda bench: bench.damaged_there(150),
        lambda bench: bench.damaged_there(110, epoch=2),
        lambda bench: bench.damaged_there(100),
    ],
    ids=["all of it", "of another epoch", "without an end"],
)
async def test_a_region_damaged_at_every_replica_is_passed_over(damaged) -> None:
    bench = Bench(Region(100, 150, "rot"), Region(600, 604, "rot"))
    bench.repairs.look()
    damaged(bench)
    damaged(bench)
    await bench.asks(3)
    assert bench.asked[-1] == ("n1", 600, 4)
    assert bench.store.damaged_regions[0] == Region(100, 150, "rot"), "damage is never stored"
    bench.repairs.stop()


def test_a_disk_that_fails_ends_the_process() -> None:
    bench = Bench(Region(100, 109, "rot"))
    bench.repairs.look()
    bench.answer(b"dead disk")
    assert [type(one) for one in bench.failures] == [StoreFaulted]
    bench.repairs.look()
    assert len(bench.asked) == 1, "nobody is asked any more"


def test_uncommitted_damage_is_not_repaired() -> None:
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
    assert bench.repaired == 0
    bench.repairs.look()
    assert len(bench.asked) == 1
