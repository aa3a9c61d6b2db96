"""What is counted while the leader of a group dies; the act itself is in the demo's own test."""

from __future__ import annotations

from pathlib import Path

from kourou.clock import SystemClock
from kourou.model.message import SendResult, SendStatus
from kourou_demo.flights import Flight
from kourou_demo.group_of_three import log_bytes
from kourou_demo.lost_leader import Traffic


class Group:
    """Stands for a client whose followers do not answer in time."""

    async def send(self, *_: object, **__: object) -> SendResult:
        return SendResult(SendStatus.FLUSH_SLAVE_TIMEOUT, "id", "id", None, 0)  # type: ignore[arg-type]


def traffic() -> Traffic:
    flights = [
        Flight(row, "2013-02-08T10:00:00Z", "2013-02-08", "UA", row, "EWR", "IAH", 1_400)
        for row in range(30)
    ]
    return Traffic(flights, SystemClock())


async def test_only_what_a_majority_has_is_acknowledged() -> None:
    some = traffic()
    some.member_is_back.set()
    await some.send(Group())  # type: ignore[arg-type]  # as far as it is used here
    assert not some.acknowledged


def test_what_was_heard_is_counted_by_flight() -> None:
    some = traffic()
    some.acknowledged |= {1, 2, 3}
    for row in (1, 1, 3, 8):
        some.hear(row)
    assert (some.lost, some.redelivered) == (1, 1)


# -- A member's log is read as it lies in its files ------------------------------------------------


def test_the_files_of_a_log_are_read_in_their_order_up_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / f"{4:020}").write_bytes(b"efg\0")
    (folder / f"{0:020}").write_bytes(b"abcd")
    assert log_bytes(tmp_path, 7) == b"abcdefg"
