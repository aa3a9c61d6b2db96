"""What a backup has: `manifest.json` of its folder.

State: log of the backup: only what stands here counts, whatever files have beyond. It is replaced
atomically, behind the bytes that it names. Format: docs/formats/backup.md.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.errors import Corrupt
from kourou.replication.epochs import Epochs

FORMAT = 1

Count = Annotated[int, msgspec.Meta(ge=0)]


class Sealed(msgspec.Struct, frozen=True):
    """A whole segment, which never changes any more."""

    start: Count
    sha256: str


class Damaged(msgspec.Struct, frozen=True):
    """[start, end) of the log holds no readable record at the broker either."""

    start: Count
    end: Count
    reason: str


class Manifest(msgspec.Struct, kw_only=True):
    """A copy of the log from `first` up to `end`, all of it confirmed when it was taken.

    `last` is the position of its last readable record, -1 if it has none; `last_size` its length.
    Times are ISO 8601 in UTC. `whole`: the run that was last ended where it wanted to.
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
        """Which epochs the copied bytes are of. Raises Corrupt for pairs that cannot be."""
        return Epochs(self.epochs, self.end)


class _Format(msgspec.Struct):
    format: int


def encode_manifest(manifest: Manifest) -> bytes:
    """As JSON, for people, too."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes, name: str) -> Manifest:
    """What `encode_manifest` wrote. Raises Corrupt, which tells the file's `name`."""
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found != FORMAT:
            raise Corrupt(f"{name} has format {found}; this version reads {FORMAT}")
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(
            f"{name} cannot be read: {error}", hint="it is not a backup, or it is damaged"
        ) from error
