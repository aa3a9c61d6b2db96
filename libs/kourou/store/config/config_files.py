"""The `config` directory: tables that a RocketMQ broker reads, and may have written.

State: projection of the control events in the log. What another broker wrote cannot be derived from
them; `<root>/kourou/config_hashes.json` detects it.

`consumerFilter.json` and any other file in the directory is never written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from kourou.engine.filters.filter_table import FiltersSnapshot
from kourou.errors import Corrupt, DecodeError
from kourou.model.limits import CONFIG_FILE_BYTES_MAX, OWN_FILE_BYTES_MAX
from kourou.store.config.config_json import (
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
from kourou.store.config.shared_files import SharedFiles
from kourou.store.disk import Disk, as_store_error, read_whole, write_atomically
from kourou.store.paths import StorePaths

TOPICS = "topics.json"
GROUPS = "subscriptionGroup.json"
OFFSETS = "consumerOffset.json"
DELAYS = "delayOffset.json"

OURS = (TOPICS, GROUPS, OFFSETS)
"""Files whose change is a sign that another broker ran here.

delayOffset.json is not among them: stores created before Kourou wrote it have RocketMQ's.
"""


_HASHES = "config_hashes.json"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadedConfig(Generic[T]):
    """A table as read. `note` describes problems with the file itself, "" if there are none."""

    value: T
    note: str = ""


class ConfigFiles:
    """The tables of one store. Thread-safe."""

    def __init__(self, disk: Disk, paths: StorePaths) -> None:
        self._directory = paths.config
        self._files = SharedFiles(disk, paths.config, paths.kourou / _HASHES, CONFIG_FILE_BYTES_MAX)

    # -- the tables -------------------------------------------------------------------------------

    def load_topics(self) -> LoadedConfig[TopicTable] | None:
        """The topics; None if there is no file. Raises Corrupt if neither it nor its backup is
        readable.
        """
        return self._load(TOPICS, decode_topics)

    def save_topics(self, table: TopicTable) -> bool:
        """Write the topics; False if the file already has them. Raises OSError if writing fails."""
        return self._files.save(TOPICS, encode_topics(table), decode_topics)

    def load_groups(self) -> LoadedConfig[GroupTable] | None:
        """The consumer groups; see `load_topics`."""
        return self._load(GROUPS, decode_groups)

    def save_groups(self, table: GroupTable) -> bool:
        """Write the consumer groups; see `save_topics`."""
        return self._files.save(GROUPS, encode_groups(table), decode_groups)

    def load_offsets(self) -> LoadedConfig[Offsets] | None:
        """The progress of consumer groups; see `load_topics`."""
        return self._load(OFFSETS, decode_offsets)

    def save_offsets(self, offsets: Offsets) -> bool:
        """Write the progress of consumer groups; see `save_topics`."""
        return self._files.save(OFFSETS, encode_offsets(offsets), decode_offsets)

    def load_delays(self) -> LoadedConfig[dict[int, int]] | None:
        """The progress of the delay levels; see `load_topics`."""
        return self._load(DELAYS, decode_delays)

    def save_delays(self, offsets: dict[int, int]) -> bool:
        """Write the progress of the delay levels; see `save_topics`."""
        return self._files.save(DELAYS, encode_delays(offsets), decode_delays)

    # -- external changes -------------------------------------------------------------------------

    def external_changes(self) -> list[str]:
        """Names of files that another program wrote or removed since this broker wrote them."""
        return self._files.external(OURS)

    def delays_are_external(self) -> bool:
        """True if another program wrote or removed the delay levels' progress since this broker
        wrote it.
        """
        return bool(self._files.external([DELAYS]))

    # -- files ------------------------------------------------------------------------------------

    def _load(self, name: str, decode: Callable[[bytes], T]) -> LoadedConfig[T] | None:
        problems: list[str] = []
        for candidate in (name, name + ".bak"):
            data = self._files.read(candidate)
            if data is None:
                continue
            if not data.strip():
                problems.append(f"{self._directory / candidate} is empty")
                continue
            try:
                return LoadedConfig(decode(data), "; ".join(problems))
            except DecodeError as error:
                problems.append(f"{self._directory / candidate}: {error}")
        if not problems or all(problem.endswith(" is empty") for problem in problems):
            return None
        raise Corrupt(
            "; ".join(problems),
            hint="repair or remove the file; the log and the event store restore its content",
        )


# -- filters --------------------------------------------------------------------------------------

# `<root>/kourou/filters.json` has the filters of consumer groups, in case their events are lost. It
# is read if neither the log nor an event store has them any more. It records up to which event it
# goes, so that events still in the log are applied once.

_FILTERS_FORMAT = 1


class _FiltersFile(msgspec.Struct):
    format: int
    filters: FiltersSnapshot


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_FiltersFile)


def read_filters(disk: Disk, paths: StorePaths) -> FiltersSnapshot | None:
    """The content of the file; None if there is none. Raises Corrupt if it cannot be read."""
    try:
        data = read_whole(disk, paths.filters, OWN_FILE_BYTES_MAX)
    except OSError as error:
        raise as_store_error(error, f"reading {paths.filters}") from error
    if data is None:
        return None
    try:
        read = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unreadable(paths, str(error)) from error
    if read.format != _FILTERS_FORMAT:
        raise _unreadable(
            paths, f"it has format {read.format}; this version reads {_FILTERS_FORMAT}"
        )
    return read.filters


def write_filters(disk: Disk, paths: StorePaths, filters: FiltersSnapshot) -> None:
    """Replace the file. Raises OSError if the disk fails."""
    write_atomically(disk, paths.filters, _ENCODER.encode(_FiltersFile(_FILTERS_FORMAT, filters)))


def _unreadable(paths: StorePaths, why: str) -> Corrupt:
    return Corrupt(
        f"{paths.filters}: {why}",
        hint="restore the event store, or remove the file: then the filters are lost, and groups "
        "that use them wait until they are uploaded again",
    )
