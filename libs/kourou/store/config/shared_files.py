"""Small files that another program writes too: complete after every crash, with a record of who
wrote them last.

State: projection. The hashes are derived from what Kourou wrote; if they are lost, every file
counts as written by another program.

A file is written as `X.tmp`, synced and renamed over `X`; before that, the old content is saved to
`X.bak` in the same way. The file of hashes has, for each file, the SHA-256 of Kourou's last content
and of the content before it. It is written *before* the file, so that after a crash in between
Kourou's own content is still recognized.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kourou.errors import DecodeError
from kourou.store.disk import Disk, read_whole, write_atomically


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
