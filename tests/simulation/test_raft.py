"""Raft groups under seeds: whatever fails, the rules of `kourou_rigs.raft_rules` hold, and when
all has healed the group goes on. And planted bugs, each of which the same seeds must find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from kourou.protocol.messages.replication import AskVote, LogChunk, Vote
from kourou.replication.progress import Event, FollowerProgress
from kourou.replication.raft import election, node
from kourou.replication.raft.effects import Committed, Effect, RaftRole, SaveVote, Send
from kourou.replication.raft.election import Ballot, Candidate, Joining
from kourou.replication.raft.follower import Fit, OwnLog, RaftFollower
from kourou.replication.raft.leader import Admission, LeaderLease, RaftLeader
from kourou.replication.raft.role import TransitionCause
from kourou_rigs import raft_node
from kourou_rigs.raft_disk import MemberDisk, opening_cell
from kourou_rigs.raft_node import Node
from kourou_rigs.raft_rules import RuleBroken
from kourou_rigs.raft_world import RaftWorld

Seeds = Callable[[int], Iterator[int]]
Plant = Callable[[pytest.MonkeyPatch], None]

FULL = 20_000
SOAK = 200_000


def run(seeds: Iterable[int]) -> int:
    """All these; returns how many messages were acknowledged."""
    acknowledged = 0
    for seed in seeds:
        world = RaftWorld(seed)
        world.run()
        acknowledged += len(world.rules.acknowledged)
    return acknowledged


@pytest.mark.feature("F149", "F154", "F160", "F161")
@pytest.mark.fault
@pytest.mark.timeout(3_600)
def test_nothing_confirmed_is_lost_and_the_group_goes_on(simulation_seeds: Seeds) -> None:
    assert run(simulation_seeds(FULL))


@pytest.mark.parametrize("seed", [41_797, 183_018])
def test_what_the_soak_once_found(seed: int) -> None:
    """A round of an older epoch that counted for this one; an empty log that was lost for ever."""
    assert run([seed])


@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_two_hundred_thousand_seeds_more() -> None:
    run(range(FULL, FULL + SOAK))


# -- planted bugs ----------------------------------------------------------------------------------


def votes_for_a_log_that_is_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "is_up_to_date", lambda ask, epochs: True)


def answers_before_the_vote_is_on_disk(patch: pytest.MonkeyPatch) -> None:
    """And votes at once after a start, which would hide most of it."""
    votes_at_once_after_a_start(patch)

    def send(self: Ballot, message: Send, out: list[Effect]) -> None:
        out.append(message)

    patch.setattr(Ballot, "send", send)


def takes_its_vote_back(patch: pytest.MonkeyPatch) -> None:
    def may_vote(one: node.RaftNode, ask: AskVote) -> bool:
        current = ask.pre or ask.epoch == one.epoch
        return current and election.is_up_to_date(ask, one.log.epochs)

    patch.setattr(node, "may_vote", may_vote)


def cuts_what_follows_a_late_chunk(patch: pytest.MonkeyPatch) -> None:
    genuine = OwnLog.compare

    def compare(self: OwnLog, position: int, end: int, *epochs: int) -> tuple[Fit, int]:
        fit, agreed = genuine(self, position, end, *epochs)
        late = fit is Fit.HAVE and position < end < self.end
        return (Fit.DIVERGED, end) if late else (fit, agreed)

    patch.setattr(OwnLog, "compare", compare)
    patch.setattr(OwnLog, "may_truncate", lambda self, position: True)


def confirms_an_older_epoch_by_counting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLeader, "may_confirm", lambda self, position: True)


def leads_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLeader, "leads", lambda self, now_ms: True)


def says_flushed_before_it_is(patch: pytest.MonkeyPatch) -> None:
    genuine = OwnLog.append

    def append(self: OwnLog, end: int, epoch: int) -> None:
        genuine(self, end, epoch)
        self.flushed = end

    patch.setattr(OwnLog, "append", append)


def tells_its_whole_log_as_the_leaders(patch: pytest.MonkeyPatch) -> None:
    genuine = RaftFollower._take

    def take(self: RaftFollower, *chunk: object) -> bool:
        fits = genuine(self, *chunk)  # type: ignore[arg-type]  # handed through
        if fits:
            self.matched = self.node.log.end
        return fits

    def accepted(
        self: FollowerProgress, now_ms: int, answered: int, written: int, flushed: int
    ) -> bool:
        self.heard_ms, self.round = now_ms, max(self.round, answered)
        self.written, self.flushed = max(self.written, written), max(self.flushed, flushed)
        self.next = max(self.next, self.written)
        self._move(Event.ACCEPTED)
        self._probing = False
        return True

    patch.setattr(RaftFollower, "_take", take)
    patch.setattr(FollowerProgress, "accepted", accepted)


def forgets_the_cut_in_a_power_loss(patch: pytest.MonkeyPatch) -> None:
    def cut(self: MemberDisk, position: int) -> None:
        self.end_flush(len(self._unflushed))
        del self.pages[position:]

    patch.setattr(MemberDisk, "cut", cut)


def counts_pre_votes_as_votes(patch: pytest.MonkeyPatch) -> None:
    def vote(self: Candidate, vote: Vote) -> None:
        if vote.granted and vote.epoch == self.node.epoch and self._count(vote.member):
            self.node.become(TransitionCause.WON)

    patch.setattr(Candidate, "vote", vote)


def appends_without_comparing_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnLog, "fits", lambda self, position, previous_epoch: position <= self.end)


def votes_while_it_hears_a_leader(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "hears_a_leader", lambda one, ask: False)


def votes_at_once_after_a_start(patch: pytest.MonkeyPatch) -> None:
    genuine = node.RaftNode.__init__

    def init(self: node.RaftNode, *args: object, **named: object) -> None:
        genuine(self, *args, **named)  # type: ignore[arg-type]  # handed through
        self.heard_ms -= 1_000_000

    patch.setattr(node.RaftNode, "__init__", init)


def acknowledges_while_it_hands_over(patch: pytest.MonkeyPatch) -> None:
    genuine = LeaderLease.valid

    def valid(self: LeaderLease, now_ms: int, answered: Iterator[int]) -> bool:
        suspended, self.suspended = self.suspended, False
        sure = genuine(self, now_ms, answered)
        self.suspended = suspended
        return sure

    patch.setattr(LeaderLease, "valid", valid)


def confirms_what_was_not_compared(patch: pytest.MonkeyPatch) -> None:
    def confirm(self: RaftFollower) -> None:
        log = self.node.log
        if log.confirm(min(self.confirmable, log.flushed)):
            self.node.out.append(Committed(log.confirmed))

    patch.setattr(RaftFollower, "_confirm", confirm)


def opens_an_epoch_that_it_leads_no_more(patch: pytest.MonkeyPatch) -> None:
    """And takes messages in it, as the leader that it takes itself for."""

    def begin(self: Node, epoch: int) -> None:
        self._leading = True
        self.run((self._append(epoch, opening_cell(epoch)),))

    patch.setattr(Node, "_open", begin)


def takes_messages_before_its_opening(patch: pytest.MonkeyPatch) -> None:
    genuine = Node._role_changed

    def role_changed(self: Node, role: RaftRole, epoch: int, start: int) -> None:
        genuine(self, role, epoch, start)
        self._leading = role is RaftRole.LEADER

    patch.setattr(Node, "_role_changed", role_changed)


def votes_without_the_disk_that_it_had(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(raft_node, "must_join", lambda **known: False)


def does_not_write_down_that_it_is_joining(patch: pytest.MonkeyPatch) -> None:
    """A second start, with a part of the log, takes itself for any other member."""
    patch.setattr(Joining, "is_marked", True)
    genuine = node.RaftNode.__init__

    def init(self: node.RaftNode, *args: object, **named: object) -> None:
        genuine(self, *args, **named)  # type: ignore[arg-type]  # handed through
        self._unmarked = False

    patch.setattr(node.RaftNode, "__init__", init)
    patch.setattr(Ballot, "_write", lambda self: _written(self, joining=False), raising=True)


def _written(ballot: Ballot, *, joining: bool) -> SaveVote:
    ballot._unsaved += 1
    return SaveVote(ballot.epoch, ballot.voted_for, joining, ballot.lived)


def admits_whoever_asks(patch: pytest.MonkeyPatch) -> None:
    """A leader that nobody else follows any more says where its log ends, and that is it."""

    def word(self: Admission, name: str) -> tuple[int, int]:
        known = self._joiners.get(name)
        if known is None:
            return 0, 0
        known.reported_in = 0
        return known.start, 0

    patch.setattr(Admission, "word", word)


def is_born_among_a_majority(patch: pytest.MonkeyPatch) -> None:
    genuine = Joining.awaited

    def awaited(self: Joining) -> list[str]:
        settings = self._node.settings
        missing = genuine(self)
        return missing if len(missing) > len(settings.members) - settings.majority else []

    patch.setattr(Joining, "awaited", awaited)


def takes_nothing_until_it_begins_anew(patch: pytest.MonkeyPatch) -> None:
    genuine = RaftFollower._restart_log

    def restart_log(self: RaftFollower, chunk: LogChunk) -> None:
        genuine(self, chunk)
        self.node.log.truncating = True

    patch.setattr(RaftFollower, "_restart_log", restart_log)


WITHIN = 2_000
"""Each planted bug is found within so many seeds, counted from 0."""

PLANTED: dict[Plant, int] = {
    votes_for_a_log_that_is_behind: 0,
    answers_before_the_vote_is_on_disk: 1_560,
    takes_its_vote_back: 0,
    cuts_what_follows_a_late_chunk: 0,
    confirms_an_older_epoch_by_counting: 1_580,
    leads_without_a_lease: 0,
    says_flushed_before_it_is: 0,
    tells_its_whole_log_as_the_leaders: 0,
    forgets_the_cut_in_a_power_loss: 0,
    counts_pre_votes_as_votes: 0,
    appends_without_comparing_epochs: 0,
    votes_while_it_hears_a_leader: 0,
    acknowledges_while_it_hands_over: 700,
    confirms_what_was_not_compared: 0,
    opens_an_epoch_that_it_leads_no_more: 170,
    takes_messages_before_its_opening: 0,
    votes_without_the_disk_that_it_had: 0,
    does_not_write_down_that_it_is_joining: 0,
    admits_whoever_asks: 0,
    is_born_among_a_majority: 170,
    takes_nothing_until_it_begins_anew: 0,
}
"""Each bug with a seed from which on a few seeds find it; --slow looks from 0 on."""

FEW = 60


@pytest.mark.feature("F161")
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    slow = request.config.getoption("--slow")
    seeds = range(WITHIN) if slow else range(PLANTED[plant], PLANTED[plant] + FEW)
    plant(monkeypatch)
    with pytest.raises(RuleBroken):
        run(seeds)
