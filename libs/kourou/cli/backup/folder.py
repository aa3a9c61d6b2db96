"""The folder of a backup: its manifest, the state before the start of its log, and the segments.

State: log: only what the manifest lists is valid, whatever else the files contain. The manifest is
replaced atomically, after the bytes that it lists are synced. Format: docs/formats/backup.md.

    <folder>/manifest.json
    <folder>/beginning.json                  the state before the log begins, as sent by the broker
    <folder>/commitlog/<position>            segments; the last one ends where the backup ends
    <folder>/lock

A file that is a symbolic link is not read and not written: a user who can write to the folder
would choose which other file that is. Folders may be links.

Invariants:  data is on disk before the manifest names it
             every record is checked (kourou.store.replica.chunks) before it is written
             a sealed segment has its full length and is never written again
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from kourou.engine.admin.log_bootstrap import LogBeginning, decode_beginning
from kourou.errors import ConfigError, Corrupt, DecodeError
from kourou.model.limits import OWN_FILE_BYTES_MAX
from kourou.protocol.messages.replication import FetchLogResponse
from kourou.replication.epochs import Epochs
from kourou.store.disk import DiskLock, File, as_store_error, read_whole, write_atomically
from kourou.store.paths import file_name
from kourou.store.real_disk import RealDisk, open_file
from kourou.store.replica.chunks import check_chunk

FORMAT = 1

Count = Annotated[int, msgspec.Meta(ge=0)]


class Sealed(msgspec.Struct, frozen=True):
    """A complete segment, which no longer changes."""

    start: Count
    sha256: str


class DamagedRange(msgspec.Struct, frozen=True):
    """[start, end) of the log has no readable record at the broker either."""

    start: Count
    end: Count
    reason: str


class BackupManifest(msgspec.Struct, kw_only=True):
    """A copy of the log from `first` to `end`, all of it committed when it was copied.

    `last` is the position of its last readable record, -1 if it has none; `last_size` its length.
    Times are ISO 8601 in UTC. `whole`: the last run was completed.
    """

    format: int = FORMAT
    cluster: str
    broker: str
    source: str
    segment_size: Annotated[int, msgspec.Meta(gt=0)]
    first: Count
    end: Count
    confirmed: Count = 0
    last: Annotated[int, msgspec.Meta(ge=-1)] = -1
    last_size: Count = 0
    epochs: list[tuple[Count, Count]] = []
    started: str = msgspec.field(default="", name="begun")
    taken: str = ""
    whole: bool = False
    beginning_sha256: str
    sealed: list[Sealed] = []
    damaged: list[DamagedRange] = []

    def history(self) -> Epochs:
        """The epochs of the copied bytes; raises Corrupt for impossible values."""
        return Epochs(self.epochs, self.end)


class _Format(msgspec.Struct):
    format: int


def encode_manifest(manifest: BackupManifest) -> bytes:
    """Encode as readable JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes, name: str) -> BackupManifest:
    """Decode the output of `encode_manifest`; raises Corrupt, naming the file `name`."""
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found != FORMAT:
            raise Corrupt(f"{name} has format {found}; this version reads {FORMAT}")
        return msgspec.json.decode(data, type=BackupManifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(
            f"{name} cannot be read: {error}", hint="it is not a backup, or it is damaged"
        ) from error


SAVE_BYTES = 64 * 1024 * 1024
"""The most bytes that are copied again after a run was killed."""
_READ_BYTES = 4 * 1024 * 1024
_OWN = frozenset({"lock", "commitlog", "beginning.json", "manifest.json"})
"""Files that exist if a run was killed before its first manifest."""


class BackupFolder:
    """A backup that is open in one process. `close` saves what was added since the last `save`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._disk = RealDisk()
        self._lock: DiskLock | None = None
        self._file: File | None = None
        self._file_start = -1
        self._unsaved = 0
        self._manifest: BackupManifest | None = None

    @property
    def manifest(self) -> BackupManifest:
        """The manifest of an existing backup."""
        assert self._manifest is not None, "nothing is there yet"
        return self._manifest

    @property
    def known(self) -> bool:
        """True if the folder has a backup, even an incomplete one."""
        return self._manifest is not None

    # -- opening ----------------------------------------------------------------------------------

    def open(self, *, make: bool) -> None:
        """Read the manifest; with `make`, create and lock the folder first.

        Raises ConfigError for a folder that contains other files or is in use, Corrupt for a
        manifest that cannot be read, DiskFull or StoreFaulted if the disk fails.
        """
        try:
            if make:
                self._refuse_other_files()
                self._disk.make_dirs(self.path / "commitlog")
                self._lock = self._disk.lock(self.path / "lock")
            data = read_whole(self._disk, self.path / "manifest.json", OWN_FILE_BYTES_MAX)
        except BlockingIOError as error:
            raise ConfigError(f"another backup is running in {self.path}") from error
        except (NotADirectoryError, FileExistsError) as error:
            raise ConfigError(f"{self.path} is not a folder") from error
        except PermissionError as error:
            raise ConfigError(f"{self.path} may not be read or written by this user") from error
        except OSError as error:
            raise as_store_error(error, f"opening {self.path}") from error
        if data is not None:
            self._manifest = decode_manifest(data, str(self.path / "manifest.json"))
            return
        if not make:
            raise ConfigError(f"there is no backup in {self.path}: manifest.json is missing")
        if self._disk.list_dir(self.path / "commitlog"):
            raise ConfigError(
                f"{self.path} has a commitlog but no manifest.json: it is not a backup",
                hint="use a new folder",
            )

    def _refuse_other_files(self) -> None:
        """Raises ConfigError if the folder contains files that do not belong to a backup."""
        path = self.path
        if not self._disk.exists(path) or self._disk.exists(path / "manifest.json"):
            return
        names = self._disk.list_dir(path)
        strange = [name for name in names if name.removesuffix(".tmp") not in _OWN]
        if strange:
            raise ConfigError(
                f"{path} is not a backup and has other files: {', '.join(sorted(strange)[:5])}",
                hint="use a new or empty folder",
            )

    def close(self) -> None:
        """Save the added data if possible, then release the file and the lock."""
        try:
            if self._file is not None:
                self.save()
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    # -- writing ----------------------------------------------------------------------------------

    def begin(self, beginning: LogBeginning, body: bytes, source: str) -> None:
        """Start a backup at the given log beginning; raises DiskFull, StoreFaulted."""
        try:
            write_atomically(self._disk, self.path / "beginning.json", body)
        except OSError as error:
            raise as_store_error(error, f"writing {self.path / 'beginning.json'}") from error
        now = _now()
        self._manifest = BackupManifest(
            cluster=beginning.cluster,
            broker=beginning.broker_name,
            source=source,
            segment_size=beginning.segment_size,
            first=beginning.position,
            end=beginning.position,
            epochs=list(beginning.epochs),
            started=now,
            taken=now,
            beginning_sha256=hashlib.sha256(body).hexdigest(),
        )
        self.save()

    def add(self, header: FetchLogResponse, data: memoryview) -> None:
        """Append the piece of the log that starts at the end of this one.

        Raises Corrupt, and appends nothing, for bytes that do not match the header or belong to
        another history; DiskFull or StoreFaulted if the disk fails.
        """
        manifest = self.manifest
        position, size = manifest.end, manifest.segment_size
        if header.position != position:
            raise Corrupt(
                f"requested data from {position}, but the reply starts at {header.position}"
            )
        known = manifest.history()
        if header.previous_epoch != known.last:
            raise parted(manifest, f"it has epoch {header.previous_epoch} before {position}")
        last = None
        if header.damage:
            if len(data) != header.end - position or header.end > position - position % size + size:
                raise Corrupt(f"{len(data)} bytes are not the data from {position} to {header.end}")
        else:
            checked = check_chunk(data, position, size)
            if checked.end != header.end:
                raise Corrupt(f"the piece from {position} ends at {checked.end}, not {header.end}")
            if len(checked.records):
                start = int(checked.records.starts[-1])
                last = position + start, int(checked.records.sizes[-1])
        if header.data_epoch != header.previous_epoch:
            if header.data_epoch <= known.newest:
                raise parted(manifest, f"epoch {header.data_epoch} begins at {position}")
            known.open(header.data_epoch, position)
        self._write(position, data)
        if header.damage:
            manifest.damaged.append(DamagedRange(position, header.end, header.damage))
        if last is not None:
            manifest.last, manifest.last_size = last
        manifest.epochs = list(known.opened())
        manifest.end = header.end
        self._unsaved += len(data)
        if header.end % size == 0:
            self._seal(header.end - size)
        elif self._unsaved >= SAVE_BYTES:
            self.save()

    def _write(self, position: int, data: memoryview) -> None:
        start = position - position % self.manifest.segment_size
        path = self.segment(start)
        try:
            if self._file is None or self._file_start != start:
                if self._file is not None:
                    self._file.close()
                self._file = self._disk.open(path, create_size=0)
                self._file_start = start
            self._file.pwrite(data, position - start)
        except OSError as error:
            raise as_store_error(error, f"writing {path}") from error

    def _seal(self, start: int) -> None:
        path = self.segment(start)
        try:
            os.truncate(path, self.manifest.segment_size)  # nothing follows a filler
        except OSError as error:
            raise as_store_error(error, f"writing {path}") from error
        self.manifest.sealed.append(Sealed(start, self._sha256(path)))
        self.save()

    def save(self) -> None:
        """Sync the data and write the manifest; raises DiskFull, StoreFaulted."""
        manifest = self.manifest
        manifest.taken = _now()
        try:
            if self._file is not None:
                self._file.fdatasync()
                self._disk.sync_dir(self.path / "commitlog")
            write_atomically(self._disk, self.path / "manifest.json", encode_manifest(manifest))
        except OSError as error:
            raise as_store_error(error, f"writing {self.path / 'manifest.json'}") from error
        self._unsaved = 0

    # -- reading ----------------------------------------------------------------------------------

    def segment(self, start: int) -> Path:
        """The file of the segment at that position."""
        return self.path / "commitlog" / file_name(start)

    def beginning(self) -> LogBeginning:
        """The state before the start of its log; raises Corrupt if the file was modified."""
        path = self.path / "beginning.json"
        try:
            body = read_whole(self._disk, path, OWN_FILE_BYTES_MAX)
        except OSError as error:
            raise as_store_error(error, f"reading {path}") from error
        if body is None or hashlib.sha256(body).hexdigest() != self.manifest.beginning_sha256:
            raise Corrupt(f"{path} is missing or was changed", hint="take another backup")
        try:
            return decode_beginning(body)
        except DecodeError as error:
            raise Corrupt(f"{path}: {error.message}") from error

    def last_record(self) -> bytes:
        """The last readable record; empty if there is none."""
        manifest = self.manifest
        if manifest.last < 0:
            return b""
        start = manifest.last - manifest.last % manifest.segment_size
        path = self.segment(start)
        try:
            with open(path, "rb", opener=open_file) as file:
                file.seek(manifest.last - start)
                return file.read(manifest.last_size)
        except OSError as error:
            raise as_store_error(error, f"reading {path}") from error

    def segments(self) -> Iterator[tuple[int, int, str]]:
        """(start, valid bytes, sha256 or "" for the last one) of each segment."""
        manifest = self.manifest
        known = {one.start: one.sha256 for one in manifest.sealed}
        for start in range(manifest.first, manifest.end, manifest.segment_size):
            count = min(manifest.segment_size, manifest.end - start)
            if count == manifest.segment_size and start not in known:
                raise Corrupt(f"{self.path / 'manifest.json'} has no checksum of segment {start}")
            yield start, count, known.get(start, "")

    @staticmethod
    def _sha256(path: Path) -> str:
        found = hashlib.sha256()
        try:
            with open(path, "rb", opener=open_file) as file:
                while piece := file.read(_READ_BYTES):
                    found.update(piece)
        except OSError as error:
            raise as_store_error(error, f"reading {path}") from error
        return found.hexdigest()


def parted(manifest: BackupManifest, how: str) -> Corrupt:
    """The error for a broker log that is not the one of the backup."""
    return Corrupt(
        f"the log of {manifest.broker} diverged from this backup, which ends at {manifest.end}: "
        f"{how}",
        hint="nothing was changed; start a new backup in another folder and keep this one",
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
