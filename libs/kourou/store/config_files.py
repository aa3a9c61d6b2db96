"""The `config` directory: tables that a RocketMQ broker reads, and sometimes wrote.

Lives here: reading and writing those files so that one whole copy always survives, and noticing
that somebody else has written to them.
May not live here: their bytes (kourou.store.config_json), what to do about a foreign change.

State: projection. The tables follow from the control events in the log; what follows from nothing
here is what another broker wrote, hence the hashes.

A table is written as `X.tmp`, fsynced and renamed over `X`; before that the old content goes to
`X.bak` in the same manner. `<root>/kourou/config_hashes.json` names, for each file, the SHA-256 of
what we wrote last and of what stood there before: it is written *before* the file, so a crash in
between does not make our own work look foreign.

`consumerFilter.json` and whatever else lies there is never written.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from kourou.errors import Corrupt, DecodeError
from kourou.model.limits import CONFIG_FILE_BYTES_MAX
from kourou.store.config_json import (
    GroupTable,
    Offsets,
    TopicTable,
    decode_delays,
    decode_groups,
    decode_offsets,
    decode_topics,
    encode_delays,
    encode_groups,
    encode_offsets,
    encode_topics,
)
from kourou.store.disk import Disk, read_whole, write_atomically
from kourou.store.paths import StorePaths

TOPICS = "topics.json"
GROUPS = "subscriptionGroup.json"
OFFSETS = "consumerOffset.json"
DELAYS = "delayOffset.json"
FILTERS = "consumerFilter.json"

OURS = (TOPICS, GROUPS, OFFSETS, DELAYS)
"""The files that we write."""


_HASHES = "config_hashes.json"

_DECODERS: dict[str, Callable[[bytes], object]] = {
    TOPICS: decode_topics,
    GROUPS: decode_groups,
    OFFSETS: decode_offsets,
    DELAYS: decode_delays,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A table as it was found. `note` says what was wrong with the file itself, "" if nothing."""

    value: T
    note: str = ""


class ConfigFiles:
    """The tables of one store. Thread-safe."""

    def __init__(self, disk: Disk, paths: StorePaths) -> None:
        self._disk = disk
        self._directory = paths.config
        self._hashes_path = paths.kourou / _HASHES
        self._lock = threading.Lock()
        self._hashes = self._load_hashes()

    # -- the tables -------------------------------------------------------------------------------

    def load_topics(self) -> Loaded[TopicTable] | None:
        """The topics; None if there is no file. Corrupt if neither it nor its copy is readable."""
        return self._load(TOPICS, decode_topics)

    def save_topics(self, table: TopicTable) -> bool:
        """Write the topics; False if they stand there already. OSError as the disk gives it."""
        return self._save(TOPICS, encode_topics(table))

    def load_groups(self) -> Loaded[GroupTable] | None:
        """The consumer groups; see `load_topics`."""
        return self._load(GROUPS, decode_groups)

    def save_groups(self, table: GroupTable) -> bool:
        """Write the consumer groups; see `save_topics`."""
        return self._save(GROUPS, encode_groups(table))

    def load_offsets(self) -> Loaded[Offsets] | None:
        """The progress of consumer groups; see `load_topics`."""
        return self._load(OFFSETS, decode_offsets)

    def save_offsets(self, offsets: Offsets) -> bool:
        """Write the progress of consumer groups; see `save_topics`."""
        return self._save(OFFSETS, encode_offsets(offsets))

    def load_delays(self) -> Loaded[dict[int, int]] | None:
        """The progress of the delay levels; see `load_topics`."""
        return self._load(DELAYS, decode_delays)

    def save_delays(self, offsets: dict[int, int]) -> bool:
        """Write the progress of the delay levels; see `save_topics`."""
        return self._save(DELAYS, encode_delays(offsets))

    def consumer_filters(self) -> bytes | None:
        """RocketMQ's consumerFilter.json as it stands there; None if there is none."""
        return self._read(FILTERS)

    # -- who wrote them ---------------------------------------------------------------------------

    def foreign_changes(self) -> list[str]:
        """Names of files that somebody else wrote, or removed, since we last wrote them."""
        with self._lock:
            changed: list[str] = []
            for name in OURS:
                data = self._read(name)
                ours = self._hashes.get(name, [])
                if (data is None and ours) or (data is not None and _hash(data) not in ours):
                    changed.append(name)
            return changed

    def acknowledge(self, names: list[str]) -> None:
        """What stands in these files was imported: it counts as ours from now on."""
        with self._lock:
            hashes = dict(self._hashes)
            for name in names:
                data = self._read(name)
                if data is None:
                    hashes.pop(name, None)
                else:
                    hashes[name] = [_hash(data)]
            self._save_hashes(hashes)

    # -- files ------------------------------------------------------------------------------------

    def _load(self, name: str, decode: Callable[[bytes], T]) -> Loaded[T] | None:
        problems: list[str] = []
        for candidate in (name, name + ".bak"):
            data = self._read(candidate)
            if data is None:
                continue
            if not data.strip():
                problems.append(f"{self._directory / candidate} is empty")
                continue
            try:
                return Loaded(decode(data), "; ".join(problems))
            except DecodeError as error:
                problems.append(f"{self._directory / candidate}: {error}")
        if not problems or all(problem.endswith(" is empty") for problem in problems):
            return None
        raise Corrupt(
            "; ".join(problems),
            hint="repair or remove the file; what the log and the event store know comes back",
        )

    def _read(self, name: str) -> bytes | None:
        return read_whole(self._disk, self._directory / name, CONFIG_FILE_BYTES_MAX)

    def _save(self, name: str, data: bytes) -> bool:
        with self._lock:
            before = self._read(name)
            if before == data and _hash(data) in self._hashes.get(name, []):
                return False
            sound = before is not None and self._sound(name, before)
            known = [_hash(data)] if before is None else [_hash(data), _hash(before)]
            self._save_hashes({**self._hashes, name: known})
            self._disk.make_dirs(self._directory)
            if before is not None and sound:
                write_atomically(self._disk, self._directory / f"{name}.bak", before)
            write_atomically(self._disk, self._directory / name, data)
            return True

    def _sound(self, name: str, data: bytes) -> bool:
        """May this become the copy? Damaged bytes must not push out the last whole ones."""
        if _hash(data) in self._hashes.get(name, []):
            return True
        try:
            _DECODERS[name](data)
        except DecodeError:
            return False
        return bool(data.strip())

    def _load_hashes(self) -> dict[str, list[str]]:
        data = read_whole(self._disk, self._hashes_path, CONFIG_FILE_BYTES_MAX)
        if data is None:
            return {}
        try:
            return msgspec.json.decode(data, type=dict[str, list[str]])
        except (msgspec.DecodeError, ValueError):
            return {}  # then all files count as foreign and are imported, which loses nothing

    def _save_hashes(self, hashes: dict[str, list[str]]) -> None:
        self._disk.make_dirs(self._hashes_path.parent)
        write_atomically(self._disk, self._hashes_path, msgspec.json.encode(hashes) + b"\n")
        self._hashes = hashes


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
