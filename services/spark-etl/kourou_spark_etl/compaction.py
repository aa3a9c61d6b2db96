"""Compacts the small files of a lake into large ones, while readers use the lake.

    1  a partition's small files are copied into new ones, in merged/
    2  the next manifest lists these, and the files that they replace; renaming it is the switch
    3  files that were replaced longer ago than the grace period are deleted

A crash leaves files that no manifest lists; they are deleted after the grace period, too. Each lake
has one compactor, that of its query. It needs neither Spark nor a JVM; it copies rows in batches.

State: log (the manifests).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kourou_spark_etl.lake_files import (
    MANIFESTS,
    MERGED,
    LakeFile,
    LakeState,
    Manifest,
    Replaced,
    lake_state,
)
from kourou_spark_etl.source.columns import COLUMNS, arrow_schema

MERGE_FILES = 2
"""The minimum number of small files in a partition for a merge."""

_SCHEMA = arrow_schema(tuple(name for name in COLUMNS if name != "topic"))
_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of one pass: files merged, files created, files deleted."""

    merged: int = 0
    made: int = 0
    deleted: int = 0


def compact(folder: Path, *, file_bytes: int, grace_ms: int, now_ms: int) -> Compacted:
    """Run one pass over a lake, with files of about `file_bytes`. Raises Corrupt or OSError."""
    state = lake_state(folder)
    made: list[LakeFile] = []
    replaced: list[LakeFile] = []
    for some in _plan(state, file_bytes):
        made.append(_merge(folder, some))
        replaced += some
    manifest = state.manifest
    if made:
        manifest = _switched(folder, state, made, replaced, now_ms)
        _write_manifest(folder, manifest)
    deleted = _sweep(folder, state, manifest, now_ms - grace_ms)
    return Compacted(len(replaced), len(made), deleted)


def _plan(state: LakeState, file_bytes: int) -> Iterator[list[LakeFile]]:
    """Groups of a partition's small files; each group becomes one file."""
    by_partition: dict[str, list[LakeFile]] = {}
    for file in state.files:
        if file.size < file_bytes // 2:
            by_partition.setdefault(file.partition, []).append(file)
    for partition in sorted(by_partition):
        group: list[LakeFile] = []
        size = 0
        for file in by_partition[partition]:
            if group and size + file.size > file_bytes:
                if len(group) >= MERGE_FILES:
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.size
        if len(group) >= MERGE_FILES:
            yield group


def _merge(folder: Path, files: Sequence[LakeFile]) -> LakeFile:
    """Create one file with the rows of several, flushed to disk before a manifest lists it."""
    target = folder / MERGED / files[0].partition / f"merged-{uuid.uuid4().hex}.zstd.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    # Readers of the folder ignore names that start with an underscore.
    unfinished = target.with_name(f"_{target.name}")
    with pq.ParquetWriter(unfinished, _SCHEMA, compression="zstd") as writer:
        for file in files:
            source = pq.ParquetFile(folder / file.path, coerce_int96_timestamp_unit="us")
            with source:
                for batch in source.iter_batches(_ROWS):
                    writer.write_batch(_own_types(batch))
    _flush(unfinished)
    unfinished.rename(target)
    _flush(target.parent)
    return LakeFile(target.relative_to(folder).as_posix(), target.stat().st_size)


def _own_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Restore the source's types: Spark's legacy timestamps have no time zone; they are UTC."""
    columns = [
        batch.column(field.name).cast(field.type)
        if batch.schema.field(field.name).type != field.type
        else batch.column(field.name)
        for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _switched(
    folder: Path,
    state: LakeState,
    made: Sequence[LakeFile],
    replaced: Sequence[LakeFile],
    now_ms: int,
) -> Manifest:
    gone = {file.path for file in replaced}
    listed = {file.path for file in state.incoming}
    old = state.manifest
    kept = [
        # Keep replaced incoming files as long as Spark's log lists them, otherwise their rows would
        # count again; keep merged ones, which only this list contains, until they are deleted.
        one
        for one in old.replaced
        if one.path in listed
        or (one.path.startswith(f"{MERGED}/") and (folder / one.path).exists())
    ]
    return Manifest(
        old.number + 1,
        (*(file for file in old.files if file.path not in gone), *made),
        (*kept, *(Replaced(file.path, now_ms) for file in replaced)),
    )


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    place = folder / MANIFESTS
    place.mkdir(exist_ok=True)
    path = place / f"{manifest.number:012}.json"
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(msgspec.json.encode(manifest))
    _flush(unfinished)
    unfinished.rename(path)
    _flush(place)
    for older in place.glob("*.json"):
        if older.name < path.name:
            older.unlink()


def _sweep(folder: Path, state: LakeState, manifest: Manifest, before_ms: int) -> int:
    """Delete files replaced before `before_ms`, and merged files of that age without a manifest."""
    deleted = 0
    for one in manifest.replaced:
        path = folder / one.path
        if one.at_ms <= before_ms and path.exists():
            path.unlink()
            deleted += 1
    named = {file.path for file in manifest.files} | {one.path for one in manifest.replaced}
    named |= {file.path for file in state.manifest.files}
    for path in (folder / MERGED).rglob("*.parquet"):
        unnamed = path.relative_to(folder).as_posix() not in named
        if unnamed and path.stat().st_mtime_ns // 1_000_000 <= before_ms:
            path.unlink()
            deleted += 1
    return deleted


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
