"""A small file that must never be wrong: protected by a checksum and stored twice.

State: none of its own; each user documents the kind of its state.

    4 bytes magic, then big-endian: 8 bytes sequence, 4 bytes length of the body; the body; 4 bytes
    CRC-32 of all that. Nothing follows.

Each copy is replaced atomically, one after the other, and `save` returns once both are on disk. So
anything that was ever acted upon is in both copies: one damaged copy costs nothing, and a power
loss between the two writes leaves the old or the new state. A reader that finds two different
copies makes them equal before either is used. If both are damaged, loading fails.

Every flipped bit is detected: a CRC-32 finds any single-bit error, and it covers everything except
itself.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from kourou.errors import Corrupt
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
