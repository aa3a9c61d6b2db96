"""The version of Kourou's own files in a store, so that an older program refuses a newer store.

A store without the file is RocketMQ's, or empty: it is opened by RocketMQ's rules and gets the
file.
"""

from __future__ import annotations

import msgspec

from kourou.errors import ConfigError, Corrupt
from kourou.store.disk import Disk, read_whole, write_atomically
from kourou.store.paths import StorePaths

FORMAT = 1
_SIZE_MAX = 64 * 1024


class _Format(msgspec.Struct):
    format: int


def check_format(disk: Disk, paths: StorePaths) -> bool:
    """True if the file is there and its version is supported; False if there is none.

    Changes nothing. Raises ConfigError for a newer version and Corrupt if the file has no version.
    """
    data = read_whole(disk, paths.format_version, _SIZE_MAX)
    if data is None:
        return False
    try:
        found = msgspec.json.decode(data, type=_Format).format
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{paths.format_version} does not contain the version of this store: {error}",
            hint="remove it to open the store by RocketMQ's rules",
        ) from error
    if found > FORMAT:
        raise ConfigError(
            f"the store {paths.root} has format {found}, but this version supports formats up to "
            f"{FORMAT}",
            hint="use the newer version; nothing was changed",
        )
    return True


def write_format(disk: Disk, paths: StorePaths) -> None:
    """Write the current version to the store. Raises OSError."""
    write_atomically(disk, paths.format_version, msgspec.json.encode(_Format(FORMAT)) + b"\n")
