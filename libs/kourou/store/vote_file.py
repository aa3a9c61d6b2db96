"""For whom this member voted last: `<root>/kourou/vote`.

State: log, in the sense that nothing else knows it: it is written before the vote is sent, and lost
it cannot be made again. Format: docs/formats/replication.md.

A member that forgot its vote could vote twice in one epoch, and two leaders could share it. So a
file of which neither copy can be read keeps the member shut. A failing write is for the caller to
die of: whether the vote is on disk is unknown then, and it must not be sent.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kourou.errors import Corrupt
from kourou.store.disk import Disk
from kourou.store.paths import StorePaths
from kourou.store.sealed_file import SealedFile

MAGIC = b"KRV1"
_EPOCH = struct.Struct(">q")
_STANDING = b"\0"
"""Ends the name where a byte of flags follows; no name has it."""
_JOINING, _LIVED = 1, 2
_HINT = (
    "this member may have voted already in the group's current epoch, and must not vote twice: "
    "remove its whole store, and let it join again as a new member that copies the log"
)


class Vote(NamedTuple):
    """The newest epoch this member knows of, and whom it voted for in it; "" for nobody.

    `joining`: it must not vote yet; `lived`: others may count on bytes that it has
    (kourou.replication.raft.joining).
    """

    epoch: int
    voted_for: str
    joining: bool = False
    lived: bool = True


class VoteFile:
    """The vote of one member. One thread."""

    def __init__(self, disk: Disk, paths: StorePaths) -> None:
        self._file = SealedFile(disk, paths.vote, MAGIC)

    def load(self) -> Vote | None:
        """The vote that was written last; None if none ever was.

        Raises Corrupt if it cannot be known any more, OSError as it comes.
        """
        body = self._file.load(_HINT)
        if body is None:
            return None
        try:
            name, _, flags = body[_EPOCH.size :].partition(_STANDING)
            standing = flags[0] if flags else _LIVED
            vote = Vote(
                _EPOCH.unpack_from(body, 0)[0],
                name.decode(),
                bool(standing & _JOINING),
                bool(standing & _LIVED),
            )
        except (struct.error, UnicodeDecodeError) as error:
            raise Corrupt(f"{self._file.path} cannot be read: {error}", hint=_HINT) from error
        if vote.epoch < 0:
            raise Corrupt(f"{self._file.path} contains epoch {vote.epoch}", hint=_HINT)
        return vote

    def save(
        self, epoch: int, voted_for: str, *, joining: bool = False, lived: bool = True
    ) -> None:
        """Write a vote; when this returns no power loss and no single rotten sector takes it.

        Raises OSError: then nobody knows what the disk has, and nothing may be sent.
        """
        assert epoch >= 0, epoch
        standing = joining * _JOINING | lived * _LIVED
        flags = b"" if standing == _LIVED else _STANDING + bytes([standing])
        self._file.save(_EPOCH.pack(epoch) + voted_for.encode() + flags)
