"""A member of a Raft group leads: its core, with the group's word given by the test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.engine.effects import DeleteLogBefore, SaveEpochs
from kourou.engine.inputs import ClosedSegment, DiskMeasured, Fenced, LogShrunk
from kourou.engine.ports import QuorumMember
from kourou.engine.roles.quorum import QuorumLeaderRole
from kourou.errors import Code
from kourou.events.control_events import EpochOpened, decode_record_body
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.pulls import (
    GetMaxOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from kourou.protocol.messages.replication import Attach
from kourou.runtime import Disconnected
from kourou_rigs.engine import Engine, MemoryStore, pull
from kourou_rigs.quorum import GivenQuorum

TOPIC = UpdateAndCreateTopic(
    topic="t", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6
)


@pytest.fixture
def quorum() -> GivenQuorum:
    return GivenQuorum(member="n2", leader="n2", state="leader", epoch=7)


@pytest.fixture
def leader(quorum) -> Engine:
    found = Engine(role=QuorumLeaderRole(7, quorum))
    quorum.confirm(found)
    return found


def again(left: Engine, quorum: GivenQuorum, epoch: int) -> Engine:
    """A core made anew over the open store."""
    return Engine(role=QuorumLeaderRole(epoch, quorum), left=left.store)


# -- the epoch -------------------------------------------------------------------------------------


@pytest.mark.feature("F154")
def test_the_first_record_opens_the_epoch_where_the_log_ended(leader, quorum) -> None:
    end = leader.store.end
    new = again(leader, quorum, 9)
    append = new.appends()[0]
    assert append.pieces[0][0] == end
    stored = next(one for one in new.stored(CONTROL_TOPIC) if one.position == end)
    recorded = decode_record_body(stored.body, offset=stored.offset, position=stored.position)
    assert recorded.event == EpochOpened(9, end, "broker-a/n2", "SYNC_MASTER")
    assert SaveEpochs(((7, 0), (9, end))) in new.effects


def test_nothing_is_recorded_before_the_epoch_is_open(leader) -> None:
    leader.core.role.opened = False
    with pytest.raises(AssertionError, match="its first one"):
        leader.core.start(0, 0, [], "start")


# -- answers ---------------------------------------------------------------------------------------


@pytest.mark.feature("F160")
def test_a_send_is_answered_when_a_majority_has_it(leader, quorum, draft, records) -> None:
    name = leader.send(*records([draft()]))
    assert leader.flushes_wanted == 0, "whoever ships flushes"
    assert leader.core.parts.confirmations.pending == 1
    leader.flush()
    assert name not in leader.replies
    quorum.confirm(leader, leader.store.end - 1)
    assert name not in leader.replies
    quorum.confirm(leader)
    assert leader.replies[name].code == Code.SUCCESS


def test_a_send_that_no_majority_gets_in_time_is_stored_here(leader, draft, records) -> None:
    sent = leader.send(*records([draft()]))
    decided = leader.send(TOPIC)
    leader.advance(3_000)
    assert leader.replies[sent].code == Code.FLUSH_SLAVE_TIMEOUT
    assert leader.replies[decided].code == Code.OUTCOME_UNKNOWN


def test_who_lost_the_lead_says_so_and_writes_nothing(leader, draft, records) -> None:
    name = leader.send(*records([draft()]))
    end = leader.store.end
    leader.perform(leader.core.lose_leadership("n1 leads broker-a now"))
    assert leader.replies[name].code == Code.OUTCOME_UNKNOWN
    later = leader.ask(*records([draft()]))
    assert (later.code, later.remark) == (
        Code.SERVICE_NOT_AVAILABLE,
        "n1 leads broker-a now (send the request to the leader)",
    )
    assert leader.core.parts.confirmations.failed == "n1 leads broker-a now"
    assert leader.store.end == end


def test_who_hands_over_takes_no_writes_until_that_has_failed(
    leader, quorum, draft, records
) -> None:
    leader.send(*records([draft()]))
    quorum.handing_over = True
    end = leader.store.end
    reply = leader.ask(*records([draft()]))
    assert reply.code == Code.SERVICE_NOT_AVAILABLE
    assert reply.remark == "n2 is transferring leadership (retry)"
    assert leader.store.end == end
    quorum.handing_over = False
    name = leader.send(*records([draft()]))
    quorum.confirm(leader)
    assert leader.replies[name].code == Code.SUCCESS


def test_while_it_hands_over_the_clock_makes_it_write_nothing(
    leader, quorum, draft, records
) -> None:
    leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    leader.send(*records([draft()]))
    quorum.confirm(leader)
    commit = UpdateConsumerOffset(consumer_group="g", topic="orders", queue_id=0, commit_offset=1)
    assert leader.ask(commit).code == Code.SUCCESS
    quorum.handing_over, end = True, leader.store.end
    leader.effects = []
    for _ in range(60):
        leader.advance(1_000)
    assert leader.store.end == end
    assert leader.effects == [], "and nobody is warned"
    quorum.handing_over = False
    leader.advance(1_000)
    leader.advance(6_000)
    assert leader.store.end > end, "the progress of consumers is recorded"


@pytest.mark.parametrize("before", [True, False])
def test_who_lost_the_lead_takes_no_writes_again_whoever_hands_over(
    leader, quorum, draft, records, before
) -> None:
    leader.send(*records([draft()]))
    end = leader.store.end
    quorum.handing_over = before
    leader.advance(100)
    leader.perform(leader.core.lose_leadership("n1 leads broker-a now"))
    for quorum.handing_over in (True, False):
        reply = leader.ask(*records([draft()]))
        assert reply.code == Code.SERVICE_NOT_AVAILABLE
        assert "n1 leads broker-a now" in reply.remark
    assert leader.store.end == end


def test_a_lease_that_is_over_holds_answers_back(leader, quorum, draft, records) -> None:
    quorum.sure = False
    name = leader.send(*records([draft()]))
    quorum.confirm(leader)
    assert name not in leader.replies
    assert leader.core.parts.confirmations.confirmed == leader.store.end, "readers may have it"
    quorum.sure = True
    leader.advance(100)
    assert leader.replies[name].code == Code.SUCCESS


def test_only_what_is_confirmed_is_deleted(leader, quorum, draft, records) -> None:
    before = leader.store.end
    leader.send(*records([draft()]))
    end = leader.store.end
    segments = [ClosedSegment(0, before, 1 << 40), ClosedSegment(before, end, 1 << 40)]

    def deleted(kept: list[ClosedSegment]) -> list[int]:
        leader.effects = []
        leader.handle(DiskMeasured(100, 1, leader.wall_ms, 4, kept, deletable_end=end))
        asked = [one for one in leader.effects if isinstance(one, DeleteLogBefore)]
        return [one.position for one in asked]

    assert deleted(segments) == [before]
    leader.handle(LogShrunk(before))
    assert deleted(segments[1:]) == []
    quorum.confirm(leader, end)
    assert deleted(segments[1:]) == [end]


# -- readers ---------------------------------------------------------------------------------------


def test_readers_get_what_is_confirmed_and_are_woken_by_it(leader, quorum, draft, records) -> None:
    leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    leader.send(*records([draft(body=b"one")]))
    assert leader.ask(pull()).code == Code.PULL_NOT_FOUND
    held = leader.send(pull(wait_ms=9_000))
    assert held not in leader.replies
    quorum.confirm(leader)
    assert leader.replies[held].code == Code.SUCCESS


def test_a_pull_waits_for_what_an_earlier_core_had_stored(leader, quorum, draft, records) -> None:
    """Nothing grows any more: only the group's word can wake it."""
    leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    leader.send(*records([draft()]))
    new = again(leader, quorum, 9)
    held = new.send(pull(wait_ms=9_000))
    assert held not in new.replies
    quorum.confirm(new)
    assert new.replies[held].code == Code.SUCCESS


def test_no_client_gets_an_offset_that_may_be_taken_back(leader, quorum, draft, records) -> None:
    leader.send(*records([draft()]))
    quorum.confirm(leader)
    leader.send(*records([draft(), draft()]))
    assert leader.ask(GetMaxOffset(topic="orders", queue_id=0)).header.offset == 1
    search = SearchOffsetByTimestamp(topic="orders", queue_id=0, timestamp=2**62)
    assert leader.ask(search).header.offset == 1
    quorum.confirm(leader)
    assert leader.ask(GetMaxOffset(topic="orders", queue_id=0)).header.offset == 3
    assert leader.ask(search).header.offset == 3


# -- others ----------------------------------------------------------------------------------------


def test_nobody_attaches_and_no_name_server_deposes(leader) -> None:
    attach = Attach(cluster="DefaultCluster", broker_name="broker-a", broker_id=1)
    assert leader.ask(attach).code == Code.REQUEST_CODE_NOT_SUPPORTED
    leader.handle(Fenced(1 << 40), Disconnected(leader.peer(5)))
    assert leader.send(TOPIC) not in leader.replies, "it waits for a majority, as ever"


def test_lags_are_reported_in_time(leader, quorum, draft, records) -> None:
    other = QuorumMember("n0", 1, "REPLICATE", leader.store.end, leader.store.end)
    leading = leader.core.role
    assert leading.lag_ms(leader.now_ms, replace(other, written=0)) is None
    quorum.others = [other]
    leader.advance(100)
    leader.send(*records([draft()]))
    leader.advance(1_500)
    assert leading.lag_ms(leader.now_ms, other) == 1_500
    assert leading.lag_ms(leader.now_ms, replace(other, written=leader.store.end)) == 0


def test_a_group_that_starts_again_is_not_read_before_it_has_confirmed(
    leader, draft, records
) -> None:
    leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    leader.send(*records([draft()]))
    store: MemoryStore = leader.store
    fresh = GivenQuorum(member="n1", leader="n1", epoch=8)
    new = Engine(role=QuorumLeaderRole(8, fresh), left=store)
    assert new.core.parts.confirmations.confirmed == 0
    assert new.ask(pull()).code == Code.PULL_NOT_FOUND
