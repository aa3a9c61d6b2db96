"""Small files that must survive every crash, of which some are written by other programs too.

**A sealed file** must never be wrong: it is protected by a checksum and stored twice.

State: none of its own; each user documents the kind of its state.

    4 bytes magic, then big-endian: 8 bytes sequence, 4 bytes length of the body; the body; 4 bytes
    CRC-32 of all that. Nothing follows.

Each copy is replaced atomically, one after the other, and `save` returns once both are on disk. So
anything that was ever acted upon is in both copies: one damaged copy costs nothing, and a power
loss between the two writes leaves the old or the new state. A reader that finds two different
copies makes them equal before either is used. If both are damaged, loading fails.

Every flipped bit is detected: a CRC-32 finds any single-bit error, and it covers everything except
itself.

**Shared files** are written by another program too: they are complete after every crash, with a
record of who wrote them last.

State: projection. The hashes are derived from what Kourou wrote; if they are lost, every file
counts as written by another program.

A file is written as `X.tmp`, synced and renamed over `X`; before that, the old content is saved to
`X.bak` in the same way. The file of hashes has, for each file, the SHA-256 of Kourou's last content
and of the content before it. It is written *before* the file, so that after a crash in between
Kourou's own content is still recognized.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kourou.errors import Corrupt, DecodeError
from kourou.model.limits import OWN_FILE_BYTES_MAX
from kourou.store.disk import Disk, read_whole, write_atomically

_HEAD = struct.Struct(">4sqI")
_CRC = struct.Struct(">I")


def seal(magic: bytes, sequence: int, body: bytes) -> bytes:
    """The bytes of one copy."""
    whole = _HEAD.pack(magic, sequence, len(body)) + body
    return whole + _CRC.pack(zlib.crc32(whole))


def unseal(magic: bytes, data: bytes) -> tuple[int, bytes] | None:
    """(sequence, body) of a copy; None if its bytes are not exactly what `seal` produced."""
    if len(data) < _HEAD.size + _CRC.size:
        return None
    found, sequence, length = _HEAD.unpack_from(data, 0)
    end = _HEAD.size + length
    if found != magic or len(data) != end + _CRC.size:
        return None
    if _CRC.unpack_from(data, end)[0] != zlib.crc32(data[:end]):
        return None
    return sequence, data[_HEAD.size : end]


class SealedFile:
    """Both copies of one file. Used by one thread."""

    def __init__(self, disk: Disk, path: Path, magic: bytes) -> None:
        self._disk = disk
        self._magic = magic
        self._sequence = -1
        self.path = path
        self.copies = (path, path.with_name(path.name + ".bak"))

    def load(self, hint: str) -> bytes | None:
        """The body; None if there is no copy. Afterwards both copies are equal.

        Raises Corrupt with this hint if there are copies and none is valid, OSError if the disk
        fails.
        """
        found = self._read()
        if found == [None, None]:
            return None
        whole = self._whole(found)
        if not whole:
            raise Corrupt(f"neither {self.copies[0]} nor its copy can be read", hint=hint)
        sequence, body = max(whole)
        self._sequence = sequence
        for path, data in zip(self.copies, found, strict=True):
            if data is None or unseal(self._magic, data) != (sequence, body):
                write_atomically(self._disk, path, seal(self._magic, sequence, body))
        return body

    def _read(self) -> list[bytes | None]:
        return [read_whole(self._disk, path, OWN_FILE_BYTES_MAX) for path in self.copies]

    def _whole(self, found: list[bytes | None]) -> list[tuple[int, bytes]]:
        return [unsealed for data in found if data and (unsealed := unseal(self._magic, data))]

    def save(self, body: bytes) -> None:
        """Replace the body; it is durable in both copies on return. Raises OSError."""
        if self._sequence < 0:  # not loaded: existing copies must not appear newer
            self._sequence = max(self._whole(self._read()), default=(0, b""))[0]
        self._sequence += 1
        data = seal(self._magic, self._sequence, body)
        for path in self.copies:
            write_atomically(self._disk, path, data)

    def remove(self) -> None:
        """Remove both copies, durably. Raises OSError."""
        if any(self._disk.exists(path) for path in self.copies):
            for path in self.copies:
                self._disk.unlink(path)
            self._disk.sync_dir(self.path.parent)


class SharedFiles:
    """Files of one directory, none longer than `size_max` bytes. Thread-safe.

    Every method raises OSError if the disk fails.
    """

    def __init__(self, disk: Disk, directory: Path, hashes_path: Path, size_max: int) -> None:
        self._disk = disk
        self._directory = directory
        self._hashes_path = hashes_path
        self._size_max = size_max
        self._lock = threading.Lock()
        self._hashes = self._load_hashes()

    def read(self, name: str) -> bytes | None:
        """The content; None if there is no file."""
        return read_whole(self._disk, self._directory / name, self._size_max)

    def save(self, name: str, data: bytes, decode: Callable[[bytes], object]) -> bool:
        """Write a file; False if it already has these bytes, written by Kourou.

        `decode` raises DecodeError for damaged bytes: they must not replace the last valid backup.
        """
        with self._lock:
            before = self.read(name)
            ours = self._hashes.get(name, [])
            if before == data and _hash(data) in ours:
                return False
            sound = before is not None and (_hash(before) in ours or _is_sound(before, decode))
            known = [_hash(data)] if before is None else [_hash(data), _hash(before)]
            self._save_hashes({**self._hashes, name: known})
            self._disk.make_dirs(self._directory)
            if before is not None and sound:
                write_atomically(self._disk, self._directory / f"{name}.bak", before)
            write_atomically(self._disk, self._directory / name, data)
            return True

    def external(self, names: Sequence[str]) -> list[str]:
        """Those files that another program wrote or removed since Kourou last wrote them."""
        with self._lock:
            changed: list[str] = []
            for name in names:
                data = self.read(name)
                ours = self._hashes.get(name, [])
                if (data is None and ours) or (data is not None and _hash(data) not in ours):
                    changed.append(name)
            return changed

    def _load_hashes(self) -> dict[str, list[str]]:
        data = read_whole(self._disk, self._hashes_path, self._size_max)
        if data is None:
            return {}
        try:
            return msgspec.json.decode(data, type=dict[str, list[str]])
        except (msgspec.DecodeError, ValueError):
            return {}  # all files count as external and are imported, which loses nothing

    def _save_hashes(self, hashes: dict[str, list[str]]) -> None:
        self._disk.make_dirs(self._hashes_path.parent)
        write_atomically(self._disk, self._hashes_path, msgspec.json.encode(hashes) + b"\n")
        self._hashes = hashes


def _is_sound(data: bytes, decode: Callable[[bytes], object]) -> bool:
    try:
        decode(data)
    except DecodeError:
        return False
    return bool(data.strip())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
