"""The files of a lake's folder, and which of them have its current rows.

    incoming/                     Spark's file sink; incoming/_spark_metadata lists committed files
    merged/topic=…/date=…/        files that were compacted from several of those
    manifests/000000000007.json   the valid merged files, and the files that they replace

The rows of the lake are those of the newest manifest's files, and of every committed incoming file
that it does not replace. Replaced files are kept for the grace period, so that a reader of an older
manifest still finds its files.

State: log: the sink's log for incoming files, the manifests for merged ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from kourou.errors import Corrupt

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


class Manifest(msgspec.Struct, frozen=True):
    """The result of compaction. `number` grows by one with each manifest."""

    number: int = 0
    files: tuple[LakeFile, ...] = ()
    replaced: tuple[Replaced, ...] = ()


@dataclass(frozen=True, slots=True)
class LakeState:
    """A lake at one moment: all committed incoming files, and the newest manifest."""

    incoming: tuple[LakeFile, ...]
    manifest: Manifest

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
    from kourou_spark_etl.source.columns import SCHEMA_DDL

    return f"{SCHEMA_DDL}, date DATE"


# -- the manifest ---------------------------------------------------------------------------------


def read_manifest(folder: Path) -> Manifest:
    """The newest manifest; an empty one if nothing was compacted yet."""
    for _ in range(_READ_AGAIN):
        newest = max((folder / MANIFESTS).glob("*.json"), default=None)
        if newest is None:
            return Manifest()
        try:
            return msgspec.json.decode(newest.read_bytes(), type=Manifest)
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
