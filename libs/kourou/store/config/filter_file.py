"""`<root>/kourou/filters.json`: the filters of consumer groups, in case their events are lost.

State: projection of the control events. It is read if neither the log nor an event store has them
any more. It records up to which event it goes, so that events still in the log are applied once.
"""

from __future__ import annotations

import msgspec

from kourou.engine.filters.filter_table import FiltersTaken
from kourou.errors import Corrupt
from kourou.model.limits import OWN_FILE_BYTES_MAX
from kourou.store.disk import Disk, as_store_error, read_whole, write_atomically
from kourou.store.paths import StorePaths

FORMAT = 1


class _File(msgspec.Struct):
    format: int
    filters: FiltersTaken


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_File)


def read_filters(disk: Disk, paths: StorePaths) -> FiltersTaken | None:
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
    if read.format != FORMAT:
        raise _unreadable(paths, f"it has format {read.format}; this version reads {FORMAT}")
    return read.filters


def write_filters(disk: Disk, paths: StorePaths, filters: FiltersTaken) -> None:
    """Replace the file. Raises OSError if the disk fails."""
    write_atomically(disk, paths.filters, _ENCODER.encode(_File(FORMAT, filters)))


def _unreadable(paths: StorePaths, why: str) -> Corrupt:
    return Corrupt(
        f"{paths.filters}: {why}",
        hint="restore the event store, or remove the file: then the filters are lost, and groups "
        "that use them wait until they are uploaded again",
    )
