"""The file that mirrors the filters."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.engine.filters import filter_table as filters
from kourou.engine.filters.filter_table import (
    FilterAggregate,
    FiltersSnapshot,
    filters_of,
    snapshot,
)
from kourou.errors import Corrupt, StoreFaulted
from kourou.events.control_events import FilterEnabled, FilterQuarantined, FilterUploaded
from kourou.model import limits
from kourou.store.config import config_files
from kourou.store.config.config_files import read_filters, write_filters
from kourou.store.paths import StorePaths
from kourou.testing.disk import SimDisk

PATHS = StorePaths.under(Path("/s"))


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk()
    for directory in PATHS.directories:
        made.make_dirs(directory)
    return made


def some() -> FilterAggregate:
    made = FilterAggregate()
    for offset, event in enumerate(
        (
            FilterUploaded("till", "late", 1, "def match(“m”):\n\t…\f", "00", "ann", "why"),
            FilterEnabled("till", "late", 1),
            FilterQuarantined("till", "late", 1, "it died", "f:1"),
            FilterUploaded("desk", "a", 1, "x", "01"),
        ),
        start=5,
    ):
        filters.evolve(made, event, offset, 1_000 + offset)
    return made


@pytest.mark.feature("F240")
def test_what_was_written_is_read_again(disk: SimDisk) -> None:
    assert read_filters(disk, PATHS) is None
    made = some()
    write_filters(disk, PATHS, snapshot(made))
    read = read_filters(disk, PATHS)
    assert read is not None
    assert filters_of(read) == made
    assert read.next_offset == 9
    write_filters(disk, PATHS, FiltersSnapshot())
    assert read_filters(disk, PATHS) == FiltersSnapshot()


def test_a_file_that_is_cut_or_foreign_is_refused_and_not_taken_for_none(disk: SimDisk) -> None:
    write_filters(disk, PATHS, snapshot(some()))
    whole = disk.read(PATHS.filters)
    for data in (b"", b"{}", b"[]", b"\xff", whole[:-1], whole.replace(b'"hold"', b'"drop"')):
        disk.unlink(PATHS.filters)
        file = disk.open(PATHS.filters, create_size=len(data))
        if data:
            file.pwrite(data, 0)
        file.close()
        with pytest.raises(Corrupt, match=r"kourou/filters\.json: .*remove the file"):
            read_filters(disk, PATHS)
    disk.unlink(PATHS.filters)
    newer = whole.replace(b'{"format":1', b'{"format":2')
    disk.open(PATHS.filters, create_size=len(newer)).pwrite(newer, 0)
    with pytest.raises(Corrupt, match="has format 2"):
        read_filters(disk, PATHS)


def test_a_file_beyond_its_limit_is_not_read(disk: SimDisk, monkeypatch) -> None:
    write_filters(disk, PATHS, snapshot(some()))
    assert limits.OWN_FILE_BYTES_MAX == config_files.OWN_FILE_BYTES_MAX
    monkeypatch.setattr(config_files, "OWN_FILE_BYTES_MAX", 10)
    with pytest.raises(StoreFaulted, match=r"reading /s/kourou/filters\.json"):
        read_filters(disk, PATHS)
