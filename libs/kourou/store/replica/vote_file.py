"""The last vote of this replica: `<root>/kourou/vote`.

State: log, because it exists nowhere else: it is written before the vote is sent, and cannot be
restored once lost. Format: docs/formats/replication.md.

A replica that lost its vote could vote twice in one epoch, and two leaders could share that epoch.
So a file of which neither copy is readable prevents the replica from starting. If a write fails,
the caller must terminate: whether the vote is on disk is unknown, so it must not be sent.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kourou.errors import Corrupt
from kourou.store.config.sealed_file import SealedFile
from kourou.store.disk import Disk
from kourou.store.paths import StorePaths

MAGIC = b"KRV1"
_EPOCH = struct.Struct(">q")
_STATUS = b"\0"
"""Ends the name if a byte of flags follows; no name contains it."""
_JOINING, _LIVED = 1, 2
_HINT = (
    "this member may have voted already in the group's current epoch, and must not vote twice: "
    "remove its whole store, and let it join again as a new member that copies the log"
)


class StoredVote(NamedTuple):
    """The newest epoch this replica knows, and the candidate it voted for; "" for none.

    `joining`: it must not vote yet; `lived`: others may rely on bytes that it has
    (kourou.replication.raft.election).
    """

    epoch: int
    voted_for: str
    joining: bool = False
    lived: bool = True


class VoteFile:
    """The vote of one replica. Used by one thread."""

    def __init__(self, disk: Disk, paths: StorePaths) -> None:
        self._file = SealedFile(disk, paths.vote, MAGIC)

    def load(self) -> StoredVote | None:
        """The last vote; None if none was ever written.

        Raises Corrupt if it cannot be read, OSError if the disk fails.
        """
        body = self._file.load(_HINT)
        if body is None:
            return None
        try:
            name, _, flags = body[_EPOCH.size :].partition(_STATUS)
            status = flags[0] if flags else _LIVED
            vote = StoredVote(
                _EPOCH.unpack_from(body, 0)[0],
                name.decode(),
                bool(status & _JOINING),
                bool(status & _LIVED),
            )
        except (struct.error, UnicodeDecodeError) as error:
            raise Corrupt(f"{self._file.path} cannot be read: {error}", hint=_HINT) from error
        if vote.epoch < 0:
            raise Corrupt(f"{self._file.path} contains epoch {vote.epoch}", hint=_HINT)
        return vote

    def save(
        self, epoch: int, voted_for: str, *, joining: bool = False, lived: bool = True
    ) -> None:
        """Write a vote; on return it survives a power loss and any single damaged sector.

        Raises OSError: then the state on disk is unknown, and nothing may be sent.
        """
        assert epoch >= 0, epoch
        status = joining * _JOINING | lived * _LIVED
        flags = b"" if status == _LIVED else _STATUS + bytes([status])
        self._file.save(_EPOCH.pack(epoch) + voted_for.encode() + flags)
