"""A member's log is read as it lies in its files."""

from __future__ import annotations

from pathlib import Path

from kourou_demo.group_of_three import log_bytes


def test_the_files_of_a_log_are_read_in_their_order_up_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / f"{4:020}").write_bytes(b"efg\0")
    (folder / f"{0:020}").write_bytes(b"abcd")
    assert log_bytes(tmp_path, 7) == b"abcdefg"
