"""Is the lake what was sent? Every row of its Parquet files, by the identity of its message.

pyarrow is an extra's, and loaded when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = tuple[str, bytes]
"""A message's id, and its body."""


@dataclass(frozen=True, slots=True)
class LakeCount:
    """`duplicates` are rows beyond the first of a message, `missing` messages without a row.

    `strange` are messages that nobody sent, or whose body is another one.
    """

    rows: int
    duplicates: int
    missing: int
    strange: int


def compare(sent: Mapping[str, bytes], rows: Iterable[Row]) -> LakeCount:
    """Count rows against what was sent: id to body."""
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
        # By the file alone: as a data set, its folder's names would be columns, too.
        with ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["message_id", "value"]):
                columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
                yield from zip(*columns, strict=True)
