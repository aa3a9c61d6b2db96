"""A static follower takes its leader's bytes, in order and once."""

from __future__ import annotations

import pytest

from kourou.protocol.messages.replication import Attach, Attached, ChunkAck, LogChunk
from kourou.replication.epochs import Epochs
from kourou.replication.static_follower import (
    NOT_COPIED_MS,
    SILENT_MS,
    AppendBytes,
    Copying,
    FollowerIdentity,
    FollowerStep,
    RestartAt,
    SendToLeader,
    TruncateTo,
)

MEMBER = FollowerIdentity("c", "a", 1)
GIVEN_UP = FollowerIdentity("c", "a", 1, accept_cut_at=60)
"""Its operator accepts the loss of what lies beyond 60."""
DATA = memoryview(bytes(100))


def following() -> Copying:
    found = asking()
    assert found.attached(0, attached(common=100)) == []
    return found


def asking(member: FollowerIdentity = MEMBER, *, end: int = 100, promised: int = 0) -> Copying:
    """One that is connected and has asked, with a log of one epoch."""
    found = Copying(member, Epochs([(64, 0)] if end else [], end), 0, promised=promised)
    found.connected(0)
    return found


def attached(**fields: object) -> Attached:
    return Attached(**{"broker_name": "a", "broker_id": 1, "epoch": 64, **fields})


def chunk(position: int, end: int, **fields: object) -> LogChunk:
    wanted = {
        "group": "a", "epoch": 64, "leader": "a/0", "previous_epoch": 64, "data_epoch": 64,
        "confirmed": 0, "leader_end": 1_000, "first_position": 0, "round": 1, **fields,
    }  # fmt: skip
    return LogChunk(position=position, end=end, **wanted)


def said(found: list[SendToLeader]) -> list[Attach | ChunkAck]:
    return [each.message for each in found]


def test_it_asks_with_what_it_has() -> None:
    copying = Copying(MEMBER, Epochs([(64, 0), (128, 70)], 100), 5)
    assert copying.connected(0).message == Attach(
        cluster="c",
        broker_name="a",
        broker_id=1,
        epochs=((64, 0), (128, 70)),
        end=100,
        first_position=5,
    )
    assert copying.step is FollowerStep.ATTACHING


def test_it_takes_what_goes_on_where_it_ends_and_says_so_once_a_turn() -> None:
    copying = following()
    assert copying.chunk(1, chunk(100, 200, confirmed=150), DATA) == [AppendBytes(100, 200, DATA)]
    assert copying.chunk(1, chunk(200, 300, round=2), DATA) == [AppendBytes(200, 300, DATA)]
    assert (copying.taken, copying.written, copying.confirmed) == (300, 100, 100)
    copying.copied(200)
    copying.copied(300)
    assert said(copying.acknowledge()) == [
        ChunkAck(group="a", epoch=64, member="1", accepted=True, written=300, flushed=100, round=2)
    ]
    assert copying.acknowledge() == []
    assert (copying.confirmed, copying.lag_bytes) == (150, 700)


def test_a_gap_or_another_history_is_refused_with_what_it_has() -> None:
    copying = following()
    (gap,) = copying.chunk(1, chunk(150, 250), DATA)
    (other,) = copying.chunk(1, chunk(100, 200, previous_epoch=128), DATA)
    for refused in (gap, other):
        assert isinstance(refused, SendToLeader)
        message = refused.message
        assert isinstance(message, ChunkAck)
        assert (message.accepted, message.end, message.epochs) == (False, 100, ((64, 0),))
    assert copying.taken == 100


def test_what_it_has_already_is_answered_and_not_taken_again() -> None:
    copying = following()
    assert copying.chunk(1, chunk(0, 100, previous_epoch=0), DATA) == []
    assert len(copying.acknowledge()) == 1
    (refused,) = copying.chunk(1, chunk(50, 150), DATA)
    assert isinstance(refused, SendToLeader)


def test_a_chunk_may_open_an_epoch() -> None:
    copying = following()
    copying.chunk(1, chunk(100, 200, data_epoch=128), DATA)
    assert copying.chunk(1, chunk(200, 300, previous_epoch=128, data_epoch=128), DATA)
    copying.copied(200)
    copying.not_copied(1, 200)
    assert copying.taken == 200
    again = chunk(200, 300, previous_epoch=128, data_epoch=128)
    assert copying.chunk(NOT_COPIED_MS, again, DATA) == []
    assert copying.acknowledge() == [], "it does not ask as fast as it can for what finds no room"
    assert copying.chunk(NOT_COPIED_MS + 1, again, DATA)


def test_an_old_leader_is_reported_so_and_a_newer_one_is_asked() -> None:
    copying = following()
    (refused,) = copying.chunk(1, chunk(100, 200, epoch=63), DATA)
    assert isinstance(refused, SendToLeader)
    assert isinstance(refused.message, ChunkAck)
    assert (refused.message.epoch, refused.message.accepted) == (64, False)
    (asked,) = copying.chunk(1, chunk(100, 200, epoch=65), DATA)
    assert isinstance(asked, SendToLeader)
    assert isinstance(asked.message, Attach)
    assert copying.step is FollowerStep.ATTACHING


def test_a_leader_that_waits_for_the_disk_makes_it_flush() -> None:
    copying = following()
    copying.chunk(1, chunk(100, 200, flush=True), DATA)
    assert not copying.wants_flush(), "nothing is written yet"
    copying.copied(200)
    assert copying.wants_flush()
    assert not copying.wants_flush()
    copying.acknowledge()
    copying.flushed_to(200)
    (ack,) = said(copying.acknowledge())
    assert isinstance(ack, ChunkAck)
    assert ack.flushed == 200


def test_what_the_leader_never_had_is_cut() -> None:
    copying = asking()
    assert copying.attached(0, attached(common=60)) == [TruncateTo(60)]
    assert copying.step is FollowerStep.DETACHED


@pytest.mark.feature("F129")
def test_what_counted_for_a_sender_is_not_cut_unless_an_operator_says_so() -> None:
    copying = asking(promised=61)
    assert copying.attached(0, attached(common=60)) == []
    assert copying.step is FollowerStep.REFUSED
    assert "acceptDataLoss=60" in copying.reason
    copying = asking(GIVEN_UP, promised=1 << 62)
    assert copying.attached(0, attached(common=60)) == [TruncateTo(60)]
    copying = asking(promised=60)
    assert copying.attached(0, attached(common=60)) == [TruncateTo(60)], (
        "the rest was promised to none"
    )


def test_a_refusal_is_kept_and_asked_about_again_later() -> None:
    copying = asking(end=0)
    copying.attached(10, attached(refusal="no"))
    assert (copying.step, copying.reason) == (
        FollowerStep.REFUSED,
        "the leader refuses this follower: no",
    )
    assert copying.chunk(20, chunk(0, 100, previous_epoch=0), DATA) == []
    assert copying.tick(SILENT_MS) == []
    (again,) = copying.tick(SILENT_MS + 10)
    assert isinstance(again.message, Attach)


def test_silence_makes_it_ask_again_and_no_connection_makes_it_wait() -> None:
    copying = following()
    assert copying.tick(SILENT_MS - 1) == []
    assert len(copying.tick(SILENT_MS)) == 1
    copying.disconnected()
    assert copying.tick(10 * SILENT_MS) == []


def test_a_leader_whose_log_begins_later_is_asked_again_and_makes_it_begin_anew() -> None:
    copying = following()
    (ask,) = said(copying.chunk(1, chunk(500, 600, first_position=500), DATA))
    assert (ask.end, ask.epochs) == (100, ((64, 0),))
    assert copying.attached(2, attached(common=100, begin_at=500)) == [RestartAt(500, 100)]
    assert copying.step is FollowerStep.REFUSED
    assert "now starts at 500, and this log has the same bytes up to 100" in copying.reason
    assert len(copying.tick(2 + SILENT_MS)) == 1, "should it come to nothing, it asks again"


def test_it_does_not_begin_anew_where_that_would_cost_what_counted() -> None:
    copying = asking(promised=61)
    assert copying.attached(1, attached(common=60, begin_at=500)) == []
    assert "senders were promised what this follower has up to 61" in copying.reason
    accepting = asking(GIVEN_UP, promised=61)
    assert accepting.attached(1, attached(common=60, begin_at=500)) == [RestartAt(500, 60)]


@pytest.mark.parametrize(
    "answer", [attached(broker_name="b"), attached(broker_id=2)], ids=["name", "id"]
)
def test_an_answer_to_somebody_else_means_nothing(answer: Attached) -> None:
    copying = asking(end=0)
    assert copying.attached(0, answer) == []
    assert copying.step is FollowerStep.ATTACHING


# -- how far behind --------------------------------------------------------------------------------


def test_lag_in_time_counts_from_when_all_that_the_leader_had_was_here() -> None:
    copying = following()
    assert copying.lag_ms(0) == 0
    copying.chunk(1_000, chunk(100, 200, leader_end=300), DATA)
    assert copying.lag_ms(1_000) is None, "never, as far as is known"
    copying.copied(200)
    copying.chunk(2_000, chunk(200, 300, leader_end=300), DATA)
    copying.copied(300)
    assert copying.lag_bytes == 0
    assert copying.lag_ms(2_000) == 0
    copying.chunk(3_000, chunk(300, 400, leader_end=900), DATA)
    copying.copied(400)
    assert copying.lag_ms(3_500) == 2_500, "what there was at 1,000 was here"


def test_a_silent_leader_makes_the_copy_late_though_it_lacks_nothing_that_is_known() -> None:
    copying = following()
    copying.chunk(1_000, chunk(100, 100, leader_end=100), DATA)
    assert copying.lag_ms(1_000 + SILENT_MS) == 0
    assert copying.lag_ms(1_001 + SILENT_MS) == SILENT_MS + 1
    copying.disconnected()
    assert copying.lag_ms(1_500) == 500


def test_signs_of_life_are_what_the_leader_says_and_not_what_it_is_asked() -> None:
    copying = following()
    assert copying.silent_ms(100) == 100
    copying.tick(SILENT_MS)
    assert copying.step is FollowerStep.ATTACHING
    assert copying.silent_ms(SILENT_MS) == SILENT_MS
    assert copying.silent_ms(SILENT_MS + 1) is None
    copying.attached(SILENT_MS + 2, attached(common=100))
    assert copying.silent_ms(SILENT_MS + 2) == 0
    copying.chunk(SILENT_MS + 9, chunk(100, 100, epoch=1), DATA)
    assert copying.silent_ms(SILENT_MS + 10) == 1
    copying.disconnected()
    assert copying.silent_ms(SILENT_MS + 10) is None
