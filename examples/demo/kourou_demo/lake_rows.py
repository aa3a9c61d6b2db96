"""Compares the rows of the lake's Parquet files with the messages that were sent.

pyarrow comes with an extra and is imported only when needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = tuple[str, bytes]
"""The message ID and the body."""


@dataclass(frozen=True, slots=True)
class LakeCount:
    """`duplicates` are rows beyond the first of a message, `missing` messages without a row.

    `strange` are rows that do not belong to a sent message or have a different body.
    """

    rows: int
    duplicates: int
    missing: int
    strange: int


def compare(sent: Mapping[str, bytes], rows: Iterable[Row]) -> LakeCount:
    """Compare rows with the bodies that were sent, by message ID."""
    count = 0
    seen: set[str] = set()
    strange: set[str] = set()
    for identity, body in rows:
        count += 1
        seen.add(identity)
        if sent.get(identity) != body:
            strange.add(identity)
    return LakeCount(count, count - len(seen), len(sent.keys() - seen), len(strange))


def read_rows(paths: Iterable[Path]) -> Iterator[Row]:
    """All rows of some Parquet files."""
    from pyarrow.parquet import ParquetFile

    for path in paths:
        # Read the file alone: as a data set, folder names would become columns.
        with ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["message_id", "value"]):
                columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
                yield from zip(*columns, strict=True)
