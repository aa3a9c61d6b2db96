"""Who gets a vote."""

import pytest

from kourou.protocol.messages.replication import AskVote, Vote
from kourou.replication.epochs import Epochs
from kourou.replication.raft.effects import Role, SaveVote
from kourou.replication.raft.node import PersistentState
from kourou_rigs.raft_member import GROUP, MemberKit, chunk

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
    assert kit.member.role is Role.LEADER
    kit.at(2_700).hears(ask(2, last=1, end=10))
    assert answer(kit).granted
    assert kit.member.role is Role.FOLLOWER
