"""The way from follower to leader and back, and what no member listens to."""

import msgspec
import pytest

from kourou.protocol.messages.replication import AskVote, ChunkAck, LogChunk, StandNow, Vote
from kourou.replication.epochs import Epochs
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.effects import (
    FlushLog,
    Halt,
    NeedsRepair,
    RaftRole,
    RoleChanged,
    SaveVote,
    TransferFailed,
)
from kourou.replication.raft.follower import Fit, OwnLog
from kourou.replication.raft.node import TRANSITIONS, PersistentState
from kourou.replication.raft.role import TransitionCause
from kourou_rigs.raft_member import GROUP, MemberKit, chunk, vote


def test_the_docstring_and_the_table_tell_of_the_same_roles():
    roles = {role for role, _ in TRANSITIONS}
    assert roles == set(RaftRole)
    assert all((role, TransitionCause.FAULT) in TRANSITIONS for role in RaftRole)
    assert (RaftRole.LEADER, TransitionCause.LEADER_HEARD) not in TRANSITIONS


@pytest.mark.feature("F152", "F156")
def test_an_election():
    kit = MemberKit().at(1_499)
    assert kit.member.role is RaftRole.FOLLOWER
    kit.at(1_500)
    assert kit.member.role is RaftRole.PRE_CANDIDATE
    assert [(ask.epoch, ask.pre) for ask in kit.sent(AskVote)] == [(1, True), (1, True)]
    assert not kit.wanted(SaveVote)
    kit.hears(vote(1, pre=True))
    assert kit.member.role is RaftRole.CANDIDATE
    assert kit.wanted(SaveVote) == [SaveVote(1, "n0")]
    assert [(ask.epoch, ask.pre) for ask in kit.sent(AskVote)] == [(1, False), (1, False)]
    kit.hears(vote(1))
    assert kit.wanted(RoleChanged) == [RoleChanged(RaftRole.LEADER, 1, "n0", 0)]
    assert kit.member.log.epochs.opened() == ((1, 0),)


def test_nobody_is_asked_and_nothing_counts_before_the_own_vote_is_on_disk():
    kit = MemberKit(disk=False).at(1_500).hears(vote(1, pre=True))
    assert not kit.sent(AskVote)
    kit.hears(vote(1))
    assert kit.member.role is RaftRole.CANDIDATE
    kit.at(1_600, raft_inputs.VoteSaved())
    assert kit.member.role is RaftRole.LEADER
    assert len(kit.sent(AskVote)) == 2


def test_pre_votes_and_votes_of_other_epochs_do_not_count():
    kit = MemberKit().at(1_500).hears(vote(1, pre=True))
    kit.hears(vote(1, "n2", pre=True)).hears(vote(0)).hears(vote(2)).hears(vote(1, granted=False))
    assert kit.member.role is RaftRole.CANDIDATE


@pytest.mark.feature("F152", "F157")
def test_a_campaign_without_a_majority_begins_again():
    kit = MemberKit().at(1_500).at(3_000)
    assert (kit.member.role, kit.member.epoch) == (RaftRole.PRE_CANDIDATE, 0)
    kit.hears(vote(1, pre=True)).at(4_500)
    assert (kit.member.role, kit.member.epoch) == (RaftRole.PRE_CANDIDATE, 1)


def test_alone_it_leads_at_once():
    kit = MemberKit(members=1).at(0)
    assert kit.member.role is RaftRole.LEADER
    assert kit.member.log.confirmed == 10
    assert kit.member.may_acknowledge(10_000_000)


@pytest.mark.feature("F155")
def test_a_higher_epoch_ends_every_role():
    for kit in (MemberKit().at(1_500), MemberKit().at(1_500).hears(vote(1, pre=True))):
        kit.hears(vote(8, granted=False))
        assert (kit.member.role, kit.member.epoch) == (RaftRole.FOLLOWER, 8)
    kit = MemberKit().wins()
    kit.hears(ChunkAck(group=GROUP, epoch=8, member="n1", accepted=False))
    assert kit.wanted(RoleChanged) == [RoleChanged(RaftRole.FOLLOWER, 8, "")]


@pytest.mark.feature("F157")
def test_a_candidate_follows_a_leader_of_its_epoch():
    kit = MemberKit().at(1_500).hears(vote(1, pre=True)).hears(chunk(1, 0, 0, leader="n2"))
    assert kit.wanted(RoleChanged) == [RoleChanged(RaftRole.FOLLOWER, 1, "n2")]


@pytest.mark.feature("F155")
def test_a_leader_of_the_past_is_reported_so():
    kit = MemberKit(boot=PersistentState(Epochs(), epoch=4))
    kit.hears(chunk(3, 0, 10, answered=132))
    (ack,) = kit.sent(ChunkAck)
    assert (ack.accepted, ack.epoch) == (False, 4)
    assert ack.round == 0, "rounds of epoch 3 are none of epoch 4, which it may lead, too"
    assert kit.member.log.end == 0


def test_two_leaders_of_one_epoch_stop_it():
    kit = MemberKit().hears(chunk(1, 0, 0)).hears(chunk(1, 0, 0, leader="n2"))
    assert kit.wanted(Halt)
    assert kit.member.role is RaftRole.STOPPED
    assert not kit.hears(chunk(9, 0, 0)).effects


def test_other_groups_and_strangers_are_not_heard():
    kit = MemberKit()
    for stranger in (
        chunk(1, 0, 0, leader="n9"),
        Vote(group="other", epoch=7, member="n1", granted=False),
        ChunkAck(group=GROUP, epoch=7, member="n9", accepted=False),
        AskVote(group=GROUP, epoch=7, candidate="n9", last_epoch=0, end=0),
        chunk(2, 0, 10, previous=5, data=4),
        chunk(2, 10, 0, previous=2, data=2),
    ):
        assert not kit.hears(stranger).effects
    assert kit.member.epoch == 0


def test_after_a_start_the_log_says_the_epoch_if_the_ballot_is_older():
    boot = PersistentState(Epochs([(7, 0)], 50), epoch=5, voted_for="n2")
    kit = MemberKit(boot=boot, disk=False)
    assert (kit.member.epoch, kit.member.ballot.voted_for) == (7, "")
    assert kit.at(1).wanted(FlushLog), "what is found in files need not be on disk"
    assert kit.member.log.flushed == 0


def test_a_failed_disk_ends_all_taking_part():
    kit = MemberKit().wins()
    kit.at(2_001, raft_inputs.DiskFailed("EIO"))
    assert kit.wanted(RoleChanged) == [RoleChanged(RaftRole.STOPPED, 1, "")]
    assert not kit.member.may_acknowledge(2_001)
    assert not kit.at(9_999).effects


def test_a_leader_that_was_stopped_finds_out_before_it_answers():
    kit = MemberKit().wins().acks("n1", 10)
    assert kit.member.may_acknowledge(2_674)
    assert not kit.member.may_acknowledge(2_675), "stopped between its append and its answer"


def test_a_leader_without_a_majority_gives_up():
    kit = MemberKit().wins().acks("n1", 10)
    kit.at(3_499)
    assert kit.member.role is RaftRole.LEADER
    assert not kit.member.may_acknowledge(3_499)
    kit.at(3_700)
    assert kit.member.role is RaftRole.FOLLOWER


def test_what_was_appended_in_its_own_epoch_is_its_own_after_it_lost_it():
    kit = MemberKit().wins()
    kit.hears(vote(3, granted=False)).hears(
        ChunkAck(group=GROUP, epoch=3, member="n1", accepted=False)
    )
    kit.at(2_001, raft_inputs.Appended(1, 60))
    assert kit.member.log.end == 60
    with pytest.raises(AssertionError):
        kit.at(2_002, raft_inputs.Appended(3, 70))


# -- leading -------------------------------------------------------------------------------------


def test_an_older_epoch_is_confirmed_by_a_record_of_the_new_one_alone():
    kit = MemberKit(boot=PersistentState(Epochs([(1, 0)], 100), epoch=1)).wins()
    assert kit.member.log.end == 110
    kit.acks("n1", 100)
    assert kit.member.log.confirmed == 0
    kit.acks("n1", 110)
    assert kit.member.log.confirmed == 110


@pytest.mark.feature("F160")
def test_confirmed_is_what_a_majority_has_flushed():
    kit = MemberKit(members=5).at(1_500)
    for name, pre in (("n1", True), ("n2", True), ("n1", False), ("n2", False)):
        kit.hears(vote(1, name, pre=pre))
    kit.at(2_001, raft_inputs.Appended(1, 60), raft_inputs.LogFlushed(60))
    for name, end in (("n1", 60), ("n2", 10), ("n3", 50)):
        kit.acks(name, 10).acks(name, end)
    assert kit.member.log.confirmed == 50
    kit.acks("n4", 60, flushed=0)
    assert kit.member.log.confirmed == 50


def test_an_answer_to_a_round_that_has_not_begun_is_nobodys():
    """Or a follower would be taken for one that has heard that round as soon as it begins."""
    boot = PersistentState(Epochs([(1, 0), (4, 100)], 200), epoch=4)
    kit = MemberKit(boot=boot).wins()
    answer = ChunkAck(
        group=GROUP, epoch=5, member="n1", accepted=False, round=2, epochs=((1, 0),), end=80
    )
    assert not kit.hears(answer).sent(LogChunk)
    assert kit.hears(msgspec.structs.replace(answer, round=1)).sent(LogChunk)


def test_a_refusal_leads_to_the_place_where_both_logs_part():
    boot = PersistentState(Epochs([(1, 0), (4, 100)], 200), epoch=4)
    kit = MemberKit(boot=boot).wins()
    refusal = ChunkAck(
        group=GROUP, epoch=5, member="n1", accepted=False, round=1,
        epochs=((0, 0), (1, 0), (3, 80)), end=150,
    )  # fmt: skip
    (sent,) = kit.hears(refusal).sent(LogChunk)
    assert (sent.position, sent.end, sent.previous_epoch, sent.data_epoch) == (80, 100, 1, 1)


def test_a_damaged_log_is_reported_once_and_not_shipped():
    kit = MemberKit().wins().acks("n1", 10)
    kit.source.damaged_from = 10
    kit.at(2_100, raft_inputs.Appended(1, 60))
    assert kit.wanted(NeedsRepair) == [NeedsRepair(10, "bad")]
    assert not kit.at(2_101, raft_inputs.Appended(1, 70)).wanted(NeedsRepair)
    kit.source.damaged_from = 1_000
    assert kit.at(2_102, raft_inputs.Appended(1, 80)).sent(LogChunk)


# -- handing over --------------------------------------------------------------------------------


def test_a_hand_over_waits_until_the_target_has_all():
    kit = MemberKit().wins().acks("n1", 10)
    kit.at(
        2_001,
        raft_inputs.Appended(1, 60),
        raft_inputs.LogFlushed(60),
        raft_inputs.TransferLeadership("n1"),
    )
    assert not kit.sent(StandNow)
    assert kit.member.may_acknowledge(2_001)
    kit.acks("n1", 60)
    assert kit.sent(StandNow)
    assert not kit.member.may_acknowledge(2_001)


def test_a_hand_over_to_nobody_ends_and_the_leader_goes_on():
    kit = MemberKit().wins().acks("n1", 10)
    kit.at(2_001, raft_inputs.TransferLeadership("n7"))
    assert kit.wanted(TransferFailed)
    kit.at(2_002, raft_inputs.TransferLeadership())
    assert [each.round for each in kit.sent(StandNow)] == [1]
    for now in range(2_100, 3_500, 100):
        kit.at(now).acks("n1", 10)
        assert not kit.member.may_acknowledge(now)
    kit.at(3_660)
    assert kit.wanted(TransferFailed)
    assert not kit.member.may_acknowledge(3_660)
    kit.acks("n1", 10)
    assert kit.member.may_acknowledge(3_660)


def test_who_is_to_stand_does_so_at_once_and_says_why():
    kit = MemberKit().hears(chunk(1, 0, 0, answered=6))
    kit.hears(StandNow(group=GROUP, epoch=1, leader="n1", round=6))
    assert kit.member.role is RaftRole.CANDIDATE
    assert {(each.epoch, each.transfer, each.pre) for each in kit.sent(AskVote)} == {(2, 6, False)}
    assert MemberKit().hears(StandNow(group=GROUP, epoch=0, leader="n1", round=6)).effects == []


# -- how bytes of a leader fit to a log ------------------------------------------------------------


def own(end: int = 300, confirmed: int = 0) -> OwnLog:
    epochs = Epochs([(3, 100), (5, 260)], end)
    return OwnLog(epochs, first_position=0, flushed=end, confirmed=confirmed)


@pytest.mark.parametrize(
    ("position", "end", "previous", "data", "wanted"),
    [
        (300, 320, 5, 5, (Fit.NEXT, 300)),
        (300, 320, 5, 7, (Fit.NEXT, 300)),
        (300, 300, 5, 5, (Fit.HAVE, 300)),
        (310, 320, 5, 5, (Fit.GAP, 0)),
        (300, 320, 3, 5, (Fit.GAP, 0)),
        (270, 300, 5, 5, (Fit.HAVE, 300)),
        (100, 200, 0, 3, (Fit.HAVE, 200)),
        (270, 320, 5, 5, (Fit.OVERLAP, 300)),
        (200, 280, 3, 3, (Fit.DIVERGED, 260)),
        (200, 220, 3, 7, (Fit.DIVERGED, 200)),
    ],
)
def test_a_chunk_fits_or_says_where_both_logs_part(
    position: int, end: int, previous: int, data: int, wanted: tuple[Fit, int]
):
    assert own().compare(position, end, previous, data) == wanted


def test_flushed_and_confirmed_never_decrease_nor_pass_the_end():
    log = own()
    assert not log.flush(200)
    assert log.confirm(999)
    assert log.confirmed == 300
    assert not log.confirm(100)
