"""Finds batches of a lake that Spark has committed, but did not report because of a crash.

Spark reports a batch once, after its commit. Batches for tables are numbered in the transaction of
their rows; those of a lake can only be found in the checkpoint's list of commits.

State: log: Spark's checkpoint and the lake's log, both read-only here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from kourou_spark_etl.lake_files import batch_paths
from kourou_spark_etl.queries import checkpoint_id
from kourou_spark_etl.read_model.read_model import Written

_log = logging.getLogger("kourou.spark")


def unheard_batches(
    checkpoint: Path, lake: Path, last: Written | None
) -> Iterator[tuple[str, int, int]]:
    """Checkpoint ID, number and row count of each committed batch after `last`.

    Nothing if the query has never started. Rows of files that were deleted since are not counted.
    """
    commits = checkpoint / "commits"
    if not commits.is_dir():
        return
    query_id = checkpoint_id(checkpoint)
    known = last.batch_id if last is not None and last.query_id == query_id else -1
    numbers = sorted(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for number in numbers:
        if number > known:
            yield query_id, number, _rows_in(batch_paths(lake, number))


def _rows_in(paths: Iterable[Path]) -> int:
    count = 0
    for path in paths:
        try:
            with ParquetFile(path) as file:
                count += file.metadata.num_rows
        except (OSError, pa.ArrowInvalid) as error:
            _log.warning("the rows of %s cannot be counted: %s", path, error)
    return count
