"""Who has led a log, and whose copies count."""

from __future__ import annotations

from kourou.engine.admin.history import tell_state
from kourou.engine.control import ControlState, decode_state, encode_state, evolve
from kourou.engine.ports import ANYWHERE
from kourou.engine.roles.replicas import ReplicaAggregate
from kourou.events.control_events import EpochOpened, Event, InSyncChanged, Recorded


def apply(state: ControlState, event: Event, position: int = 9_999) -> None:
    evolve(state, Recorded(state.next_offset, position, 1, "broker", "", "", event))


def state() -> ControlState:
    found = ControlState()
    apply(found, EpochOpened(1, 500, "a/0", "SYNC_MASTER"))
    apply(found, InSyncChanged((1, 2), (), "caught up"))
    return found


def test_an_epoch_begins_where_it_says_and_not_at_its_record() -> None:
    found = state()
    assert found.replicas == ReplicaAggregate([(1, 500)], "a/0", "SYNC_MASTER", (1, 2))
    assert found.replicas.epoch == 1
    assert ReplicaAggregate().epoch == 0


def test_a_new_epoch_forgets_whose_copies_counted() -> None:
    found = state()
    apply(found, EpochOpened(3, 900, "a/1", "ASYNC_MASTER"))
    left = {1: 900, 2: 900}
    assert found.replicas == ReplicaAggregate([(1, 500), (3, 900)], "a/1", "ASYNC_MASTER", (), left)


def test_what_was_promised_while_a_follower_counted_stays_promised() -> None:
    found = state()
    assert found.replicas.promised_to(1) == ANYWHERE
    apply(found, InSyncChanged((2,), (1, 2), "1 is gone"), 800)
    assert [found.replicas.promised_to(member) for member in (1, 2, 3)] == [800, ANYWHERE, 0]
    assert decode_state(encode_state(found)) == found


def test_a_snapshot_holds_it_and_one_without_it_is_read() -> None:
    found = state()
    assert decode_state(encode_state(found)) == found
    assert found.copy() == found
    older = encode_state(ControlState()).replace(b',"replicas":{', b',"older":{')
    assert decode_state(older).replicas == ReplicaAggregate()


def test_it_is_reported_as_one_aggregate() -> None:
    assert b'"leader":"a/0"' in tell_state(state(), "replication/epoch")
    assert tell_state(ControlState(), "replication/epoch") == b"null"
