from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError, Corrupt
from kourou.store.disk import write_atomically
from kourou.store.paths import StorePaths
from kourou.store.startup import FORMAT, check_format, write_format
from kourou.testing.disk import SimDisk

PATHS = StorePaths.under(Path("/store"))


def _disk(content: bytes | None) -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(PATHS.kourou)
    if content is not None:
        write_atomically(disk, PATHS.format_version, content)
    return disk


def test_a_store_without_our_file_is_not_ours() -> None:
    assert not check_format(_disk(None), PATHS)


def test_our_own_version_is_known() -> None:
    disk = _disk(None)
    write_format(disk, PATHS)
    assert check_format(disk, PATHS)


def test_a_newer_version_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match=rf"format {FORMAT + 1}.*nothing was changed"):
        check_format(_disk(b'{"format": %d}' % (FORMAT + 1)), PATHS)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format":"x"}', b"\xff\xfe", b"[1]"])
def test_a_file_that_says_nothing_is_corrupt(content: bytes) -> None:
    with pytest.raises(Corrupt, match=r"format\.json"):
        check_format(_disk(content), PATHS)
