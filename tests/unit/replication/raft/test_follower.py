"""What a follower writes, cuts, confirms and answers."""

from kourou.protocol.messages.replication import AskVote, ChunkAck, FetchLogResponse, StandNow
from kourou.replication.epochs import Epochs, TruncateLog
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.effects import (
    Committed,
    DiscardLog,
    Fetch,
    FlushLog,
    Halt,
    RaftRole,
    WriteChunk,
)
from kourou.replication.raft.node import PersistentState
from kourou_rigs.raft_member import GROUP, MemberKit, chunk


def booted(*, confirmed: int = 0, disk: bool = True) -> MemberKit:
    """Its log is of epochs 1 and 3."""
    boot = PersistentState(
        Epochs([(1, 0), (3, 100)], 150), epoch=3, confirmed=confirmed, flushed=150
    )
    return MemberKit(boot=boot, disk=disk)


def ack(kit: MemberKit) -> ChunkAck:
    return kit.sent(ChunkAck)[-1]


def test_bytes_are_written_then_flushed_and_each_is_reported():
    kit = MemberKit(disk=False).hears(chunk(1, 0, 40), bytes(40))
    assert kit.wanted(WriteChunk) == [WriteChunk(0, 40, 1, bytes(40))]
    kit.at(0, raft_inputs.VoteSaved())
    assert (ack(kit).written, ack(kit).flushed) == (40, 0)
    kit.at(5, raft_inputs.LogFlushed(40))
    assert (ack(kit).written, ack(kit).flushed) == (40, 40)


def test_many_chunks_get_one_answer():
    kit = MemberKit().hears(chunk(1, 0, 0))
    chunks = [chunk(1, at, at + 10, previous=1 if at else 0) for at in (0, 10, 20)]
    kit.at(1, *(raft_inputs.MessageReceived(one, bytes(10)) for one in chunks))
    assert next(each.written for each in kit.sent(ChunkAck)) == 30
    assert len(kit.sent(ChunkAck)) == 2, "one for the batch, one for the flush"


def test_an_older_tail_is_no_answer():
    """Its own bytes beyond what was compared with this leader's log say nothing."""
    kit = booted().hears(chunk(4, 60, 60, previous=1))
    assert (ack(kit).accepted, ack(kit).written, ack(kit).flushed) == (True, 60, 60)


def test_a_gap_or_another_epoch_is_refused_with_what_it_has():
    kit = booted().hears(chunk(4, 200, 220, previous=3))
    assert (ack(kit).accepted, ack(kit).epochs, ack(kit).end) == (False, ((1, 0), (3, 100)), 150)
    kit.hears(chunk(4, 120, 120, previous=2))
    assert (ack(kit).accepted, ack(kit).epochs, ack(kit).end) == (False, ((1, 0), (3, 100)), 120)
    assert not kit.wanted(WriteChunk)


def test_a_tail_of_another_leader_is_cut_before_anything_is_written():
    kit = booted(disk=False).hears(chunk(4, 120, 140, previous=3))
    assert kit.wanted(TruncateLog) == [TruncateLog(120, 0)]
    assert not kit.hears(chunk(4, 120, 140, previous=3)).effects
    kit.at(9, raft_inputs.VoteSaved(), raft_inputs.LogTruncated())
    assert (ack(kit).accepted, ack(kit).end) == (False, 120)
    kit.hears(chunk(4, 120, 140, previous=3))
    assert kit.wanted(WriteChunk)


def test_a_late_chunk_cuts_nothing():
    kit = booted().hears(chunk(3, 100, 120, previous=1))
    assert not kit.wanted(TruncateLog)
    assert kit.member.log.end == 150


def test_nobody_stands_while_its_log_is_cut():
    kit = booted(disk=False).hears(chunk(4, 120, 140, previous=3))
    assert kit.wanted(TruncateLog)
    kit.at(9, raft_inputs.VoteSaved()).hears(StandNow(group=GROUP, epoch=4, leader="n1", round=1))
    assert kit.member.role is RaftRole.FOLLOWER
    assert not kit.at(60_000).sent(AskVote)
    kit.at(60_001, raft_inputs.LogTruncated())
    assert kit.at(120_000).sent(AskVote)


def test_what_is_confirmed_is_never_cut():
    kit = booted(confirmed=130).hears(chunk(4, 120, 140, previous=3))
    assert kit.wanted(Halt)
    assert not kit.wanted(TruncateLog)
    assert kit.member.role is RaftRole.STOPPED


def test_confirmed_is_what_is_compared_and_on_this_disk():
    kit = booted().hears(chunk(4, 60, 60, previous=1, confirmed=140))
    assert kit.wanted(Committed) == [Committed(60)]
    kit.disk = False
    kit.hears(chunk(4, 150, 170, previous=3, confirmed=170))
    assert kit.wanted(Committed) == [Committed(150)]
    kit.at(3, raft_inputs.LogFlushed(170))
    assert kit.wanted(Committed) == [Committed(170)]


def test_a_write_that_failed_is_not_there_and_not_answered_for_a_while():
    kit = MemberKit(disk=False).hears(chunk(1, 0, 0)).at(0, raft_inputs.VoteSaved())
    kit.hears(chunk(1, 0, 40), bytes(40))
    kit.at(1, raft_inputs.WriteFailed(0))
    assert kit.member.log.end == 0
    assert not kit.hears(chunk(1, 0, 40), bytes(40)).effects
    assert kit.at(151).hears(chunk(1, 0, 40), bytes(40)).wanted(WriteChunk)


def test_an_epoch_opens_once():
    kit = (
        booted().hears(chunk(4, 150, 160, previous=3)).hears(chunk(4, 160, 170, previous=4, data=4))
    )
    assert kit.member.log.epochs.opened() == ((1, 0), (3, 100), (4, 150))


# -- catching up ---------------------------------------------------------------------------------


def fetched(serial: int, position: int, end: int, *, confirmed: int = 900) -> raft_inputs.Fetched:
    answer = FetchLogResponse(
        position=position, end=end, previous_epoch=3, data_epoch=3, confirmed=confirmed,
        first_position=0,
    )  # fmt: skip
    return raft_inputs.Fetched(serial, answer, bytes(end - position))


def behind() -> MemberKit:
    return booted().hears(chunk(4, 150, 150, previous=3, confirmed=800, catch_up=True))


def test_far_behind_it_fetches_from_another_follower_first():
    kit = behind()
    assert kit.wanted(Fetch) == [Fetch(1, "n2", 150, 650)]
    kit.at(1, fetched(1, 150, 400))
    assert kit.wanted(WriteChunk)
    assert ack(kit).written == 400
    assert kit.wanted(Fetch) == [Fetch(2, "n2", 400, 400)]


def test_the_next_question_leaves_before_the_last_answer_is_written():
    kit = behind().at(1, fetched(1, 150, 400))
    kinds = [type(each) for each in kit.effects]
    assert kinds.index(Fetch) < kinds.index(WriteChunk) < kinds.index(FlushLog)


def test_nothing_is_fetched_that_the_leader_did_not_call_confirmed():
    for answer in (fetched(1, 150, 810), fetched(1, 150, 400, confirmed=300), fetched(9, 150, 400)):
        assert not behind().at(1, answer).wanted(WriteChunk)


def test_who_does_not_answer_is_followed_by_another():
    kit = behind().at(1, raft_inputs.FetchFailed(1))
    kit.hears(chunk(4, 150, 150, previous=3, confirmed=800, catch_up=True))
    assert [each.member for each in kit.wanted(Fetch)] == ["n1"]
    asked = []
    for now in range(700, 7_000, 700):
        kit.at(now).hears(chunk(4, 150, 150, previous=3, confirmed=800, catch_up=True))
        asked += [(now, each.member) for each in kit.wanted(Fetch)]
    assert asked == [(5_600, "n2")]


def test_what_it_has_already_of_a_fetch_is_agreed_upon():
    kit = booted().hears(chunk(4, 120, 120, previous=3, confirmed=800, catch_up=True))
    kit.at(1, fetched(1, 120, 400))
    assert kit.wanted(Fetch) == [Fetch(2, "n2", 150, 650)]


def test_what_nobody_has_any_longer_is_not_waited_for():
    kit = booted(disk=False)
    kit.hears(chunk(4, 500, 500, previous=3, confirmed=600, first=500, catch_up=True))
    assert kit.wanted(DiscardLog) == [DiscardLog(500, 3)]
    assert kit.member.may_begin(500, 3)
    kit.at(1, raft_inputs.VoteSaved(), raft_inputs.LogRestarted())
    assert ack(kit).end == 500
    kit.hears(chunk(4, 500, 520, previous=3, data=3, first=500))
    assert kit.wanted(WriteChunk) == [WriteChunk(500, 520, 3, b"")]


def test_it_begins_where_others_have_deleted_to_meanwhile():
    kit = booted(disk=False)
    kit.hears(chunk(4, 500, 500, previous=3, confirmed=800, first=500, catch_up=True))
    assert not kit.member.may_begin(499, 3)
    assert kit.member.may_begin(700, 3)
    kit.at(1, raft_inputs.VoteSaved(), raft_inputs.LogRestarted(700, 3))
    assert ack(kit).end == 700
    kit.hears(chunk(4, 700, 720, previous=3, data=3, first=700))
    assert kit.wanted(WriteChunk) == [WriteChunk(700, 720, 3, b"")]


def test_an_order_to_begin_anew_that_comes_late_is_none():
    """Of before the leader deleted more: what lies below the new beginning was confirmed."""
    kit = booted(disk=False)
    kit.hears(chunk(4, 500, 500, previous=3, confirmed=600, first=500, catch_up=True))
    assert kit.member.may_begin(500, 3)
    kit.at(1, raft_inputs.VoteSaved(), raft_inputs.LogRestarted())
    kit.hears(chunk(4, 400, 400, previous=3, confirmed=450, first=400, catch_up=True))
    assert not kit.wanted(DiscardLog)
    assert kit.member.role is RaftRole.FOLLOWER


def test_a_chunk_of_before_the_log_began_that_comes_late_cuts_nothing():
    kit = booted(disk=False)
    kit.hears(chunk(4, 500, 500, previous=3, confirmed=600, first=500, catch_up=True))
    assert kit.member.may_begin(500, 3)
    kit.at(1, raft_inputs.VoteSaved(), raft_inputs.LogRestarted())
    for position, end in ((0, 40), (460, 500), (460, 540), (0, 0)):
        kit.hears(chunk(4, position, end, data=1), bytes(end - position))
        assert not kit.wanted(TruncateLog)
        assert kit.member.role is RaftRole.FOLLOWER
        assert kit.member.log.end == 500


def test_until_somebody_tells_what_came_before_the_log_is_what_it_was():
    """So the next leader, which still has what the last one lacked, can send it."""
    kit = booted(disk=False)
    kit.hears(chunk(4, 500, 500, previous=3, confirmed=600, first=500, catch_up=True))
    kit.at(1, raft_inputs.VoteSaved())
    assert kit.member.wants_to_begin
    assert kit.member.log.end == 150
    kit.hears(chunk(5, 150, 170, previous=3, data=3, leader="n2"))
    assert not kit.member.wants_to_begin
    assert not kit.member.may_begin(500, 3)
    assert kit.wanted(WriteChunk) == [WriteChunk(150, 170, 3, b"")]


def test_what_was_fetched_while_it_waits_for_a_beginning_is_not_thrown_away():
    """It answers for those bytes: a beginning that somebody tells now comes too late."""
    kit = booted(disk=False)
    kit.hears(chunk(4, 150, 150, previous=3, confirmed=800, catch_up=True))
    late = chunk(4, 500, 500, previous=3, confirmed=800, first=500, catch_up=True)
    kit.at(1, raft_inputs.VoteSaved()).hears(late)
    assert kit.wanted(DiscardLog) == [DiscardLog(500, 3)]
    kit.at(2, fetched(1, 150, 700), raft_inputs.LogFlushed(700))
    assert ack(kit).flushed == 700
    assert not kit.member.may_begin(500, 3)
    assert kit.member.log.end == kit.member.log.confirmed == 700


def test_bytes_that_came_too_late_leave_the_beginning_to_be_asked_for_again():
    kit = booted(disk=False)
    kit.hears(chunk(4, 150, 150, previous=3, confirmed=800, catch_up=True))
    late = chunk(4, 500, 500, previous=3, confirmed=800, first=500, catch_up=True)
    kit.at(1, raft_inputs.VoteSaved()).hears(late)
    kit.at(2, fetched(1, 150, 300)).hears(late)
    assert kit.wanted(DiscardLog) == [DiscardLog(500, 3)]
    assert kit.member.may_begin(500, 3)


def test_who_waits_for_a_beginning_is_heard_and_asks_for_no_more_than_heartbeats():
    kit = booted(disk=False)
    wanted = chunk(4, 500, 500, previous=3, confirmed=600, first=500, catch_up=True)
    kit.hears(wanted).at(1, raft_inputs.VoteSaved())
    answers = 0
    for now in range(2, 302):
        answers += len(kit.at(now).hears(wanted).sent(ChunkAck))
        assert not kit.wanted(DiscardLog)
    assert answers == 2
