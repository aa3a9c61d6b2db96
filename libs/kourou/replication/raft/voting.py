"""The rules by which a replica votes for another.

    refuse   a vote for an epoch that is over, or that went to another candidate
    refuse   while a leader is heard (or leads here): the candidate is isolated, not needed
    refuse   while it is joining: it has no vote (joining.py)
    refuse   a candidate whose log is behind: (last epoch, end) below one's own
    grant    otherwise

Unflushed data of the voter's own log counts in the comparison; that only makes it more selective.
The second rule also applies after a start, for one election timeout, because a restarted replica
does not remember when it last heard a leader. It does not apply to a transfer that the leader
itself has requested (lease.py).

A pre-vote follows the same rules and changes nothing: it asks whether an election would succeed, so
that an isolated replica does not disrupt the others with its high epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import AskVote
from kourou.replication.epochs import Epochs

if TYPE_CHECKING:
    from kourou.replication.raft.member import Member


def is_up_to_date(ask: AskVote, epochs: Epochs) -> bool:
    """True if the candidate has everything that a log with these epochs may have committed."""
    return (ask.last_epoch, ask.end) >= (epochs.last, epochs.end)


def hears_a_leader(member: Member, ask: AskVote) -> bool:
    """True if there is a leader that the candidate would disrupt."""
    if ask.transfer and ask.epoch == member.ballot.epoch + 1 and ask.transfer >= member.round_heard:
        return False
    return member.hears_a_leader


def may_judge(member: Member, ask: AskVote) -> bool:
    """True if this replica evaluates the candidate at all."""
    return (
        member.joining is None
        and ask.epoch >= member.ballot.epoch
        and not hears_a_leader(member, ask)
    )


def may_vote(member: Member, ask: AskVote) -> bool:
    """True if this replica's vote in `ask.epoch` is free, and the candidate may have it."""
    ballot = member.ballot
    if ask.pre:
        return ask.epoch > ballot.epoch and is_up_to_date(ask, member.log.epochs)
    if ask.epoch != ballot.epoch or ballot.voted_for not in {"", ask.candidate}:
        return False
    return is_up_to_date(ask, member.log.epochs)
