"""The voting status of a Raft replica: derived from its disk at startup, and logged."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kourou.engine.ports import JOINING as JOINING
from kourou.replication.epochs import Epochs
from kourou.replication.raft.election import must_join
from kourou.replication.raft.node import PersistentState, RaftNode
from kourou.store.replica.vote_file import Vote
from kourou.store.store import Store

_log = logging.getLogger("kourou.raft")

UNKNOWN = Vote(0, "", joining=True, lived=False)
"""The assumed vote if there is no vote file."""

WARN_MS = 10_000
"""Interval of the warning that a replica cannot vote, and what it waits for."""


def boot_of(
    store: Store, epochs: Sequence[tuple[int, int]], found: Vote | None, *, born_anyway: bool
) -> PersistentState:
    """Return the Raft core's start state.

    `found` is the content of the vote file; `born_anyway`: an operator allows it to vote.
    """
    first, end = store.log_range()
    vote = found or UNKNOWN
    if born_anyway:
        _log.warning("raftNewGroup=true: this replica votes, even if it lost data that it had")
    joining = must_join(
        found=found is not None,
        joining=vote.joining,
        lived=vote.lived,
        end=end,
        born_anyway=born_anyway,
    )
    return PersistentState(
        Epochs(epochs, end),
        vote.epoch,
        vote.voted_for,
        first_position=first,
        confirmed=first,
        flushed=min(store.flushed, end),
        joining=joining,
        lived=vote.lived,
    )


class VoterStatusLog:
    """Logs warnings while a replica waits for permission to vote, and when that ends."""

    def __init__(self, now_ms: int) -> None:
        self._joining = False
        self._warn_at_ms = now_ms + WARN_MS

    def written(self, *, joining: bool) -> None:
        """Record the status of a vote that was written."""
        if self._joining and not joining:
            _log.info("this replica may vote now")
        self._joining = joining

    def look(self, member: RaftNode, now_ms: int) -> None:
        """Warn, at intervals, why the group does not start."""
        if member.joining is None or member.leader or now_ms < self._warn_at_ms:
            return
        self._warn_at_ms = now_ms + WARN_MS
        _log.warning(
            "this replica cannot vote: its store is new, or was lost. It may vote "
            "when it has caught up with a leader; a new group starts when all "
            "replicas report that they are new, and these did not: %s",
            ", ".join(member.joining.awaited()),
        )
