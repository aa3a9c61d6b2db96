"""The files of a lake's folder, which of them have its current rows, and their compaction.

    incoming/                     Spark's file sink; incoming/_spark_metadata lists committed files
    merged/topic=…/date=…/        files that were compacted from several of those
    manifests/000000000007.json   the valid merged files, and the files that they replace

The rows of the lake are those of the newest manifest's files, and of every committed incoming file
that it does not replace. Replaced files are kept for the grace period, so that a reader of an older
manifest still finds its files.

Small files are compacted into large ones, while readers use the lake:

    1  a partition's small files are copied into new ones, in merged/
    2  the next manifest lists these, and the files that they replace; renaming it is the switch
    3  files that were replaced longer ago than the grace period are deleted

A crash leaves files that no manifest lists; they are deleted after the grace period, too. Each lake
has one compactor, that of its query. It needs neither Spark nor a JVM; it copies rows in batches.

State: log: the sink's log for incoming files, the manifests for merged ones.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kourou.errors import Corrupt
from kourou_spark_etl.source.arrow_rows import COLUMNS, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


INCOMING = "incoming"
MERGED = "merged"
MANIFESTS = "manifests"
SINK_LOG = "_spark_metadata"
_COMPACT = ".compact"
_READ_AGAIN = 5
"""Spark may delete older files of its log during a read; newer files contain the same entries."""


class LakeFile(msgspec.Struct, frozen=True):
    """A file of rows. `path` is relative to the lake's folder: incoming/topic=a/date=…/part-…"""

    path: str
    size: int

    @property
    def partition(self) -> str:
        """`topic=a/date=2013-01-01`, as written in the path."""
        return self.path.split("/", 1)[1].rpartition("/")[0]


class Replaced(msgspec.Struct, frozen=True):
    """A file whose rows were merged into another one, and when."""

    path: str
    at_ms: int


class LakeManifest(msgspec.Struct, frozen=True):
    """The result of compaction. `number` grows by one with each manifest."""

    number: int = 0
    files: tuple[LakeFile, ...] = ()
    replaced: tuple[Replaced, ...] = ()


@dataclass(frozen=True, slots=True)
class LakeState:
    """A lake at one moment: all committed incoming files, and the newest manifest."""

    incoming: tuple[LakeFile, ...]
    manifest: LakeManifest

    @property
    def fresh(self) -> tuple[LakeFile, ...]:
        """Incoming files that no merged one replaces."""
        gone = {one.path for one in self.manifest.replaced}
        return tuple(file for file in self.incoming if file.path not in gone)

    @property
    def files(self) -> tuple[LakeFile, ...]:
        """The files with the lake's rows, each row once."""
        return (*self.manifest.files, *self.fresh)


def lake_state(folder: Path) -> LakeState:
    """The current state of a lake's folder. Raises Corrupt if a log cannot be read.

    The manifest is read after Spark's log, so every file that it replaces is in the log already, or
    not listed at all.
    """
    incoming = _incoming(folder)
    return LakeState(incoming, read_manifest(folder))


def lake_paths(folder: Path) -> list[Path]:
    """The Parquet files with the lake's rows, for readers other than Spark."""
    return [folder / file.path for file in lake_state(folder).files]


def batch_paths(folder: Path, number: int) -> list[Path]:
    """The files that a batch of the sink has added, including those that were merged since.

    If Spark compacted its log at that batch, these are the files that earlier batches do not list,
    as long as Spark keeps those.
    """
    log = folder / INCOMING / SINK_LOG
    alone, together = log / str(number), log / f"{number}{_COMPACT}"
    if not together.exists():
        entries = _entries(alone) if alone.exists() else []
        return [folder / _relative(entry.path, folder) for entry in entries]
    before = {
        entry.path
        for path in log.iterdir()
        if (name := path.name.removesuffix(_COMPACT)).isdecimal() and int(name) < number
        for entry in _entries(path)
    }
    added = [entry.path for entry in _entries(together) if entry.path not in before]
    return [folder / _relative(path, folder) for path in added]


def read_lake(spark: SparkSession, folder: Path) -> DataFrame:
    """All rows of a lake, each once, with the columns topic and date."""
    folder = folder.resolve()
    state = lake_state(folder)
    parts = [
        _read(spark, folder / place, files)
        for place, files in ((MERGED, state.manifest.files), (INCOMING, state.fresh))
        if files
    ]
    if not parts:
        return spark.createDataFrame([], schema=_schema())
    both = parts[0]
    for part in parts[1:]:
        both = both.unionByName(part)
    return both


def _read(spark: SparkSession, base: Path, files: Sequence[LakeFile]) -> DataFrame:
    # Not Python's URIs: Hadoop does not decode percent signs in a path.
    paths = [f"file://{base.parent / file.path}" for file in files]
    reader = spark.read.schema(_schema()).option("basePath", f"file://{base}")
    # Explicit files, because the folder also contains uncommitted files.
    return reader.parquet(*paths)


def _schema() -> str:
    from kourou_spark_etl.source.arrow_rows import SCHEMA_DDL

    return f"{SCHEMA_DDL}, date DATE"


# -- the manifest ---------------------------------------------------------------------------------


def read_manifest(folder: Path) -> LakeManifest:
    """The newest manifest; an empty one if nothing was compacted yet."""
    for _ in range(_READ_AGAIN):
        newest = max((folder / MANIFESTS).glob("*.json"), default=None)
        if newest is None:
            return LakeManifest()
        try:
            return msgspec.json.decode(newest.read_bytes(), type=LakeManifest)
        except FileNotFoundError:
            continue  # it was replaced by a newer one
        except msgspec.DecodeError as error:
            raise Corrupt(f"manifest {newest} is damaged: {error}") from error
    raise Corrupt(f"the manifests in {folder} changed during each attempt to read them")


# -- the sink's log -------------------------------------------------------------------------------


class _Entry(msgspec.Struct):
    """A line of Spark's log (FileStreamSinkLog, version 1)."""

    path: str
    size: int
    action: str = "add"


def _incoming(folder: Path) -> tuple[LakeFile, ...]:
    for _ in range(_READ_AGAIN):
        try:
            return _read_log(folder)
        except FileNotFoundError:
            continue  # Spark compacted its log and deleted the parts
    raise Corrupt(f"the log in {folder / INCOMING} changed during each attempt to read it")


def _read_log(folder: Path) -> tuple[LakeFile, ...]:
    log = folder / INCOMING / SINK_LOG
    numbered: dict[int, Path] = {}
    start = -1
    for path in log.iterdir() if log.is_dir() else ():
        name = path.name.removesuffix(_COMPACT)
        if name.isdecimal():
            numbered[int(name)] = path
            if path.name.endswith(_COMPACT):
                start = max(start, int(name))
    found: dict[str, LakeFile] = {}
    for number in sorted(numbered):
        if number >= start:
            for entry in _entries(numbered[number]):
                path_in_lake = _relative(entry.path, folder)
                found[path_in_lake] = LakeFile(path_in_lake, entry.size)
    if start < 0 and numbered and min(numbered) != 0:
        raise Corrupt(f"the start of the log in {log} is missing")
    return tuple(found.values())


def _entries(path: Path) -> list[_Entry]:
    version, *lines = path.read_text(encoding="utf-8").splitlines()
    if version != "v1":
        raise Corrupt(f"{path} has version {version!r}; only v1 is supported")
    try:
        return [msgspec.json.decode(line, type=_Entry) for line in lines if line]
    except msgspec.DecodeError as error:
        raise Corrupt(f"{path} is damaged: {error}") from error


def _relative(uri: str, folder: Path) -> str:
    """The path of a log entry relative to the lake's folder, which may have been moved since."""
    path = unquote(urlsplit(uri).path)
    mark = f"/{INCOMING}/"
    at = path.find(mark, max(0, path.rfind(f"/{folder.name}/")))
    if at < 0:
        raise Corrupt(f"the log of {folder} names {uri}, which is not inside it")
    return path[at + 1 :]


# -- compaction -----------------------------------------------------------------------------------

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
) -> LakeManifest:
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
    return LakeManifest(
        old.number + 1,
        (*(file for file in old.files if file.path not in gone), *made),
        (*kept, *(Replaced(file.path, now_ms) for file in replaced)),
    )


def _write_manifest(folder: Path, manifest: LakeManifest) -> None:
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


def _sweep(folder: Path, state: LakeState, manifest: LakeManifest, before_ms: int) -> int:
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
