"""What a member of a Raft group is worth as a voter: what its disk says at a start, and the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kourou.engine.ports import JOINING as JOINING
from kourou.replication.epochs import Epochs
from kourou.replication.raft.joining import must_join
from kourou.replication.raft.member import Boot, Member
from kourou.store.store import Store
from kourou.store.vote_file import Vote

_log = logging.getLogger("kourou.raft")

UNKNOWN = Vote(0, "", joining=True, lived=False)
"""What a member knows without a vote file."""

WARN_MS = 10_000
"""How often a member says that it has no vote, and who could give it one."""


def boot_of(
    store: Store, epochs: Sequence[tuple[int, int]], found: Vote | None, *, born_anyway: bool
) -> Boot:
    """`found`: what the vote file says; `born_anyway`: an operator says that it may vote."""
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
    return Boot(
        Epochs(epochs, end),
        vote.epoch,
        vote.voted_for,
        first_position=first,
        confirmed=first,
        flushed=min(store.flushed, end),
        joining=joining,
        lived=vote.lived,
    )


class StandingLines:
    """Tells operators of a member that waits for a vote, now and then, and of its end."""

    def __init__(self, now_ms: int) -> None:
        self._joining = False
        self._warn_at_ms = now_ms + WARN_MS

    def written(self, *, joining: bool) -> None:
        """A vote was written with this standing."""
        if self._joining and not joining:
            _log.info("this replica may vote now")
        self._joining = joining

    def look(self, member: Member, now_ms: int) -> None:
        """So that nobody wonders why a group does not begin."""
        if member.joining is None or member.leader or now_ms < self._warn_at_ms:
            return
        self._warn_at_ms = now_ms + WARN_MS
        _log.warning(
            "this replica cannot vote: its store is new, or was lost. It may vote "
            "when it has caught up with a leader; a new group starts when all "
            "replicas report that they are new, and these did not: %s",
            ", ".join(member.joining.awaited()),
        )
