"""The files in which a replica keeps its epochs and its last vote.

The epoch of each part of the log: `<root>/kourou/epochs`.

State: projection of the records in the log that open an epoch. If it is lost, it is rebuilt from
those that the log still has. Everything before the oldest of them then counts as epoch 0, whose end
matches no other replica's; at worst this replica must restart its log at another position. Format:
docs/formats/replication.md.

Invariant:  pairs ascend strictly in epoch and in position; an epoch without data has no pair

The last vote of this replica: `<root>/kourou/vote`.

State: log, because it exists nowhere else: it is written before the vote is sent, and cannot be
restored once lost. Format: docs/formats/replication.md.

A replica that lost its vote could vote twice in one epoch, and two leaders could share that epoch.
So a file of which neither copy is readable prevents the replica from starting. If a write fails,
the caller must terminate: whether the vote is on disk is unknown, so it must not be sent.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from kourou.errors import Corrupt
from kourou.store.config.durable_files import SealedFile
from kourou.store.disk import Disk
from kourou.store.paths import StorePaths

_log = logging.getLogger("kourou.store")

MAGIC = b"KRE1"
_PAIR = struct.Struct(">qq")
_HINT = (
    "remove both to make them again from the log; or remove the whole store of this member, which "
    "then copies the log from another one"
)

Pair = tuple[int, int]
"""An epoch, and the position of its first byte."""


def load_epochs(disk: Disk, paths: StorePaths) -> list[Pair] | None:
    """The pairs, oldest first; None if there is no file. Raises Corrupt if it cannot be read."""
    body = _file(disk, paths).load(_HINT)
    if body is None:
        return None
    if len(body) % _PAIR.size:
        raise Corrupt(f"{paths.epochs} has {len(body)} bytes of pairs", hint=_HINT)
    pairs = [(epoch, start) for epoch, start in _PAIR.iter_unpack(body)]
    if not _ascend(pairs):
        raise Corrupt(f"the epochs of {paths.epochs} do not ascend", hint=_HINT)
    return pairs


def save_epochs(disk: Disk, paths: StorePaths, pairs: Sequence[Pair]) -> None:
    """Replace the pairs, durably. Raises OSError."""
    assert _ascend(pairs), pairs
    _file(disk, paths).save(b"".join(_PAIR.pack(epoch, start) for epoch, start in pairs))


def trim_epochs(disk: Disk, paths: StorePaths, end: int) -> None:
    """Remove, durably, the epochs that begin at or after `end`. Raises OSError.

    A file that cannot be read is removed; it is rebuilt from the log.
    """
    try:
        pairs = load_epochs(disk, paths)
    except Corrupt as error:
        _log.warning(
            "epochs-unreadable: %(error)s; it is made again from the log", {"error": error.message}
        )
        remove_epochs(disk, paths)
        return
    if pairs and pairs[-1][1] >= end:
        save_epochs(disk, paths, [pair for pair in pairs if pair[1] < end])


def remove_epochs(disk: Disk, paths: StorePaths) -> None:
    """Remove the file, durably. Raises OSError."""
    _file(disk, paths).remove()


def _file(disk: Disk, paths: StorePaths) -> SealedFile:
    return SealedFile(disk, paths.epochs, MAGIC)


def _ascend(pairs: Sequence[Pair]) -> bool:
    ascending = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))
    return ascending and all(epoch > 0 and start >= 0 for epoch, start in pairs)


VOTE_MAGIC = b"KRV1"
_VOTED_EPOCH = struct.Struct(">q")
_STATUS = b"\0"
"""Ends the name if a byte of flags follows; no name contains it."""
_JOINING, _LIVED = 1, 2
_VOTE_HINT = (
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
        self._file = SealedFile(disk, paths.vote, VOTE_MAGIC)

    def load(self) -> StoredVote | None:
        """The last vote; None if none was ever written.

        Raises Corrupt if it cannot be read, OSError if the disk fails.
        """
        body = self._file.load(_VOTE_HINT)
        if body is None:
            return None
        try:
            name, _, flags = body[_VOTED_EPOCH.size :].partition(_STATUS)
            status = flags[0] if flags else _LIVED
            vote = StoredVote(
                _VOTED_EPOCH.unpack_from(body, 0)[0],
                name.decode(),
                bool(status & _JOINING),
                bool(status & _LIVED),
            )
        except (struct.error, UnicodeDecodeError) as error:
            raise Corrupt(f"{self._file.path} cannot be read: {error}", hint=_VOTE_HINT) from error
        if vote.epoch < 0:
            raise Corrupt(f"{self._file.path} contains epoch {vote.epoch}", hint=_VOTE_HINT)
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
        self._file.save(_VOTED_EPOCH.pack(epoch) + voted_for.encode() + flags)
