"""Whether a member votes for another.

    refuse   a vote for an epoch that is over, or was given to somebody else
    refuse   while a leader is heard (or leads here): who asks then is cut off, not needed
    refuse   while it is joining: it has no vote (joining.py)
    refuse   a candidate whose log is behind: (last epoch, end) below one's own
    grant    else

That one's own log counts with what is not flushed yet only makes it choosier. The second rule holds
after a start as well, for one election timeout: a member that was started again does not remember
whom it has heard. It gives way to a hand-over that the leader itself has asked for (lease.py).

A pre-vote is judged by the same rules and changes nothing: it asks whether an election would do any
good, so that a member that was cut off does not disturb the others with its high epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import AskVote
from kourou.replication.epochs import Epochs

if TYPE_CHECKING:
    from kourou.replication.raft.member import Member


def is_up_to_date(ask: AskVote, epochs: Epochs) -> bool:
    """Whether the candidate has all that a log with these epochs may have confirmed."""
    return (ask.last_epoch, ask.end) >= (epochs.last, epochs.end)


def hears_a_leader(member: Member, ask: AskVote) -> bool:
    """Whether there is a leader whom the candidate would disturb."""
    if ask.transfer and ask.epoch == member.ballot.epoch + 1 and ask.transfer >= member.round_heard:
        return False
    return member.hears_a_leader


def may_judge(member: Member, ask: AskVote) -> bool:
    """Whether this member is to look at the candidate at all."""
    return (
        member.joining is None
        and ask.epoch >= member.ballot.epoch
        and not hears_a_leader(member, ask)
    )


def may_vote(member: Member, ask: AskVote) -> bool:
    """Whether this member's vote in `ask.epoch` is free, and the candidate's for the taking."""
    ballot = member.ballot
    if ask.pre:
        return ask.epoch > ballot.epoch and is_up_to_date(ask, member.log.epochs)
    if ask.epoch != ballot.epoch or ballot.voted_for not in {"", ask.candidate}:
        return False
    return is_up_to_date(ask, member.log.epochs)
