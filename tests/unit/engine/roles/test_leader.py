"""A static leader: followers attach, epochs are opened, copies count."""

from __future__ import annotations

import pytest

from kourou.engine.effects import Flush, SaveEpochs
from kourou.engine.inputs import Flushed
from kourou.engine.sends.recorder import read_control_events
from kourou.errors import Code
from kourou.events.control_events import EpochOpened, InSyncChanged
from kourou.protocol.messages.replication import Attach, Attached, ChunkAck, LogChunk
from kourou.runtime import LogWarning, Notify
from kourou_rigs.engine import Engine
from kourou_rigs.pair import Pair


@pytest.fixture
def leader() -> Engine:
    return Engine(leads=True, sync=True)


def attach(**fields: object) -> Attach:
    wanted = {
        "cluster": "DefaultCluster", "broker_name": "broker-a", "broker_id": 1, **fields,
    }  # fmt: skip
    return Attach(**wanted)


def said(engine: Engine) -> list[object]:
    found = [notice.request for notice in engine.notices]
    engine.notices = []
    return found


def test_a_broker_without_followers_opens_no_epoch_and_writes_no_record_more(leader) -> None:
    alone = Engine()
    assert leader.control == alone.control
    assert leader.store.records == alone.store.records
    assert not leader.core.role.active


@pytest.mark.feature("F132")
def test_the_first_follower_makes_it_open_an_epoch_and_flush_it_before_it_ships(leader) -> None:
    end = leader.store.end
    leader.send(attach())
    assert leader.control.replicas.epochs == [(64, end)]
    assert isinstance(leader.effects[-1], Notify)
    assert Flush() in leader.effects
    assert SaveEpochs(((64, end),)) in leader.effects
    assert said(leader) == [Attached(broker_name="broker-a", broker_id=1, epoch=64)]
    leader.advance(1_000)
    assert said(leader) == []
    leader.flush()
    (first,) = said(leader)
    assert isinstance(first, LogChunk)
    assert (first.position, first.end, first.epoch) == (0, end, 64)


def test_a_leader_that_starts_again_opens_the_next_epoch_at_once(leader) -> None:
    leader.send(attach())
    again = Engine(leads=True, left=leader.store)
    assert [epoch for epoch, _ in again.control.replicas.epochs] == [64, 128]
    assert again.control.replicas.role == "ASYNC_MASTER"


def test_who_may_not_follow_is_reported_and_so_is_the_operator_once(leader) -> None:
    for _ in range(2):
        leader.send(attach(cluster="other"))
    first, second = said(leader)
    assert isinstance(first, Attached)
    assert "this is DefaultCluster/broker-a" in first.refusal
    assert second == first
    assert len([one for one in leader.effects if isinstance(one, LogWarning)]) == 1
    assert leader.control.replicas.epochs == []


@pytest.mark.feature("F129", "F134")
def test_joining_and_leaving_are_events_and_senders_wait_in_between(draft, records) -> None:
    pair = Pair(sync=True)
    leader = pair.leader
    pair.connect()
    pair.deliver()
    pair.flush()
    pair.advance(1_000)
    pair.deliver()
    pair.advance(1_000)
    pair.deliver()
    assert leader.core.role.in_sync == (1,)
    request, body = records([draft()])
    leader.send(request, body)  # makes the topic
    name = leader.send(request, body)
    assert name not in leader.replies
    pair.take()
    pair.deliver()
    assert leader.replies[name].code == Code.SUCCESS
    lonely = leader.send(request, body)
    pair.disconnect()
    assert leader.replies[lonely].code == Code.FLUSH_SLAVE_TIMEOUT
    assert leader.ask(request, body).code == Code.SLAVE_NOT_AVAILABLE
    events = [one for one in decoded(leader) if isinstance(one, EpochOpened | InSyncChanged)]
    assert [type(one).__name__ for one in events] == [
        "EpochOpened",
        "InSyncChanged",
        "InSyncChanged",
    ]
    assert events[2] == InSyncChanged((), (1,), "1 is not attached any more")


def test_a_leader_that_another_one_outdid_stores_and_promises_nothing_more(
    draft, records, leader
) -> None:
    leader.send(attach())
    leader.flush()
    newer = ChunkAck(group="broker-a", epoch=1 << 33, member="1", accepted=False)
    leader.send(newer)
    request, body = records([draft()])
    reply = leader.ask(request, body)
    assert "another broker is the leader of this log" in str(reply.header)
    assert reply.header.target_offsets == [-1]
    leader.handle(Flushed(leader.store.end))
    said(leader)
    leader.advance(5_000)
    assert said(leader) == [], "it ships nothing"


def decoded(engine: Engine) -> list[object]:
    batch = read_control_events(engine.store, 0, engine.store.end, print)
    return [recorded.event for recorded in batch]
