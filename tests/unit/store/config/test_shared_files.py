"""Files that another program writes too; test_config_files.py has the tests of crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import DecodeError
from kourou.store.config.shared_files import SharedFiles
from kourou.testing.disk import SimDisk

HERE = Path("/s/config")
HASHES = Path("/s/own/hashes.json")


def decode(data: bytes) -> None:
    if data.startswith(b"#"):
        raise DecodeError("damaged")


def opened(disk: SimDisk) -> SharedFiles:
    return SharedFiles(disk, HERE, HASHES, 1_000)


def overwrite(disk: SimDisk, data: bytes) -> None:
    disk.unlink(HERE / "a")
    disk.open(HERE / "a", create_size=0).pwrite(data, 0)


def test_what_we_wrote_is_ours_and_what_others_wrote_is_not() -> None:
    disk = SimDisk(0)
    files = opened(disk)
    assert files.external(["a", "b"]) == []
    assert files.save("a", b"1", decode)
    assert not files.save("a", b"1", decode), "it stands there already"
    assert files.external(["a", "b"]) == []
    assert opened(disk).external(["a"]) == []
    overwrite(disk, b"2")
    assert opened(disk).external(["a", "b"]) == ["a"]
    files.acknowledge(["a"])
    assert opened(disk).external(["a"]) == []
    disk.unlink(HERE / "a")
    assert opened(disk).external(["a"]) == ["a"]
    files.acknowledge(["a"])
    assert opened(disk).external(["a"]) == []


def test_the_content_before_is_ours_too_and_becomes_the_copy() -> None:
    disk = SimDisk(0)
    files = opened(disk)
    files.save("a", b"1", decode)
    files.save("a", b"2", decode)
    assert files.read("a.bak") == b"1"
    overwrite(disk, b"1")  # as if the new content had not been written any more
    assert opened(disk).external(["a"]) == []


@pytest.mark.parametrize("damaged", [b"#", b" \n"])
def test_damaged_bytes_do_not_become_the_copy(damaged: bytes) -> None:
    disk = SimDisk(0)
    files = opened(disk)
    files.save("a", b"1", decode)
    files.save("a", b"2", decode)
    overwrite(disk, damaged)
    files.save("a", b"3", decode)
    assert (files.read("a"), files.read("a.bak")) == (b"3", b"1")
    overwrite(disk, b"4")
    files.save("a", b"5", decode)
    assert files.read("a.bak") == b"4"


def test_a_file_that_is_too_long_is_not_read() -> None:
    disk = SimDisk(0)
    files = opened(disk)
    files.save("a", b"1", decode)
    overwrite(disk, bytes(1_001))
    with pytest.raises(OSError, match="at most 1000"):
        files.read("a")
