"""The contents of a backup: `manifest.json` in its folder.

State: log of the backup: only what the manifest lists is valid, whatever else the files contain. It
is replaced atomically, after the bytes that it lists are synced. Format: docs/formats/backup.md.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.errors import Corrupt
from kourou.replication.epochs import Epochs

FORMAT = 1

Count = Annotated[int, msgspec.Meta(ge=0)]


class Sealed(msgspec.Struct, frozen=True):
    """A complete segment, which no longer changes."""

    start: Count
    sha256: str


class Damaged(msgspec.Struct, frozen=True):
    """[start, end) of the log has no readable record at the broker either."""

    start: Count
    end: Count
    reason: str


class Manifest(msgspec.Struct, kw_only=True):
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
    begun: str = ""
    taken: str = ""
    whole: bool = False
    beginning_sha256: str
    sealed: list[Sealed] = []
    damaged: list[Damaged] = []

    def history(self) -> Epochs:
        """The epochs of the copied bytes; raises Corrupt for impossible values."""
        return Epochs(self.epochs, self.end)


class _Format(msgspec.Struct):
    format: int


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode as readable JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Decode the output of `encode_manifest`; raises Corrupt, naming the file `name`."""
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found != FORMAT:
            raise Corrupt(f"{name} has format {found}; this version reads {FORMAT}")
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(
            f"{name} cannot be read: {error}", hint="it is not a backup, or it is damaged"
        ) from error
