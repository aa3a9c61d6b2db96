"""Who gets a vote."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kourou.protocol.messages.replication import AskVote, ChunkAck, Vote
from kourou.replication.epochs import Epochs
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.effects import RaftRole, SaveVote
from kourou.replication.raft.election import HIGHEST_START, must_join
from kourou.replication.raft.node import PersistentState
from kourou_rigs.raft_member import GROUP, MemberKit, chunk, vote

LATER = 1_000  # the least election timeout is over, its own is not


def ask(
    epoch: int,
    *,
    last: int = 0,
    end: int = 0,
    pre: bool = False,
    transfer: int = 0,
    candidate: str = "n2",
) -> AskVote:
    return AskVote(
        group=GROUP,
        epoch=epoch,
        candidate=candidate,
        last_epoch=last,
        end=end,
        pre=pre,
        transfer=transfer,
    )


def answer(kit: MemberKit) -> Vote:
    (vote,) = kit.sent(Vote)
    return vote


@pytest.mark.parametrize(
    ("last", "end", "granted"),
    [(5, 300, True), (5, 310, True), (6, 10, True), (5, 290, False), (3, 900, False)],
)
def test_a_candidate_that_is_behind_gets_none(last: int, end: int, granted: bool):
    boot = PersistentState(Epochs([(3, 100), (5, 260)], 300), epoch=5)
    for pre in (False, True):
        kit = MemberKit(boot=boot)
        kit.at(LATER).hears(ask(6, last=last, end=end, pre=pre))
        assert answer(kit).granted == granted


def test_a_vote_is_on_disk_before_it_is_given():
    kit = MemberKit(disk=False)
    kit.at(LATER).hears(ask(1))
    assert kit.wanted(SaveVote) == [SaveVote(1, ""), SaveVote(1, "n2")]
    assert not kit.sent(Vote)
    assert not kit.at(LATER, raft_inputs.VoteSaved()).sent(Vote), "that was the first of the two"
    assert answer(kit.at(LATER, raft_inputs.VoteSaved())).granted


@pytest.mark.feature("F156")
def test_an_epoch_has_one_vote_and_who_has_it_may_ask_again():
    kit = MemberKit()
    assert answer(kit.at(LATER).hears(ask(1))).granted
    assert not answer(kit.hears(ask(1, candidate="n1"))).granted
    assert answer(kit.hears(ask(1))).granted
    assert not answer(kit.hears(ask(0))).granted


def test_who_hears_a_leader_does_not_vote_and_stays_in_its_epoch():
    kit = MemberKit()
    kit.at(LATER).hears(chunk(1, 0, 0))
    kit.at(LATER + 749).hears(ask(9))
    assert not answer(kit).granted
    assert kit.member.epoch == 1
    kit.at(LATER + 751).hears(ask(9))
    assert answer(kit).granted


def test_who_was_just_started_may_have_heard_one():
    kit = MemberKit()
    assert not answer(kit.at(700).hears(ask(1))).granted
    assert answer(kit.at(750).hears(ask(1))).granted


def test_a_pre_vote_changes_nothing():
    kit = MemberKit()
    assert answer(kit.at(LATER).hears(ask(1, pre=True))).granted
    assert kit.member.epoch == 0
    assert not kit.wanted(SaveVote)
    assert answer(kit.hears(ask(1, pre=True, candidate="n1"))).granted


def test_a_leader_that_gives_way_is_no_reason_to_refuse():
    kit = MemberKit()
    kit.at(LATER).hears(chunk(1, 0, 0, answered=7))
    assert not answer(kit.hears(ask(2, transfer=6))).granted
    assert answer(kit.hears(ask(2, transfer=7))).granted


def test_a_leader_of_another_epoch_cannot_give_way():
    kit = MemberKit()
    kit.at(LATER).hears(chunk(1, 0, 0, answered=7))
    assert not answer(kit.hears(ask(3, transfer=9))).granted


def test_a_sure_leader_does_not_vote_and_one_that_is_alone_does():
    kit = MemberKit().wins().acks("n1", 10)
    assert not answer(kit.hears(ask(2, last=1, end=10))).granted
    assert kit.member.role is RaftRole.LEADER
    kit.at(2_700).hears(ask(2, last=1, end=10))
    assert answer(kit).granted
    assert kit.member.role is RaftRole.FOLLOWER


# -- A member that may have forgotten what it promised: who gives it a vote, and when --------------


NEW = PersistentState(Epochs(), joining=True, lived=False)


def said(member: str, *, lived: bool, epoch: int = 0, start: int = HIGHEST_START) -> Vote:
    return Vote(
        group=GROUP, epoch=epoch, member=member, granted=False, pre=True, joining=start, lived=lived
    )


@pytest.mark.parametrize(
    ("known", "joins"),
    [
        ({"found": False, "joining": True, "lived": False, "end": 0}, True),
        ({"found": False, "joining": True, "lived": False, "end": 100}, True),
        ({"found": True, "joining": False, "lived": True, "end": 100}, False),
        ({"found": True, "joining": False, "lived": True, "end": 0}, True),
        ({"found": True, "joining": False, "lived": False, "end": 0}, False),
        ({"found": True, "joining": True, "lived": True, "end": 100}, True),
    ],
    ids=["new", "vote lost", "usual", "log lost", "voted, wrote nothing", "still joining"],
)
def test_who_has_to_join(known: dict[str, int], joins: bool) -> None:
    assert must_join(**known, born_anyway=False) == joins  # type: ignore[arg-type]  # a table
    assert not must_join(**known, born_anyway=True)  # type: ignore[arg-type]  # a table


def test_without_a_vote_it_neither_votes_nor_stands_and_asks_the_others() -> None:
    kit = MemberKit(boot=NEW).at(0)
    assert [(ask.joining, ask.pre) for ask in kit.sent(AskVote)] == [(HIGHEST_START, True)] * 2
    assert kit.wanted(SaveVote) == [SaveVote(0, "", joining=True, lived=False)]
    kit.at(2_000).hears(AskVote(group=GROUP, epoch=5, candidate="n2", last_epoch=4, end=99))
    assert [each.granted for each in kit.sent(Vote)] == [False]
    assert kit.member.epoch == 0
    kit.at(9_000)
    assert kit.member.role is RaftRole.FOLLOWER
    assert len(kit.sent(AskVote)) == 2


def test_a_group_in_which_nobody_counts_on_anybody_is_a_new_one() -> None:
    kit = MemberKit(boot=NEW).at(0).hears(said("n1", lived=False, epoch=3))
    assert not kit.wanted(SaveVote)
    kit.hears(said("n2", lived=False, start=7))
    assert kit.member.joining is not None, "that was said to an earlier start"
    kit.hears(said("n2", lived=False))
    assert kit.member.joining is None
    assert kit.wanted(SaveVote)[-1] == SaveVote(3, "n0", joining=False, lived=False)
    kit.at(2_000)
    assert kit.member.role is RaftRole.PRE_CANDIDATE


def test_who_is_born_with_an_empty_log_has_lost_nothing_at_its_next_start() -> None:
    """It lived, and lost its log; now nobody counts on it, and that is written down."""
    lost = PersistentState(Epochs(), epoch=2, voted_for="n0", joining=True, lived=True)
    kit = MemberKit(boot=lost).at(0)
    kit.hears(said("n1", lived=False)).hears(said("n2", lived=False))
    assert kit.member.joining is None
    born = kit.wanted(SaveVote)[-1]
    assert (born.joining, born.lived) == (False, False)
    assert not must_join(
        found=True, joining=born.joining, lived=born.lived, end=0, born_anyway=False
    )


def test_one_on_whom_others_count_is_enough_and_there_is_a_group() -> None:
    kit = MemberKit(boot=NEW).at(0).hears(said("n1", lived=False)).hears(said("n2", lived=True))
    kit.hears(said("n1", lived=False))
    assert kit.member.joining is not None
    kit.hears(AskVote(group=GROUP, epoch=0, candidate="n1", last_epoch=0, end=0, joining=5))
    assert [(each.joining, each.lived) for each in kit.sent(Vote)] == [(5, False)]


def test_a_leader_admits_it_when_it_has_all_that_the_leader_had() -> None:
    kit = MemberKit(boot=NEW).at(0)
    admission = {"joining": HIGHEST_START, "joining_at": 40}
    kit.hears(chunk(4, 0, 0))
    kit.hears(chunk(4, 0, 40, answered=1), bytes(40))
    assert [each.joining for each in kit.sent(ChunkAck)] == [HIGHEST_START, HIGHEST_START]
    sure = chunk(4, 40, 40, previous=4, confirmed=40, answered=9)
    kit.at(2_999).hears(replace(sure, **admission))
    assert kit.member.joining is not None, "a candidate may still count an old vote"
    kit.at(3_000).hears(replace(sure, joining=7, joining_at=40))
    assert kit.member.joining is not None, "that is for an earlier start"
    lacking = chunk(4, 40, 40, previous=4, confirmed=30)
    kit.hears(replace(lacking, joining=HIGHEST_START, joining_at=41))
    assert kit.member.joining is not None, "it lacks a byte"
    kit.hears(replace(sure, **admission))
    assert kit.member.joining is None
    assert kit.wanted(SaveVote) == [SaveVote(4, "n1")], "in this epoch it never votes again"
    assert [each.joining for each in kit.sent(ChunkAck)] == [0]


def test_its_leader_counts_it_for_nothing_until_it_has_a_vote() -> None:
    kit = MemberKit(members=5).at(2_000)
    for pre in (True, False):
        kit.hears(vote(1, pre=pre)).hears(vote(1, "n2", pre=pre))
    kit.acks("n1", 10)
    counted_not = ChunkAck(
        group=GROUP, epoch=1, member="n2", accepted=True, written=10, flushed=10,
        round=kit.member.round_heard, joining=6,
    )  # fmt: skip
    kit.hears(counted_not)
    assert kit.member.log.confirmed == 0
    assert not kit.member.may_acknowledge(kit.now)
    kit.acks("n3", 10)
    assert kit.member.log.confirmed == 10
    assert kit.member.may_acknowledge(kit.now)
